// Milestones: when each was first reached, and how likely an episode reaches it (posterior with 95 % interval).

import {chart} from "/static/charts.js";
import {h, number, short, table} from "/static/elements.js";

const SVG = "http://www.w3.org/2000/svg";
const MOST_LINES = 8;

/** The section of the page; empty where the run has no milestones. */
export function milestoneSection(milestones, lines) {
  if (!milestones.length) return h("section", {}, h("h2", {}, "Milestones"), h("p", {class: "note"}, "No milestone is recorded yet."));
  const steps = Math.max(1, ...milestones.flatMap((one) => [one.frontier ?? 0, one.cold ?? 0, one.curve?.step.at(-1) ?? 0]));
  const rows = milestones.map((one) => {
    const last = one.curve ? one.curve.mean.length - 1 : -1;
    const [mean, low, high] = last < 0 ? [] : [one.curve.mean[last], one.curve.low[last], one.curve.high[last]];
    return [one.name, timeline(one, steps), one.frontier === null ? "-" : short(one.frontier), one.cold === null ? "-" : short(one.cold),
      last < 0 ? "-" : h("span", {class: "gb-posterior"}, bar(mean, low, high), ` ${number(mean, 2)} [${number(low, 2)}, ${number(high, 2)}]`)];
  });
  const reached = milestones.filter((one) => one.curve && one.curve.step.length > 1);
  const newest = reached.filter((one) => one.frontier !== null).slice(-MOST_LINES);
  const curves = chart("Probability that an episode reaches a milestone, with 95 % intervals (the newest milestones)",
    newest.map((one) => ({label: one.name, steps: one.curve.step, values: one.curve.mean, low: one.curve.low, high: one.curve.high})), "probability", [0, 1]);
  return h("section", {}, h("h2", {}, "Milestones"), ...lines.map((text) => h("p", {class: "note"}, text)),
    table(["milestone", `0 to ${short(steps)} steps: ▲ from any savestate, ● from power-on`, "from any savestate", "from power-on", "probability in an episode"], rows, "milestones"),
    curves ? h("div", {class: "charts gb-curves"}, curves) : null);
}

function timeline(one, steps) {
  const x = (step) => 4 + 192 * step / steps;
  const picture = svg("svg", {viewBox: "0 0 200 16", class: "gb-timeline", role: "img", "aria-label": `first reached at step ${one.frontier ?? "-"}, from power-on at step ${one.cold ?? "-"}`},
    svg("line", {x1: 4, x2: 196, y1: 8, y2: 8, class: "axis"}));
  if (one.frontier !== null) picture.append(svg("path", {d: `M ${x(one.frontier)} 2 l 5 10 h -10 z`, class: "frontier"}));
  if (one.cold !== null) picture.append(svg("circle", {cx: x(one.cold), cy: 8, r: 4, class: "cold"}));
  return picture;
}

function bar(mean, low, high) {
  return svg("svg", {viewBox: "0 0 100 12", class: "gb-bar", "aria-hidden": "true"},
    svg("rect", {x: 0, y: 2, width: 100, height: 8, class: "all"}), svg("rect", {x: 0, y: 2, width: 100 * mean, height: 8, class: "mean"}),
    svg("line", {x1: 100 * low, x2: 100 * high, y1: 6, y2: 6, class: "span"}));
}

function svg(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
