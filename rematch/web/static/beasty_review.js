// After the game of beasty: the chance to win as a graph, mistakes with their positions, and a scrubber over the game.

import {h, show} from "/static/elements.js";
import {preview, token} from "/static/beasty_cards.js";

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 200, LEFT = 52, RIGHT = 12, TOP = 10, BOTTOM = 26;
const WIDTH = () => innerWidth < 700 ? 330 : 640;  // the letters of a picture of 640 cannot be read on a phone

function node(tag, attributes, text = "") {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
}

/** The chance to win at every decision. review: {chances, mistakes}; last: steps of the game; outcome: 0 to 1, or null. */
export function graph(review, last, outcome, name) {
  const points = review.chances.map(({step, best}) => [step, best]);
  if (outcome !== null) points.push([last, outcome]);
  const width = WIDTH(), x = (step) => LEFT + (width - LEFT - RIGHT) * step / Math.max(1, last), y = (chance) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - chance);
  const percent = (chance) => `${Math.round(100 * chance)} %`;
  const text = points.length ? points.map(([step, chance]) => `turn ${step + 1} ${percent(chance)}`).join(", ") : "no decision yet";
  const svg = node("svg", {viewBox: `0 0 ${width} ${HEIGHT}`, class: "bb-graph", role: "img", "aria-label": `Chance to win of ${name}: ${text}`});
  for (const chance of [0, 0.25, 0.5, 0.75, 1]) {
    svg.append(node("line", {x1: LEFT, x2: width - RIGHT, y1: y(chance), y2: y(chance), class: chance === 0.5 ? "middle" : "grid"}));
    svg.append(node("text", {x: LEFT - 6, y: y(chance) + 4, "text-anchor": "end"}, percent(chance)));
  }
  const every = Math.max(1, Math.ceil(last * 50 / width));
  for (let step = 0; step < last; step += every) svg.append(node("text", {x: x(step), y: HEIGHT - 8, "text-anchor": "middle"}, step + 1));
  svg.append(node("text", {x: LEFT - 6, y: HEIGHT - 8, "text-anchor": "end"}, "turn"));
  svg.append(node("line", {x1: 0, x2: 0, y1: TOP, y2: HEIGHT - BOTTOM, class: "now", visibility: "hidden"}));
  svg.append(node("polyline", {points: points.map(([step, chance]) => `${x(step).toFixed(1)},${y(chance).toFixed(1)}`).join(" ")}));
  const wrong = new Map(review.mistakes.map((mistake) => [mistake.step, mistake]));
  for (const {step, best, played} of review.chances) {
    if (wrong.has(step)) {
      svg.append(node("line", {x1: x(step), x2: x(step), y1: y(best), y2: y(played), class: "loss"}));
      svg.append(node("circle", {cx: x(step), cy: y(played), r: 5, class: "mistake"}));
    }
    svg.append(node("circle", {cx: x(step), cy: y(best), r: 3.5, class: "point"}));
  }
  svg.showStep = (step) => {
    const line = svg.querySelector(".now");
    line.setAttribute("x1", x(step));
    line.setAttribute("x2", x(step));
    line.setAttribute("visibility", "visible");
  };
  return svg;
}

/** The mistakes, each with its position and a button that plays on from there. */
export function mistakeList(review, names, person, {goTo, tryAgain}) {
  const whose = person === null ? names[review.seat] : "you";
  if (!review.mistakes.length) return h("p", {}, `The search found no mistake of ${whose}.`);
  return h("ol", {class: "bb-mistakes"}, ...review.mistakes.map((mistake) => {
    const line = mistake.position.line, hand = mistake.position.players[review.seat].hand ?? [];
    const title = `Turn ${mistake.step + 1}: ${mistake.played.move}`;
    return h("li", {}, h("h3", {}, title),
      h("p", {}, `${valueText(mistake.played)}. Better was `, h("strong", {}, mistake.best.move), `: ${valueText(mistake.best).toLowerCase()}.`),
      h("p", {class: "bb-row"}, h("span", {class: "bb-label"}, "line"), ...line.map((entry) => token(entry, names, person)), line.length ? null : "empty"),
      h("p", {class: "bb-row"}, h("span", {class: "bb-label"}, "hand"), ...hand.map((animal) => token({owner: review.seat, animal}, names, person))),
      h("p", {class: "bb-row"}, h("span", {class: "bb-label"}, "after the better move"), preview(mistake.best.after, names, person)),
      h("p", {class: "bb-actions"}, h("button", {type: "button", "aria-label": `Show turn ${mistake.step + 1}`, onclick: () => goTo(mistake.step)}, "Show it"),
        person === null ? null : h("button", {type: "button", class: "again", "aria-label": `Try again from turn ${mistake.step + 1}`, onclick: () => tryAgain(mistake.step)}, "Try again from here")));
  }));
}

function valueText(value) {
  if (value.exact) return `It ${value.text}, exactly`;
  return value.chance === null ? `Its ${value.text}` : `Chance to win ${value.text}`;
}

/** A scrubber over the positions of a game. draw(step) shows a position; play(step) animates the turn of a step. */
export function scrubber(history, {draw, play, animated}) {
  const last = history.positions.length - 1;
  let step = last, running = false;
  const range = h("input", {type: "range", min: "0", max: String(last), value: String(last), step: "1", id: "bb-scrub", "aria-label": "position of the game"});
  const text = h("p", {class: "bb-scrub-text", role: "status"});
  const run = h("button", {type: "button", "aria-pressed": "false"}, "Play");
  const tell = () => {
    range.value = String(step);
    const label = step ? `After turn ${step} of ${last}: ${history.turns[step - 1].text}` : `Before the first of ${last} turns.`;
    range.setAttribute("aria-valuetext", label);
    text.textContent = label;
  };
  const go = (wanted) => {
    step = Math.max(0, Math.min(last, wanted));
    tell();
    draw(step);
  };
  const stop = () => { running = false; run.textContent = "Play"; run.setAttribute("aria-pressed", "false"); };
  const start = async () => {
    running = true;
    run.textContent = "Pause";
    run.setAttribute("aria-pressed", "true");
    if (step === last) go(0);
    while (running && step < last) {
      if (animated()) await play(step);
      else await new Promise((done) => setTimeout(done, 900));
      if (running) go(step + 1);
    }
    stop();
  };
  const button = (label, title, wanted) => h("button", {type: "button", "aria-label": title, onclick: () => { stop(); go(wanted()); }}, label);
  range.addEventListener("input", () => { stop(); go(Number(range.value)); });
  run.addEventListener("click", () => { if (running) stop(); else start(); });
  const element = h("div", {class: "bb-scrubber"}, h("div", {class: "bb-actions"},
    button("|◀", "first position", () => 0), button("◀", "one turn back", () => step - 1), run, button("▶", "one turn on", () => step + 1), button("▶|", "last position", () => last)), range, text);
  tell();
  return {element, go: (wanted) => { stop(); go(wanted); }, stop, by: (change) => { stop(); go(step + change); }};
}
