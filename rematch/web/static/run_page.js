// One run: verdict, win rates, balance, scoreboard, league, alarms, curriculum, learning curves, settings, log, film.

import {chart, metricCharts} from "/static/charts.js";
import {ago, h, interval, left, load, number, progress, short, table, unbroken, update} from "/static/elements.js";
import {leagueSection, payoffSection} from "/static/league.js";

const FIRST = ["entropy", "kl", "value_loss", "explained_variance", "loss", "td_error"];  // at most FIRST_CURVES of them
const FIRST_CURVES = 4;
const REWARD = /^(r_|return_)/;  // reward terms: of a rollout, of recent episodes
const FILMS = {"match.gif": "One game between the trained players", "episode.gif": "The newest filmed episode"};
const NEARLY_WHITE = 232;  // of 255
const METRICS = {entropy: ["Entropy of the policy", "nats"], kl: ["KL divergence of an update", "nats"], value_loss: ["Loss of the value", "loss"],
  explained_variance: ["Explained variance of the value", "share of the variance"], loss: ["Loss", "loss"], td_error: ["TD error", "reward"],
  learner_steps_per_second: ["Speed of the learners", "steps per second"]};  // name -> title, unit

/** Draw the page into `view`, or what has changed; returns the name of the run. */
export async function runPage(view, id, pages) {
  const [run, curves, log] = await Promise.all([
    load(`/api/runs/${id}`), load(`/api/runs/${id}/curves`), load(`/api/runs/${id}/log`)]);
  const redraw = () => runPage(view, id, pages);
  const open = view.querySelector("#more-curves")?.open ?? false;
  const before = view.querySelector(".log"), atEnd = !before || before.scrollTop + before.clientHeight > before.scrollHeight - 8;
  update(view,
    h("h1", {}, run.name),
    h("p", {class: "facts"}, h("span", {class: `state ${run.state}`}, run.state), " ", run.world,
      run.seed === null ? "" : `, seed ${run.seed}`, ", ", progress(run.step, run.total_steps),
      run.speed === null ? "" : `, ${short(Math.round(run.speed))} steps/s, ${left(run.seconds_left)}`, ", written ", ago(run.age)),
    h("div", {class: "overview", key: "overview"}, h("div", {key: "words"},
      h("p", {class: "verdict"}, unbroken(run.verdict)),
      worldLink(pages, run),
      run.command ? h("p", {key: "command"}, "Continue with: ", h("code", {}, run.command)) : null,
      ...run.lineage.map((text) => h("p", {}, "Lineage: ", text)),
      ...run.problems.map((text) => h("p", {class: "problem", key: "problem"}, text)),
      ...causes(run), ...alarms(run)), films(run)),
    ...strength(run), ...leagueSection(run), ...payoffSection(run, redraw), ...curriculum(run),
    h("h2", {key: "learning"}, "Learning"), ...learning(curves, open),
    h("h2", {key: "settings"}, "Settings that differ from the defaults"),
    h("div", {class: "short changed", key: "changed"}, table(["setting", "value", "default"], run.changed.map((row) => [h("code", {}, row.key), String(row.value), String(row.default)]), "changed settings")),
    h("h2", {key: "log"}, "End of the log"), h("pre", {class: "log", tabindex: "0", "aria-label": "log"}, (log.lines ?? []).slice(-80).join("\n")),
  );
  document.title = `${run.name} · Rematch`;
  const pane = view.querySelector(".log");
  if (atEnd) requestAnimationFrame(() => { pane.scrollTop = pane.scrollHeight; });  // the newest lines, once they are on the page
  return run.name;
}

/** The link to the page of the run's world, or to the page of every world without one of its own. */
function worldLink(pages, run) {
  const page = pages.find((one) => one.world === run.world) ?? pages.find((one) => one.world === "other");
  return run.world === "-" ? null : h("p", {class: "links", key: "links"}, h("a", {href: `#/run/${run.id}/${page.world}`}, page.title));
}

/** The newest films; a click shows one in its full size. */
function films(run) {
  const shown = Object.entries(run.films).filter(([name]) => name in FILMS);
  return shown.length ? h("div", {key: "films", class: "films"}, ...shown.map(([name, version]) => {
    const address = `/api/runs/${run.id}/film/${name}?version=${version}`;
    return h("figure", {key: name}, h("a", {href: address, target: "_blank", rel: "noopener"}, film(address, FILMS[name])), h("figcaption", {}, FILMS[name]));
  })) : null;
}

/** A film; most of a drawing is nearly white, and dark mode inverts it. */
function film(src, alt) {
  const node = h("img", {src, alt, class: "film", onload: () => node.classList.toggle("drawing", isDrawing(node))});
  node.renew = (fresh) => { if (node.src !== fresh.src) node.src = fresh.src; };
  return node;
}

