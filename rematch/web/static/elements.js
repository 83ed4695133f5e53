// Elements of the page. All text from run folders becomes text nodes, never HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An element: h("p", {class: "note"}, "text", child). `key` tells `update` which of several equal elements it is. */
export function h(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "key") made.key = value;
    else if (name.startsWith("on")) listen(made, name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined).map((child) =>
    child instanceof Node ? child : document.createTextNode(String(child))));
  return made;
}

/** One listener per type, so that `update` can give an element another one. */
function listen(node, type, listener) {
  node.listeners ??= {};
  if (!(type in node.listeners)) node.addEventListener(type, (event) => node.listeners[type]?.(event));
  node.listeners[type] = listener;
}

/** A table from a row of headings and rows: lists of cells, which are texts or nodes, or whole rows. */
export function table(headings, rows, label) {
  const head = h("tr", {}, ...headings.map((text) => h("th", {scope: "col"}, text)));
  const body = rows.map((row) => row instanceof Node ? row : h("tr", {}, ...row.map((cell) => h("td", {}, cell))));
  return h("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": label},
    h("table", {}, h("thead", {}, head), h("tbody", {}, ...body)));
}

/** A small curve without axes. */
export function sparkline(values, label) {
  const width = 120, height = 28, pad = 2;
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("class", "spark");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", values.length ? `${label}: from ${number(values[0])} to ${number(values.at(-1))}` : `${label}: no evaluation yet`);
  if (values.length) {
    const low = Math.min(0, ...values), high = Math.max(1, ...values);
    const shown = values.length > 1 ? values : [values[0], values[0]];  // one evaluation: a level line
    const points = shown.map((value, i) => {
      const x = pad + (width - 2 * pad) * i / (shown.length - 1);
      const y = height - pad - (height - 2 * pad) * (value - low) / (high - low || 1);
      return `${x.toFixed(1)},${y.toFixed(1)}`;
    });
    const line = document.createElementNS(SVG, "polyline");
    line.setAttribute("points", points.join(" "));
    svg.append(line);
  }
  return svg;
}

/** A progress bar with its text. */
export function progress(step, total) {
  if (!total) return h("span", {}, step === null ? "-" : short(step));
  const done = Math.min(1, (step ?? 0) / total);
  const bar = h("progress", {max: "1", value: String(done), "aria-label": "progress"});
  return h("span", {class: "progress"}, bar, ` ${short(step ?? 0)} of ${short(total)}`);
}

export function short(value) {
  if (value === null || value === undefined) return "-";
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "K"]]) {
    if (Math.abs(value) >= size) return `${(value / size).toPrecision(3)} ${unit}`;
  }
  return String(value);
}

/** "1 game", "2 games". */
export function count(value, noun) {
  return `${short(value)} ${noun}${value === 1 ? "" : "s"}`;
}

export function number(value, digits = 3) {
  return typeof value === "number" ? value.toFixed(digits) : "-";
}

export function interval(entry, key) {
  const value = entry[key];
  if (typeof value !== "number") return "-";
  const bounds = typeof entry.low === "number" ? ` [${number(entry.low)}, ${number(entry.high)}]` : "";
  return number(value) + bounds;
}

/** "12 min left", without evaluations: of a run that trains; "" where the speed is not known yet. */
export function left(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 1) return "last evaluation";
  if (seconds >= 86400) return `${(seconds / 86400).toFixed(1)} d left`;
  if (seconds >= 3600) return `${Math.floor(seconds / 3600)} h ${Math.round(seconds % 3600 / 60)} min left`;
  return seconds >= 90 ? `${Math.round(seconds / 60)} min left` : `${Math.round(seconds)} s left`;
}

export function ago(seconds) {
  if (seconds === null || seconds === undefined) return "-";
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (seconds >= size) return `${Math.round(seconds / size)} ${unit} ago`;
  }
  return `${Math.round(seconds)} s ago`;
}

export async function load(path) {
  const response = await fetch(path, {headers: {Accept: "application/json"}});
  if (!response.ok) throw new Error(await response.text() || `the server answered ${response.status}`);
  return response.json();
}

/** A text in which no line ends between a number and its percent sign. */
export function unbroken(text) {
  return text.replaceAll(/(\d) %/g, "$1\u00a0%");
}

/** Replace the children of a node. */
export function show(parent, ...children) {
  parent.replaceChildren(...children.filter((child) => child));
}

/**
 * Make the children of a node equal to these, and replace none that stays: a half-done click, the focus, the scroll position
 * and open details survive. Only for parts of a page that are functions of data: no other code may hold the new nodes.
 */
export function update(parent, ...children) {
  const stock = new Map(), name = (node) => `${node.nodeName} ${node.key ?? ""}`;
  for (const old of parent.childNodes) stock.set(name(old), [...stock.get(name(old)) ?? [], old]);
  const wanted = children.filter((child) => child).map((fresh) => {
    const old = stock.get(name(fresh))?.shift();
    if (old) patch(old, fresh);
    return old ?? fresh;
  });
  for (const rest of stock.values()) for (const old of rest) old.remove();
  let place = parent.firstChild;
  for (const node of wanted) {
    if (node === place) place = place.nextSibling;
    else parent.insertBefore(node, place);
  }
}

function patch(old, fresh) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  if (old.renew) { old.renew(fresh); return; }  // it draws itself: a chart
  for (const {name} of [...old.attributes]) if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);  // the user opens details
  for (const {name, value} of fresh.attributes) {
    if (old.getAttribute(name) === value) continue;
    if (name === "style") old.style.cssText = value;  // the content security policy forbids the attribute
    else old.setAttribute(name, value);
  }
  if (fresh.type === "checkbox" && old.checked !== fresh.checked) old.checked = fresh.checked;
  for (const type of Object.keys(old.listeners ?? {})) if (!fresh.listeners?.[type]) old.listeners[type] = null;
  for (const [type, listener] of Object.entries(fresh.listeners ?? {})) listen(old, type, listener);
  update(old, ...fresh.childNodes);
}
