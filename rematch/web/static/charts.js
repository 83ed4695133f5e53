// Charts: uPlot with the colours of the page, bands for intervals, and a width that follows the window.

import uPlot from "/static/uplot.js";
import {h, short} from "/static/elements.js";

const COLOURS = ["--c1", "--c2", "--c3", "--c4", "--c5", "--c6", "--c7", "--c8"];

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/**
 * A chart over steps. lines: [{label, steps, values, low, high}], each with its own steps.
 * range: [low, high] of the vertical axis, or null.
 */
export function chart(title, lines, range = null) {
  const drawn = lines.filter((line) => line.values.some((value) => value !== null));
  const box = h("figure", {class: "chart"}, h("figcaption", {}, title));
  if (!drawn.length) return null;
  const steps = [...new Set(drawn.flatMap((line) => line.steps))].sort((a, b) => a - b);
  const place = new Map(steps.map((step, i) => [step, i]));
  const columns = [steps], series = [{label: "step", value: (_, value) => value === null ? "-" : short(value)}], bands = [];
  drawn.forEach((line, i) => {
    const stroke = colour(COLOURS[i % COLOURS.length]);
    const column = (values) => {
      const out = new Array(steps.length).fill(null);
      line.steps.forEach((step, k) => { out[place.get(step)] = values[k] ?? null; });
      return out;
    };
    if (line.low) {
      columns.push(column(line.high), column(line.low));
      const hidden = {show: true, stroke: "transparent", width: 0, points: {show: false}, spanGaps: true};
      series.push({...hidden, label: `${line.label}, upper bound`, class: "bound"}, {...hidden, label: `${line.label}, lower bound`, class: "bound"});
      bands.push({series: [series.length - 2, series.length - 1], fill: `${stroke}33`});
    }
    columns.push(column(line.values));
    series.push({label: line.label, stroke, width: 2, spanGaps: true, points: {show: line.steps.length < 40, size: 5},
      value: (_, value) => value === null ? "-" : Number(value.toPrecision(4)).toString()});
  });
  const axis = {stroke: colour("--ink"), grid: {stroke: colour("--line"), width: 1}, ticks: {stroke: colour("--line")}};
  const options = {
    width: 480, height: 220, series, bands,
    scales: {x: {time: false}, y: range ? {range} : {}},
    axes: [{...axis, values: (_, ticks) => ticks.map(short)}, {...axis, size: 56}],
    legend: {live: true}, cursor: {points: {size: 6}},
  };
  const plot = new uPlot(options, columns, box);
  const fit = () => plot.setSize({width: Math.max(240, box.clientWidth - 4), height: 220});
  new ResizeObserver(fit).observe(box);
  return box;
}

/** The curves of metrics that end in one name, one line per role: entropy of pursuer and evader. */
export function metricCharts(curves) {
  const groups = new Map();
  for (const [name, values] of Object.entries(curves.series)) {
    const cut = name.lastIndexOf("/");
    const key = name.slice(cut + 1), role = cut < 0 ? name : name.slice(0, cut);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push({label: role, steps: curves.step, values});
  }
  return groups;
}