function isDrawing(picture) {
  const size = 24, pen = Object.assign(document.createElement("canvas"), {width: size, height: size}).getContext("2d");
  pen.drawImage(picture, 0, 0, size, size);
  const {data} = pen.getImageData(0, 0, size, size);
  const white = Array.from({length: size * size}, (_, i) => Math.min(...data.subarray(4 * i, 4 * i + 3))).filter((value) => value >= NEARLY_WHITE);
  return white.length > size * size / 2;
}

function causes(run) {
  if (!run.causes?.length) return [];
  return [h("h2", {key: "Likely causes of the verdict"}, "Likely causes of the verdict"), h("ul", {}, ...run.causes.map((cause) => h("li", {}, cause)))];
}

function alarms(run) {
  if (!run.alarms.length) return [];
  return [h("h2", {key: "Alarms"}, "Alarms"), ...run.alarms.map((alarm) => h("div", {class: "alarm", role: "note"},
    h("p", {}, alarm.text ?? alarm.name ?? "alarm"),
    ...(alarm.causes?.length ? [h("p", {class: "note"}, "Likely causes:"), h("ul", {}, ...alarm.causes.map((cause) => h("li", {}, cause)))]
      : [h("p", {class: "note"}, "The numbers of the run show no likely cause.")])))];
}

function strength(run) {
  const rows = run.evaluations, out = [];
  if (!rows.length) return [h("p", {class: "note"}, "No evaluation yet.")];
  const roles = [...new Set(rows.flatMap((row) => Object.keys(row.rates)))];
  const charts = [];
  charts.push(chart("Win rate of each role, 95 % intervals", roles.map((role) => {
    const with_ = rows.filter((row) => row.rates[role]);
    const column = (key) => with_.map((row) => row.rates[role][key]);
    return {label: role, role, steps: with_.map((row) => row.step), values: column("rate"), low: column("low"), high: column("high")};
  }), "share of games", [0, 1]));
  const scored = rows.filter((row) => row.strength), score = (key) => scored.map((row) => row.strength[key]);
  charts.push(chart("Mean score against scripted opponents, 95 % intervals", [{label: "score", steps: scored.map((row) => row.step), values: score("score"), low: score("low"), high: score("high")}], "score (win 1, draw ½)", [0, 1]));
  charts.push(balance(run));
  const returned = [...new Set(rows.flatMap((row) => Object.keys(row.returns ?? {})))];
  charts.push(chart("Mean return, 95 % intervals", returned.map((role) => {
    const with_ = rows.filter((row) => row.returns[role]);
    const column = (key) => with_.map((row) => row.returns[role][key]);
    return {label: role, role, steps: with_.map((row) => row.step), values: column("mean"), low: column("low"), high: column("high")};
  }), "return of a game"));
  out.push(h("h2", {key: "Strength"}, "Strength"), h("div", {class: "charts"}, ...charts.filter((node) => node)));
  if (run.table.length) {
    out.push(h("p", {class: "note", key: "scoreboard"}, "Newest evaluation. The last column compares the intervals of the player and of the best scripted player against the same opponent."));
    out.push(h("div", {class: "scoreboard", key: "scoreboard"}, table(["role", "opponent", "score", "games", "best scripted player", "its score", "player is"], run.table.map((row) => [
      row.role ?? "-", row.rival ?? row.opponent ?? "-", interval(row, "score"), row.games ?? "-", row.best_bot ?? "-", number(row.best_bot_score), level(row)]), "newest scoreboard")));
  }
  out.push(...run.exact.map((text) => h("p", {}, text)), ...responses(run));
  return out;
}

/** The NE gap, with what is known of exploitability: NashConv where the world can be solved, gains of best responses. */
function balance(run) {
  const gaps = run.evaluations.filter((row) => row.gap !== null), exact = run.evaluations.filter((row) => row.nash_conv !== null);
  const strong = run.exploit.flatMap((row) => Object.entries(row.roles).filter(([, one]) => !one.too_weak && typeof one.gain === "number").map(([role, one]) => ({role, step: row.step, ...one})));
  const roles = [...new Set(strong.map((one) => one.role))];
  const known = [exact.length ? "NashConv" : "", roles.length ? "gain of best responses, at least" : ""].filter(Boolean).join("; ");
  const title = [gaps.length ? "Balance (NE gap)" : "", known ? `exploitability (${known})` : ""].filter(Boolean).join(" beside ");
  return chart(title[0]?.toUpperCase() + title.slice(1), [
    {label: "NE gap", steps: gaps.map((row) => row.step), values: gaps.map((row) => row.gap), low: gaps.map((row) => row.gap_low), high: gaps.map((row) => row.gap_high)},
    {label: "NashConv", steps: exact.map((row) => row.step), values: exact.map((row) => row.nash_conv)},
    ...roles.map((role) => {
      const newest = new Map(strong.filter((one) => one.role === role).map((one) => [one.step, one]));  // of several budgets the largest, which comes last
      const column = (key) => [...newest.values()].map((one) => one[key]);
      return {label: `best response as ${role}`, role, steps: [...newest.keys()], values: column("gain"), low: column("gain_low"), high: column("gain_high")};
    }),
  ], "difference of scores", [0, null]);
}

