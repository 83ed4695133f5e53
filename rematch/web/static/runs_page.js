// The list of runs, with the seeds of a sweep below its name, and several runs in one chart.

import {chart} from "/static/charts.js";
import {ago, count, h, left, load, progress, sparkline, table, unbroken, update} from "/static/elements.js";

const chosen = new Set();
const order = [];  // identifiers in the order of the list: a run keeps its place while the page is open, new ones come first
const MANY = 8;  // runs from which on a filter is offered
let wanted = "";  // words of the filter
let curve = "";  // title of the compared curve

export async function runsPage(view, redraw, pages) {
  const data = await load("/api/runs");
  const alone = pages.filter((page) => page.without_run).flatMap((page) => [h("a", {href: `#/world/${page.world}`}, page.title), " "]);
  const links = alone.length ? h("p", {class: "links"}, ...alone) : null;
  if (!data.runs.length) {
    update(view, h("h1", {}, "No runs yet"), h("p", {}, "Start one: ", h("code", {}, "rematch train quick")), links);
    return;
  }
  const known = new Map(data.runs.map((run) => [run.id, run]));
  for (const id of [...chosen]) if (!known.has(id)) chosen.delete(id);
  order.unshift(...data.runs.map((run) => run.id).filter((id) => !order.includes(id)));
  const fits = (run) => wanted.toLowerCase().split(/\s+/).every((word) => [run.name, run.world, run.recipe, run.state, run.verdict].join(" ").toLowerCase().includes(word));
  const groups = new Map();  // sweep, or the identifier of a single run -> its runs
  for (const run of order.flatMap((id) => known.get(id) ?? []).filter(fits)) groups.set(run.group || run.id, [...groups.get(run.group || run.id) ?? [], run]);
  const choose = (ids, on) => { for (const id of ids) on ? chosen.add(id) : chosen.delete(id); redraw(); };
  const rows = [...groups].flatMap(([name, runs]) => runs.length > 1
    ? [sweepRow(name, runs, choose), ...runs.sort(byName).map((run) => runRow(run, choose, name))] : [runRow(runs[0], choose)]);
  const headings = ["compare", "run", "world, recipe", "state", "steps", "trend", "verdict", "written"];
  const filter = data.runs.length < MANY ? null : h("p", {key: "filter"}, h("input", {type: "search", class: "filter", "aria-label": "filter the runs", placeholder: "filter: name, world, state, verdict", value: wanted || null,
    oninput: (event) => { wanted = event.target.value; redraw(); }}), h("span", {class: "note", role: "status"}, wanted ? ` ${count([...groups.values()].flat().length, "run")} of ${data.runs.length}` : ""));
  const parts = [h("h1", {}, "Runs"), links, filter, !rows.length ? h("p", {class: "note", key: "none"}, "No run has all of these words.") : h("div", {class: "runs", key: "runs"}, table(headings, rows, "runs"))];
  if (chosen.size) parts.push(h("section", {key: "compared"}, h("h2", {}, "Compared"), ...await compared(redraw)));
  else if (rows.length) parts.push(h("p", {class: "note"}, "Tick runs to compare them in one chart; tick a sweep to see its seeds as a band."));
  update(view, ...parts);
}

function byName(one, other) {
  return one.name.localeCompare(other.name, undefined, {numeric: true});
}

/** The line of a run; below the line of its sweep without the name of that. */
function runRow(run, choose, sweep = "") {
  const [word, ...rest] = unbroken(run.problem || run.verdict).split(":");
  return h("tr", {key: run.id, class: sweep ? "member" : ""},
    h("td", {}, h("input", {type: "checkbox", checked: chosen.has(run.id), "aria-label": `compare ${run.name}`, onchange: (event) => choose([run.id], event.target.checked)})),
    h("td", {}, h("a", {href: `#/run/${run.id}`}, sweep ? run.name.slice(sweep.length + 1) : run.name)),
    h("td", {}, run.world, run.recipe && run.recipe !== run.world ? h("span", {class: "note"}, ` ${run.recipe}`) : null),
    h("td", {}, h("span", {class: `state ${run.state}`}, run.state)), h("td", {}, progress(run.step, run.total_steps), run.seconds_left === null ? null : h("div", {class: "note"}, left(run.seconds_left))),
    h("td", {title: "win rate, mean score or mean return at the evaluations"}, sparkline(run.spark, "trend of the evaluations")),
    h("td", {class: "words"}, h("b", {class: run.problem ? "problem" : ""}, word), rest.length ? h("span", {class: "note"}, `:${rest.join(":")}`) : null,
      run.command ? h("div", {class: "note"}, "continue: ", h("code", {}, run.command)) : null),
    h("td", {class: "when"}, ago(run.age)));
}

/** The line of a sweep: its tick chooses all seeds. */
function sweepRow(name, runs, choose) {
  const ids = runs.map((run) => run.id), states = new Map();
  for (const run of runs) states.set(run.state, (states.get(run.state) ?? 0) + 1);
  const sum = (values) => values.every((value) => value !== null) ? values.reduce((a, b) => a + b, 0) : null;
  return h("tr", {key: `sweep ${name}`, class: "sweep"},
    h("td", {}, h("input", {type: "checkbox", checked: ids.every((id) => chosen.has(id)), "aria-label": `compare all runs of ${name}`, onchange: (event) => choose(ids, event.target.checked)})),
    h("th", {scope: "row"}, name), h("td", {}, `${runs.length} runs`), h("td", {}, [...states].map(([state, count]) => `${count} ${state}`).join(", ")),
    h("td", {}, progress(sum(runs.map((run) => run.step)), sum(runs.map((run) => run.total_steps)))), h("td", {}), h("td", {}),
    h("td", {class: "when"}, ago(Math.min(...runs.map((run) => run.age ?? Infinity)))));
}

/** One curve of the chosen runs; runs that differ only in the seed are one line with a band. */
async function compared(redraw) {
  const charts = await load(`/api/compare/${[...chosen].join(",")}`);
  if (!charts.length) return [h("p", {class: "note"}, "These runs have no evaluation yet.")];
  const shown = charts.find((one) => one.title === curve) ?? charts[0];
  const select = h("select", {"aria-label": "compared curve", onchange: (event) => { curve = event.target.value; redraw(); }},
    ...charts.map((one) => h("option", {value: one.title, selected: one === shown}, one.title)));
  const seeds = shown.lines.some((line) => line.thin);
  return [select, h("div", {class: "compared", key: shown.title}, chart(shown.title, shown.lines, shown.unit, shown.share ? [0, 1] : null)),
    h("p", {class: "note"}, seeds ? "Thick line: interquartile mean over seeds (the mean of fewer than four), with its 95 % interval over seeds. Thin lines: the seeds. A single run has the intervals of its evaluations."
      : "Bands: 95 % intervals over the games of each evaluation.")];
}
