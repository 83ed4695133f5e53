// The league of a run: opponents in training, and the payoff matrix of its past policies as a heat map.

import {h, number, short, table} from "/static/elements.js";
import {runJob} from "/static/jobs.js";

const played = new Map();  // run -> {payoff, cyclic} of a job of this page

/** Per role a table of its learner's opponents: those that it loses to most often first. */
export function leagueSection(run) {
  const pools = Object.entries(run.league.roles);
  if (!pools.length) return [];
  return [h("h2", {key: "league"}, "League"), h("p", {class: "note"}, `Opponents in training at iteration ${run.league.iteration}, the hardest first. Score of the learner: a win counts 1, a draw ½; older games count less.`),
    h("div", {class: "charts"}, ...pools.map(([role, rows]) => h("section", {key: role, class: "short pool"}, h("h3", {}, `${role}s in the pool`), table(["opponent", "kind", "games", "score"],
      rows.map((row) => h("tr", {key: row.name}, h("td", {}, row.name), h("td", {}, row.kind), h("td", {}, row.games.toFixed(0)),
        h("td", {}, row.score === null ? "-" : h("span", {class: "share"}, h("meter", {min: "0", max: "1", value: String(row.score), "aria-label": "score"}), ` ${number(row.score, 2)}`)))), `pool of ${role}`))))];
}

/** The heat map; a button plays it where no report has stored it. */
export function payoffSection(run, redraw) {
  const found = run.payoff ? run : played.get(run.id);
  if (found) return [h("h2", {key: "payoff"}, "Payoff matrix"), ...heatMap(found)];
  if (!run.has_past) return [];
  const play = async () => {
    button.disabled = true;
    try {
      const result = await runJob(`/api/runs/${run.id}/payoff`, {}, status);
      if (result) { played.set(run.id, result); redraw(); }
    } catch (error) { status.textContent = error.message; }
    button.disabled = false;
  };
  const status = h("p", {class: "note", role: "status"}), button = h("button", {type: "button", onclick: play}, "Play the matrix");
  status.renew = button.renew = () => {};  // the job writes into them
  return [h("h2", {key: "payoff"}, "Payoff matrix"), h("p", {class: "note"}, "Past policies of this run against each other: what it has learned, and what it has forgotten."),
    button, status];
}

function heatMap({payoff, cyclic}) {
  const {roles, steps, score, low, high, games} = payoff, [first, second] = [roles[0], roles.at(-1)];
  const rows = score.map((values, i) => h("tr", {}, h("th", {scope: "row"}, short(steps[i])), ...values.map((value, j) => {
    const cell = h("td", {title: `${first} of step ${short(steps[i])} against ${second} of step ${short(steps[j])}: ${number(value)} [${number(low[i][j])}, ${number(high[i][j])}], n = ${games}`}, String(Math.round(100 * value)));
    cell.style.background = shade(value);
    return cell;
  })));
  const share = cyclic.share === null ? "" : ` Share of cycles ${number(cyclic.share, 2)} [${number(cyclic.low, 2)}, ${number(cyclic.high, 2)}]: 0 where each policy beats those before it.`;
  return [h("div", {class: "scroll heat", tabindex: "0", role: "region", "aria-label": "payoff matrix"}, h("table", {},
    h("caption", {}, `Score of the ${first} after … steps (row) against the ${second} after … steps (column), in percent`),
    h("thead", {}, h("tr", {}, h("td", {}), ...steps.map((step) => h("th", {scope: "col"}, short(step))))), h("tbody", {}, ...rows))),
    h("p", {class: "note"}, `Blue: the row wins. n = ${games} games per cell; the 95 % intervals reach at most ${number(payoff.widest)} to either side.${share}`)];
}

/** White at one half; blue above, orange below; light enough for black numbers. */
function shade(value) {
  const distance = Math.min(1, Math.abs(2 * value - 1)), end = value >= 0.5 ? [86, 180, 233] : [240, 150, 70];
  return `rgb(${end.map((part) => Math.round(255 + (part - 255) * distance)).join(" ")})`;
}
