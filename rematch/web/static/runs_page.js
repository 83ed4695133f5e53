// The list of runs, and several of them in one chart.

import {chart} from "/static/charts.js";
import {ago, h, load, progress, show, sparkline, table} from "/static/elements.js";

const chosen = new Set();

export async function runsPage(main, redraw, pages) {
  const data = await load("/api/runs");
  const alone = pages.filter((page) => page.without_run).flatMap((page) => [h("a", {href: `#/world/${page.world}`}, page.title), " "]);
  const links = alone.length ? h("p", {class: "links"}, ...alone) : null;
  if (!data.runs.length) {
    show(main, h("h1", {}, "No runs yet"), h("p", {}, "Start one: ", h("code", {}, "rematch train quick")), links);
    return;
  }
  for (const id of [...chosen]) if (!data.runs.some((run) => run.id === id)) chosen.delete(id);
  const rows = data.runs.map((run) => [
    h("input", {type: "checkbox", checked: chosen.has(run.id), "aria-label": `compare ${run.name}`,
      onchange: (event) => { event.target.checked ? chosen.add(run.id) : chosen.delete(run.id); redraw(); }}),
    h("a", {href: `#/run/${run.id}`}, run.name), run.world,
    h("span", {class: `state ${run.state}`}, run.state), progress(run.step, run.total_steps),
    sparkline(run.spark, "win rate"), run.problem || run.verdict, ago(run.age),
  ]);
  const headings = ["compare", "run", "world", "state", "steps", "trend", "verdict", "written"];
  const parts = [h("h1", {}, "Runs"), links, table(headings, rows, "runs")];
  if (chosen.size) parts.push(h("h2", {}, "Compared"), await compared(data.runs.filter((run) => chosen.has(run.id))));
  else parts.push(h("p", {class: "note"}, "Tick runs to compare their win rates in one chart."));
  show(main, ...parts);
}

/** Win rates of the first role of several runs. */
async function compared(runs) {
  const facts = await Promise.all(runs.map((run) => load(`/api/runs/${run.id}`)));
  const lines = facts.flatMap((run) => {
    const role = Object.keys(run.evaluations.at(-1)?.rates ?? {})[0];
    if (!role) return [];
    const rows = run.evaluations.filter((row) => row.rates[role]);
    const column = (key) => rows.map((row) => row.rates[role][key]);
    return [{label: `${run.name}: ${role}`, steps: rows.map((row) => row.step), values: column("rate"), low: column("low"), high: column("high")}];
  });
  return chart("Win rate against the other role of the same run, with 95 % intervals", lines, [0, 1])
    ?? h("p", {}, "These runs have no evaluation with a win rate yet.");
}
