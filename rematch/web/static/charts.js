// Charts: uPlot with the colours of the page, bands for intervals, and a width that follows the window.

import uPlot from "/static/uplot.js";
import {h, number, short} from "/static/elements.js";

const HEIGHT = 236;
const FONT = "12px system-ui, sans-serif";
const STEPS = "steps of all games";
const COLOURS = ["--c1", "--c2", "--c3", "--c4", "--c5", "--c6", "--c7", "--c8"];
const ROLES = {pursuer: "--seat0", evader: "--seat1"};  // as in films and replays
const OTHERS = COLOURS.slice(2);  // of lines beside those of roles: neither red nor blue

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/**
 * A chart over steps; null where no line has a value. lines: [{label, steps, values, low, high, thin}], each with its own steps;
 * low and high are a band, a thin line is one seed of the line before it, role gives the colour of a role. The legend shows the
 * newest values, or those under the pointer. unit: what the vertical axis shows; range: its [low, high], or null.
 */
export function chart(title, lines, unit, range = null) {
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
    plot = new uPlot({...options(unit, range), width: width(), series, bands}, columns, box);
  };
  const width = () => Math.max(240, box.clientWidth - 18);
  box.renew = (fresh) => { box.lines = fresh.lines; draw(); };
  new ResizeObserver(() => {  // it also reports the first size, as soon as the chart is on the page
    if (!plot) draw();
    else if (plot.width !== width()) plot.setSize({width: width(), height: HEIGHT});
  }).observe(box);
  return box;
}

function options(unit, range) {
  const axis = {stroke: colour("--faint"), font: FONT, labelFont: FONT, labelSize: 18, grid: {stroke: colour("--line"), width: 1}, ticks: {stroke: colour("--line"), size: 4}};
  return {
    height: HEIGHT, scales: {x: {time: false}, y: range ? {range} : {}},
    axes: [{...axis, label: STEPS, size: 30, values: (_, ticks) => ticks.map(tick)}, {...axis, label: unit, size: (_, texts) => Math.max(34, 14 + 7 * Math.max(0, ...(texts ?? []).map((text) => text.length))), values: (_, ticks) => ticks.map(tick)}],
    legend: {live: true, markers: {fill: (plot, i) => plot.series[i].stroke(plot, i)}}, cursor: {points: {size: 6}}, hooks: {draw: [singleIntervals]},
  };
}

/** Columns, series and bands of uPlot: all lines over the union of their steps. */
function layout(lines) {
  const steps = [...new Set(lines.flatMap((line) => line.steps))].sort((a, b) => a - b);
  const place = new Map(steps.map((step, i) => [step, i]));
  const columns = [steps], series = [{label: "step", value: (plot, _, i, k) => short(plot.data[0][k ?? plot.data[0].length - 1])}], bands = [];
  const free = lines.some((line) => line.role in ROLES) ? OTHERS : COLOURS;
  let colours = -1;
  for (const line of lines) {
    colours += line.thin ? 0 : 1;
    const stroke = colour(ROLES[line.role] ?? free[colours % free.length]);
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
  return low === null ? plain(value) : `${number(value)} [${number(low)}, ${number(data[column - 2][row])}]`;
}

/** A value without an interval: four digits, or "157 K". */
function plain(value) {
  return Math.abs(value) >= 10000 ? short(value) : String(Number(value.toPrecision(4)));
}

/** Bars of the intervals of lines with one point, whose band has no width. */
function singleIntervals(plot) {
  for (const [upper, lower] of plot.bands.map((band) => band.series)) {
    const rows = plot.data[0].map((_, i) => i).filter((i) => typeof plot.data[lower][i] === "number" && typeof plot.data[upper][i] === "number");
    if (rows.length !== 1) continue;
    const x = plot.valToPos(plot.data[0][rows[0]], "x", true), pen = plot.ctx;
    pen.save();
    pen.strokeStyle = plot.series[lower + 1].stroke(plot, lower + 1);
    pen.lineWidth = 2 * devicePixelRatio;
    pen.beginPath();
    for (const end of [upper, lower]) pen.lineTo(x, plot.valToPos(plot.data[end][rows[0]], "y", true));
    pen.stroke();
    pen.restore();
  }
}

/** 2500000 -> "2.5 M": no digits that say nothing. */
function tick(value) {
  const [size, unit] = [[1e9, " G"], [1e6, " M"], [1e3, " K"], [1, ""]].find(([size]) => Math.abs(value) >= size) ?? [1, ""];
  return `${Number((value / size).toPrecision(6))}${unit}`;
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
