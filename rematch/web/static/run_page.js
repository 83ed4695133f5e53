// One run: verdict, win rates, balance, scoreboard, alarms, curriculum, learning curves, settings, log, film.

import {chart, metricCharts} from "/static/charts.js";
import {ago, h, interval, load, number, progress, short, show, table} from "/static/elements.js";

const FIRST = ["entropy", "kl", "value_loss", "policy_loss", "explained_variance", "td_error", "grad_norm", "learner_steps_per_second"];

export async function runPage(main, id, pages) {
  const [run, curves, log] = await Promise.all([
    load(`/api/runs/${id}`), load(`/api/runs/${id}/curves`), load(`/api/runs/${id}/log`)]);
  const open = new Set([...main.querySelectorAll("details[open]")].map((node) => node.id));
  const parts = [
    h("h1", {}, run.name),
    h("p", {class: "facts"}, h("span", {class: `state ${run.state}`}, run.state), " ", run.world,
      run.seed === null ? "" : `, seed ${run.seed}`, ", ", progress(run.step, run.total_steps), ", written ", ago(run.age)),
    h("p", {class: "verdict"}, run.verdict),
    ...pages.filter((page) => page.world === run.world).map((page) => h("p", {class: "links"}, h("a", {href: `#/run/${id}/${page.world}`}, page.title))),
    run.state === "running" || run.state === "finished" ? null : h("p", {}, "Continue with: ", h("code", {}, run.command)),
    ...run.lineage.map((text) => h("p", {}, "Lineage: ", text)),
    ...run.problems.map((text) => h("p", {class: "problem"}, text)),
    ...causes(run), ...alarms(run), ...strength(run), ...curriculum(run),
    h("h2", {}, "Learning"), ...learning(curves, open),
    ...(run.films.includes("match.gif") ? [h("h2", {}, "Newest film"), h("img", {src: `/api/runs/${id}/film/match.gif`, alt: "one game between the trained players", class: "film"})] : []),
    h("h2", {}, "Settings that differ from the defaults"),
    table(["setting", "value", "default"], run.changed.map((row) => [h("code", {}, row.key), String(row.value), String(row.default)]), "changed settings"),
    h("h2", {}, "End of the log"), h("pre", {class: "log", tabindex: "0", "aria-label": "log"}, (log.lines ?? []).slice(-80).join("\n")),
  ];
  show(main, ...parts);
  document.title = `${run.name} · Rematch`;
}

function causes(run) {
  if (!run.causes?.length) return [];
  return [h("h2", {}, "Likely causes of the verdict"), h("ul", {}, ...run.causes.map((cause) => h("li", {}, cause)))];
}

function alarms(run) {
  if (!run.alarms.length) return [];
  return [h("h2", {}, "Alarms"), ...run.alarms.map((alarm) => h("div", {class: "alarm", role: "note"},
    h("p", {}, alarm.text ?? alarm.name ?? "alarm"),
    h("ul", {}, ...(alarm.causes ?? []).map((cause) => h("li", {}, cause)))))];
}

function strength(run) {
  const rows = run.evaluations, out = [];
  if (!rows.length) return [h("p", {class: "note"}, "No evaluation yet.")];
  const roles = [...new Set(rows.flatMap((row) => Object.keys(row.rates)))];
  const charts = [];
  charts.push(chart("Win rate of each role against the other, with 95 % intervals", roles.map((role) => {
    const with_ = rows.filter((row) => row.rates[role]);
    const column = (key) => with_.map((row) => row.rates[role][key]);
    return {label: role, steps: with_.map((row) => row.step), values: column("rate"), low: column("low"), high: column("high")};
  }), [0, 1]));
  const gaps = rows.filter((row) => row.gap !== null), exact = rows.filter((row) => row.nash_conv !== null);
  charts.push(chart("Balance (NE gap) beside exploitability (NashConv)", [
    {label: "NE gap", steps: gaps.map((row) => row.step), values: gaps.map((row) => row.gap), low: gaps.map((row) => row.gap_low), high: gaps.map((row) => row.gap_high)},
    {label: "NashConv", steps: exact.map((row) => row.step), values: exact.map((row) => row.nash_conv)},
  ], [0, null]));
  const returned = [...new Set(rows.flatMap((row) => Object.keys(row.returns ?? {})))];
  charts.push(chart("Mean return, with 95 % intervals", returned.map((role) => {
    const with_ = rows.filter((row) => row.returns[role]);
    const column = (key) => with_.map((row) => row.returns[role][key]);
    return {label: role, steps: with_.map((row) => row.step), values: column("mean"), low: column("low"), high: column("high")};
  })));
  out.push(h("h2", {}, "Strength"), h("div", {class: "charts"}, ...charts.filter((node) => node)));
  if (run.table.length) {
    out.push(table(["role", "opponent", "games", "score", "best scripted player", "its score"], run.table.map((row) => [
      row.role ?? "-", row.rival ?? row.opponent ?? "-", short(row.games), interval(row, "score"), row.best_bot ?? "-", number(row.best_bot_score)]), "newest scoreboard"));
  }
  out.push(...run.exact.map((text) => h("p", {}, text)));
  return out;
}

function curriculum(run) {
  const levels = run.curriculum.levels ?? [];
  if (!levels.length) return [];
  const line = {label: "level", steps: levels.map((row) => row.step), values: levels.map((row) => row.level)};
  const moves = (run.curriculum.promotions ?? []).map((row) => [short(row.step), `${row.before} to ${row.level}`, row.name ?? "-", JSON.stringify(row.evidence ?? "-")]);
  return [h("h2", {}, "Curriculum"), chart("Level at every evaluation", [line]),
    moves.length ? table(["step", "level", "name", "evidence"], moves, "changes of level") : null];
}

function learning(curves, open) {
  const groups = metricCharts(curves);
  if (!groups.size) return [h("p", {class: "note"}, curves.problem || "Nothing is logged yet.")];
  const names = [...groups.keys()], first = FIRST.filter((name) => groups.has(name)).slice(0, 4);
  const rest = names.filter((name) => !first.includes(name)).sort();
  const draw = (name) => chart(name, groups.get(name));
  const more = h("details", {id: "more-curves", open: open.has("more-curves")}, h("summary", {}, `${rest.length} more curves`));
  const fill = () => { if (more.open && more.children.length === 1) more.append(h("div", {class: "charts"}, ...rest.map(draw).filter((node) => node))); };
  more.addEventListener("toggle", fill);
  fill();
  return [h("div", {class: "charts"}, ...first.map(draw).filter((node) => node)), more];
}
