// Cards of beasty: drawings, explanations on hover, focus or tap, and small rows of animals.

import {h} from "/static/elements.js";

const SVG = "http://www.w3.org/2000/svg";
const animals = new Map();  // name -> {name, strength, points, text}

export function setAnimals(list) {
  for (const animal of list) animals.set(animal.name, animal);
}

export function allAnimals() {
  return [...animals.values()];
}

/** The drawing of an animal; without a title of its own, because its name stands beside it. */
export function art(name) {
  const svg = document.createElementNS(SVG, "svg"), use = document.createElementNS(SVG, "use");
  svg.setAttribute("viewBox", "0 0 100 100");
  svg.setAttribute("class", "bb-art");
  svg.setAttribute("aria-hidden", "true");
  use.setAttribute("href", `/static/beasty_animals.svg#${name}`);
  svg.append(use);
  return svg;
}

/** A whole card: strength, drawing, name, points, owner. It is a button: its explanation opens on focus and tap. */
export function card(name, {owner = null, names = [], large = false} = {}) {
  const {strength, points} = animals.get(name);
  const whose = owner === null ? "" : `, ${names[owner]}`;
  return h("button", {type: "button", class: `bb-card${large ? " large" : ""}${owner === null ? "" : ` owner-${owner}`}`, "data-animal": name,
    "aria-label": `${name}, strength ${strength}, ${points} points${whose}`},
    h("span", {class: "bb-strength"}, strength), art(name), h("span", {class: "bb-name"}, name),
    h("span", {class: "bb-points", "aria-hidden": "true"}, "●".repeat(points)),
    owner === null ? null : h("span", {class: "bb-owner"}, names[owner]));
}

/** A small animal in a ring of its owner's colour; the person's animals have a star. */
export function token(entry, names, person) {
  const mine = entry.owner === person;
  return h("span", {class: `bb-token owner-${entry.owner}${mine ? " mine" : ""}`, title: `${entry.animal}, ${names[entry.owner]}`}, art(entry.animal));
}

/** "your lion", "agent's zebra": the cards of a list in words. */
export function words(entries, names) {
  return entries.map(({owner, animal}) => names[owner] === "you" ? `your ${animal}` : `${names[owner]}'s ${animal}`).join(", ");
}

/** The line that a move leads to: tokens from the gate on, then what went into the bar and what went out. */
export function preview(result, names, person) {
  const row = (title, kind, entries) => entries.length
    ? h("span", {class: `bb-row ${kind}`}, h("span", {class: "bb-label"}, title), ...entries.map((entry) => token(entry, names, person))) : null;
  return h("span", {class: "bb-preview", "aria-hidden": "true"},
    row("line", "line", result.line) ?? h("span", {class: "bb-row"}, "empty line"), row("in", "in", result.in), row("out", "out", result.out));
}

export function previewWords(result, names) {
  const parts = [`Line: ${words(result.line, names) || "empty"}`];
  if (result.in.length) parts.push(`Into the bar: ${words(result.in, names)}`);
  if (result.out.length) parts.push(`Out: ${words(result.out, names)}`);
  return `${parts.join(". ")}.`;
}

// --- explanations -----------------------------------------------------------------------------------------

/** Explanations of the cards below `root`: on hover, focus and tap; Escape closes. Returns a function that ends it. */
export function explain(root) {
  const tip = h("div", {class: "bb-tip", role: "tooltip", id: "bb-tip", hidden: true});
  document.body.append(tip);
  let shown = null;
  const close = () => {
    shown?.removeAttribute("aria-describedby");
    shown = null;
    tip.hidden = true;
  };
  const open = (target) => {
    const animal = animals.get(target.dataset.animal);
    close();
    tip.replaceChildren(h("strong", {}, `${animal.name} · strength ${animal.strength} · ${animal.points} points`), h("span", {}, animal.text));
    tip.hidden = false;
    shown = target;
    target.setAttribute("aria-describedby", "bb-tip");
    place();
  };
  const place = () => {
    if (!shown) return;
    const box = shown.getBoundingClientRect(), width = tip.offsetWidth, height = tip.offsetHeight;
    const left = Math.max(8, Math.min(box.left + box.width / 2 - width / 2, document.documentElement.clientWidth - width - 8));
    const above = box.top - height - 8;
    tip.style.left = `${left}px`;
    tip.style.top = `${above > 50 ? above : box.bottom + 8}px`;
  };
  const over = (event) => {
    const target = event.target.closest?.("[data-animal]");
    if (target && root.contains(target)) open(target);
    else if (!tip.contains(event.target)) close();
  };
  const out = (event) => { if (!root.contains(event.relatedTarget)) close(); };
  const key = (event) => { if (event.key === "Escape") close(); };
  const listeners = [[document, "pointerover", over], [root, "focusin", over], [root, "focusout", out], [root, "click", over], [document, "keydown", key], [window, "scroll", place]];
  for (const [target, type, listener] of listeners) target.addEventListener(type, listener);
  return () => {
    for (const [target, type, listener] of listeners) target.removeEventListener(type, listener);
    tip.remove();
  };
}