/** What was trained against these policies, and what is not measured yet with the command for it. */
function responses(run) {
  const rows = run.exploit.flatMap((row) => Object.entries(row.roles).map(([role, one]) => [short(row.step), short(row.budget), role, interval(one, "score"), one.games ?? "-",
    one.too_weak ? "too weak: no evidence" : interval({value: one.gain, low: one.gain_low, high: one.gain_high}, "value")]));
  const open = rows.length ? [] : run.missing.filter((one) => one.what.includes("exploit")).slice(0, 1);  // the smallest budget
  return [
    ...(rows.length ? [h("h3", {key: "responses"}, "Best responses"), h("p", {class: "note", key: "responses"}, "Policies that were trained against those of this run. Each score is a lower bound: a better response may exist."),
      h("div", {class: "scoreboard", key: "responses"}, table(["policies of step", "budget (steps)", "response as", "score, at least", "games", "gain, at least"], rows, "best responses"))] : []),
    ...open.map((one) => h("p", {class: "note", key: "missing"}, `Not measured yet: ${one.what}: `, h("code", {}, one.command))),
  ];
}

/** Whether the player is above, below or level with the best scripted player; "-" where that is not known. */
function level(row) {
  if (![row.low, row.high, row.best_bot_low, row.best_bot_high].every((bound) => typeof bound === "number")) return "-";
  if (row.low > row.best_bot_high) return h("b", {class: "good"}, "above");
  return row.high < row.best_bot_low ? h("b", {class: "problem"}, "below") : "level";
}

function curriculum(run) {
  const levels = run.curriculum.levels ?? [];
  if (!levels.length) return [];
  const line = {label: "level", steps: levels.map((row) => row.step), values: levels.map((row) => row.level)};
  const moves = (run.curriculum.promotions ?? []).map((row) => [short(row.step), `${row.before} to ${row.level}`, row.name ?? "-", evidence(row.evidence)]);
  return [h("h2", {key: "Curriculum"}, "Curriculum"), h("div", {class: "charts", key: "levels"}, chart("Level at every evaluation", [line], "level", [0, Math.max(1, ...line.values) + 0.2])),
    !moves.length ? h("p", {class: "note", key: "levels"}, "The level has not changed yet.") : table(["step", "level", "name", "evidence"], moves, "changes of level")];
}

/** {rate: 0.81, games: 200} -> "rate 0.810, games 200". */
function evidence(value) {
  if (value === null || value === undefined) return "not recorded";
  if (typeof value !== "object") return String(value);
  return Object.entries(value).map(([key, one]) => `${key} ${typeof one === "number" && !Number.isInteger(one) ? number(one) : one}`).join(", ");
}

function learning(curves, open) {
  const groups = metricCharts(curves);
  if (!groups.size) return [h("p", {class: "note", key: "no curves"}, curves.problem || "Nothing is logged yet.")];
  const names = [...groups.keys()], first = FIRST.filter((name) => groups.has(name)).slice(0, FIRST_CURVES);
  const terms = names.filter((name) => REWARD.test(name)).sort();
  const rest = names.filter((name) => !first.includes(name) && !terms.includes(name)).sort();
  const words = (name) => METRICS[name] ?? [name.replaceAll("_", " "), ""];
  const draw = (name) => chart(words(name)[0], groups.get(name), words(name)[1]);
  const speed = Object.entries(curves.speed.series).map(([name, values]) => chart(words(name)[0], [{label: "speed", steps: curves.speed.step, values}], words(name)[1]));
  const together = (prefix, title, unit) => chart(title, terms.filter((name) => name.startsWith(prefix)).flatMap((name) =>
    groups.get(name).map((line) => ({...line, role: null, label: name.slice(prefix.length).replaceAll("_", " ") + (groups.get(name).length > 1 ? ` (${line.label})` : "")}))), unit);
  const shown = [...first.map(draw), together("r_", "Reward terms: mean reward of a step", "reward of a step"), together("return_", "Reward terms: return of recent episodes", "return of an episode"), ...speed];
  const charts = () => h("div", {class: "charts"}, ...rest.map(draw).filter((node) => node));
  const fill = ({currentTarget: more}) => { if (more.open && more.children.length === 1) more.append(charts()); };
  return [h("div", {class: "charts", key: "curves"}, ...shown.filter((node) => node)),
    h("details", {id: "more-curves", ontoggle: fill}, h("summary", {}, `${rest.length} more curves`), open ? charts() : null)];
}
