// Charts: uPlot with the colours of the page, bands for intervals, and a width that follows the window.

import uPlot from "/static/uplot.js";
import {h, number, short} from "/static/elements.js";

const HEIGHT = 220;
const COLOURS = ["--c1", "--c2", "--c3", "--c4", "--c5", "--c6", "--c7", "--c8"];
const ROLES = {pursuer: "--seat0", evader: "--seat1"};  // as in films and replays

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/**
 * A chart over steps; null where no line has a value. lines: [{label, steps, values, low, high, thin}], each with its own steps;
 * low and high are a band, a thin line is one seed of the line before it, role gives the colour of a role. The legend shows the
 * newest values, or those under the pointer. range: [low, high] of the vertical axis, or null.
 */
export function chart(title, lines, range = null) {
  const drawn = lines.filter((line) => line.values.some((value) => value !== null));
  if (!drawn.length) return null;
  const box = h("figure", {class: "chart", key: title}, h("figcaption", {}, title));
  let plot = null, labels = "";
  box.lines = drawn;
  const draw = () => {
    if (!box.clientWidth) return;
    const {columns, series, bands} = layout(box.lines), present = series.map((one) => one.label).join("\n");
    if (plot && present === labels) { plot.setData(columns); return; }
    plot?.destroy();
    labels = present;
    plot = new uPlot({...options(range), width: width(), series, bands}, columns, box);
  };
  const width = () => Math.max(240, box.clientWidth - 18);
  box.renew = (fresh) => { box.lines = fresh.lines; draw(); };
  new ResizeObserver(() => {  // it also reports the first size, as soon as the chart is on the page
    if (!plot) draw();
    else if (plot.width !== width()) plot.setSize({width: width(), height: HEIGHT});
  }).observe(box);
  return box;
}

function options(range) {
  const axis = {stroke: colour("--faint"), grid: {stroke: colour("--line"), width: 1}, ticks: {stroke: colour("--line")}};
  return {
    height: HEIGHT, scales: {x: {time: false}, y: range ? {range} : {}},
    axes: [{...axis, values: (_, ticks) => ticks.map(short)}, {...axis, size: 56, values: (_, ticks) => ticks.map(axisNumber)}],
    legend: {live: true, markers: {fill: (plot, i) => plot.series[i].stroke(plot, i)}}, cursor: {points: {size: 6}},
  };
}

/** Columns, series and bands of uPlot: all lines over the union of their steps. */
function layout(lines) {
  const steps = [...new Set(lines.flatMap((line) => line.steps))].sort((a, b) => a - b);
  const place = new Map(steps.map((step, i) => [step, i]));
  const columns = [steps], series = [{label: "step", value: (plot, _, i, k) => short(plot.data[0][k ?? plot.data[0].length - 1])}], bands = [];
  let colours = -1;
  for (const line of lines) {
    colours += line.thin ? 0 : 1;
    const stroke = colour(ROLES[line.role] ?? COLOURS[colours % COLOURS.length]);
    const column = (values) => {
      const out = new Array(steps.length).fill(null);
      line.steps.forEach((step, k) => { out[place.get(step)] = values[k] ?? null; });
      return out;
    };
    const band = line.low?.some((value) => value !== null) ?? false;
    if (band) {
      columns.push(column(line.high), column(line.low));
      const hidden = {show: true, stroke: "transparent", width: 0, points: {show: false}, spanGaps: true, class: "bound"};
      series.push({...hidden, label: `${line.label}, upper bound`}, {...hidden, label: `${line.label}, lower bound`});
      bands.push({series: [series.length - 2, series.length - 1], fill: `${stroke}33`});
    }
    columns.push(column(line.values));
    const look = line.thin ? {stroke: `${stroke}88`, width: 1, points: {show: false}, class: "bound"} : {stroke, width: 2, points: {show: line.steps.length < 40, size: 5}};
    series.push({label: line.label, spanGaps: true, value: (plot, _, i, k) => legendValue(plot.data, i, k ?? newest(plot.data[i]), band), ...look});
  }
  return {columns, series, bands};
}

function newest(column) {
  return column.findLastIndex((value) => value !== null);
}

/** A value with its interval, which lies in the two columns before it: the upper and the lower bound. */
function legendValue(data, column, row, band) {
  const value = data[column][row] ?? null, low = band ? data[column - 1][row] ?? null : null;
  if (value === null) return "-";
  return low === null ? String(Number(value.toPrecision(4))) : `${number(value)} [${number(low)}, ${number(data[column - 2][row])}]`;
}

function axisNumber(value) {
  return Math.abs(value) >= 1000 ? short(value) : String(Number(value.toPrecision(6)));
}

/** The curves of metrics that end in one name, one line per role: entropy of pursuer and evader. */
export function metricCharts(curves) {
  const groups = new Map();
  for (const [name, values] of Object.entries(curves.series)) {
    const cut = name.lastIndexOf("/");
    const key = name.slice(cut + 1), role = cut < 0 ? name : name.slice(0, cut);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push({label: role, role, steps: curves.step, values});
  }
  return groups;
}
