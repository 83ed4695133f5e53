// A player for replays: play, pause, scrub to an exact step, speed, keyboard; and small graphs over the steps.

import {h} from "/static/elements.js";

const SVG = "http://www.w3.org/2000/svg";
const SPEEDS = [["0.25", "¼ ×"], ["0.5", "½ ×"], ["1", "1 ×"], ["2", "2 ×"], ["4", "4 ×"], ["8", "8 ×"]];

/**
 * Controls over `length` steps of `seconds` each. draw(step) is called for every new step.
 * Returns {controls, show(step), step(), pause(), close()}. Keys: space, arrows, Home, End, comma and full stop.
 */
export function replayPlayer({length, seconds, draw}) {
  let step = 0, playing = false, before = 0, due = 0, frame = 0, speed = 1;
  const last = Math.max(0, length - 1);
  const play = h("button", {type: "button", class: "play", "aria-label": "play"}, "▶");
  const range = h("input", {type: "range", min: "0", max: String(last), value: "0", step: "1", "aria-label": "step"});
  const label = h("output", {class: "step-label"}, "");
  const pace = h("select", {"aria-label": "speed"}, ...SPEEDS.map(([value, text]) => h("option", {value, selected: value === "1"}, text)));
  const back = h("button", {type: "button", "aria-label": "one step back"}, "‹");
  const next = h("button", {type: "button", "aria-label": "one step forward"}, "›");

  function show(wanted) {
    step = Math.min(last, Math.max(0, Math.round(wanted)));
    range.value = String(step);
    range.setAttribute("aria-valuetext", `step ${step} of ${last}`);
    label.textContent = `step ${step} of ${last} · ${(step * seconds).toFixed(seconds < 0.5 ? 2 : 0)} s`;
    draw(step);
  }
  function toggle(on = !playing) {
    playing = on && length > 1;
    if (playing && step === last) show(0);
    play.textContent = playing ? "❚❚" : "▶";
    play.setAttribute("aria-label", playing ? "pause" : "play");
    before = performance.now();
    due = 0;
    cancelAnimationFrame(frame);
    if (playing) frame = requestAnimationFrame(tick);
  }
  function tick(now) {
    due += (now - before) / 1000 * speed / seconds;
    before = now;
    if (due >= 1) { show(step + Math.floor(due)); due %= 1; }
    if (step === last) toggle(false);
    else if (playing) frame = requestAnimationFrame(tick);
  }
  function key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input:not([type=range]):not([type=checkbox]), select, textarea")) return;
    const own = event.target.closest("button, a, summary, input[type=checkbox], [role=button]");
    if (event.key === " " && own && own !== play) return;
    if (event.target === range && event.key.startsWith("Arrow")) return;  // the browser moves it
    const jump = {ArrowLeft: step - 1, ArrowRight: step + 1, ",": step - 1, ".": step + 1, Home: 0, End: last}[event.key];
    if (jump !== undefined) { toggle(false); show(jump); event.preventDefault(); }
    else if (event.key === " ") { toggle(); event.preventDefault(); }
  }
  play.addEventListener("click", () => toggle());
  back.addEventListener("click", () => { toggle(false); show(step - 1); });
  next.addEventListener("click", () => { toggle(false); show(step + 1); });
  range.addEventListener("input", () => { toggle(false); show(Number(range.value)); });
  pace.addEventListener("change", () => { speed = Number(pace.value); });
  document.addEventListener("keydown", key);
  const controls = h("div", {class: "player", role: "group", "aria-label": "replay"}, play, back, next, range, pace, label);
  return {controls, show, step: () => step, redraw: () => draw(step), pause: () => toggle(false),
    close() { toggle(false); document.removeEventListener("keydown", key); }};
}

/** A small graph over the steps: series [{label, values, colour}]; returns {node, show(step)}. */
export function graph(title, series, length) {
  const width = 320, height = 74, pad = 4;
  const known = series.filter((one) => one.values.some((value) => value !== null));
  if (!known.length) return null;
  const all = known.flatMap((one) => one.values).filter((value) => value !== null);
  const low = Math.min(...all), high = Math.max(...all), span = high - low || 1;
  const x = (step) => pad + (width - 2 * pad) * step / Math.max(1, length - 1);
  const y = (value) => height - pad - (height - 2 * pad) * (value - low) / span;
  const svg = element("svg", {viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": `${title}: from ${low.toFixed(2)} to ${high.toFixed(2)}`});
  if (low < 0 && high > 0) svg.append(element("line", {class: "zero", x1: pad, x2: width - pad, y1: y(0), y2: y(0)}));
  for (const one of known) {
    const points = one.values.flatMap((value, step) => value === null ? [] : [`${x(step).toFixed(1)},${y(value).toFixed(1)}`]);  // a seat that waits has no value
    svg.append(element("polyline", {class: one.colour, points: points.join(" ")}));
  }
  const cursor = element("line", {class: "cursor", x1: pad, x2: pad, y1: 0, y2: height});
  svg.append(cursor);
  const numbers = known.map((one) => h("span", {class: `key ${one.colour}`}, ""));
  const node = h("figure", {class: "graph"}, h("figcaption", {}, h("span", {}, title), ...numbers, h("span", {class: "span"}, `${low.toFixed(2)} to ${high.toFixed(2)}`)), svg);
  return {node, show(step) {
    cursor.setAttribute("x1", x(step));
    cursor.setAttribute("x2", x(step));
    known.forEach((one, i) => { numbers[i].textContent = `${one.label} ${one.values[step] === null || one.values[step] === undefined ? "–" : one.values[step].toFixed(2)}`; });
  }};
}

function element(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

/** A canvas that fills the width of its box and redraws when its size or the colours change. */
export function stage(label, ratio, draw) {
  let proportion = ratio;
  const canvas = h("canvas", {role: "img", "aria-label": label, class: "stage"});
  const paint = () => {
    const width = canvas.clientWidth, height = Math.round(width * proportion), scale = Math.min(3, devicePixelRatio || 1);
    if (!width) return;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    const pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    draw(pen, width, height);
  };
  canvas.style.aspectRatio = String(1 / ratio);
  const watch = new ResizeObserver(paint), dark = matchMedia("(prefers-color-scheme: dark)");
  watch.observe(canvas);
  dark.addEventListener("change", paint);
  return {canvas, paint, setRatio(fresh) { proportion = fresh; paint(); }, close() { watch.disconnect(); dark.removeEventListener("change", paint); }};
}

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
