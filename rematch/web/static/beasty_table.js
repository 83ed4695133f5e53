// The table of beasty: gate, line, players. Changes of the line are animated unless that is switched off.

import {h, show} from "/static/elements.js";
import {art, card} from "/static/beasty_cards.js";

const PLACES = 5;
const FRAME = 650;  // milliseconds of one stage of a turn

export class Table {
  /** names by seat; person: seat of the user, or null. */
  constructor(names, person) {
    this.names = names;
    this.person = person;
    this.line = h("ol", {class: "bb-line", "aria-label": "line, from the gate on"});
    this.stage = h("p", {class: "bb-stage", "aria-hidden": "true"});
    this.players = h("div", {class: "bb-players"});
    this.cards = new Map();  // owner and animal -> list item
    this.skip = null;  // ends the present animation
    this.element = h("section", {class: `bb-table players-${names.length}`, "aria-label": "table"},
      h("div", {class: "bb-felt"}, h("div", {class: "bb-gate", "aria-hidden": "true"}, "GATE"), this.line, h("div", {class: "bb-exit", "aria-hidden": "true"}, "OUT")),
      this.players, this.stage);
  }

  /** Show a position at once. */
  draw(position, over = false) {
    this.stage.textContent = "";
    this.setLine(position.line, false);
    show(this.players, ...position.players.map((player, seat) => this.player(player, seat, over ? -1 : position.turn)));
  }

  /** Show the stages of a turn one after another. */
  async play(turn) {
    for (const frame of turn.frames) {
      this.stage.textContent = `${this.names[frame.owner]}: ${frame.animal} ${frame.stage}`;
      this.setLine(frame.line, true);
      if (await this.wait(FRAME)) return;
    }
    await this.wait(FRAME / 2);
  }

  /** Wait; true where the user has asked to skip. */
  wait(time) {
    return new Promise((done) => {
      const timer = setTimeout(() => done(false), time);
      this.skip = () => { clearTimeout(timer); done(true); };
    });
  }

  setLine(line, animated) {
    const before = new Map([...this.cards].map(([key, item]) => [key, item.getBoundingClientRect()]));
    const next = new Map();
    for (const {owner, animal} of line) {
      const key = `${owner} ${animal}`;
      next.set(key, this.cards.get(key) ?? h("li", {}, card(animal, {owner, names: this.names})));
    }
    const gone = [...this.cards].filter(([key]) => !next.has(key));
    const empty = Array.from({length: Math.max(0, PLACES - next.size)}, (_, i) => h("li", {class: "bb-place", "aria-hidden": "true"},
      h("span", {}, next.size + i === PLACES - 1 ? "out" : next.size + i < 2 ? "bar" : "")));
    this.cards = next;
    show(this.line, ...next.values(), ...empty);
    if (!next.size) this.line.append(h("li", {class: "bb-hidden-text"}, "empty"));
    if (animated) this.animate(before, gone);
  }

  animate(before, gone) {
    const options = {duration: FRAME * 0.6, easing: "ease-in-out"};
    for (const [key, item] of this.cards) {
      const old = before.get(key), now = item.getBoundingClientRect();
      if (!old) item.animate([{transform: "translateY(40px) scale(.6)", opacity: 0}, {transform: "none", opacity: 1}], options);
      else if (old.left !== now.left) item.animate([{transform: `translateX(${old.left - now.left}px)`}, {transform: "none"}], options);
    }
    for (const [key, item] of gone) {
      const old = before.get(key), place = this.line.getBoundingClientRect();
      const ghost = item.cloneNode(true);
      ghost.className = "bb-ghost";
      ghost.setAttribute("aria-hidden", "true");
      for (const button of ghost.querySelectorAll("button")) button.tabIndex = -1;
      ghost.style.left = `${old.left - place.left}px`;
      this.line.append(ghost);
      ghost.animate([{transform: "none", opacity: 1}, {transform: "translateY(30px) rotate(8deg)", opacity: 0}], options).finished.finally(() => ghost.remove());
    }
  }

  /** One player: name, points, and the animals in the bar and out. */
  player(player, seat, turn) {
    const name = this.names[seat], minis = (title, list) => h("p", {class: "bb-pile"}, h("span", {class: "bb-label"}, title),
      ...(list.length ? list.map((animal) => h("button", {type: "button", class: "bb-mini", "data-animal": animal, "aria-label": `${animal}, ${title}`}, art(animal)))
        : [h("span", {class: "bb-none"}, "none")]));
    const counts = [`${player.cards} in hand`, `${player.deck} in deck`];
    return h("section", {class: `bb-player owner-${seat}${seat === turn ? " turn" : ""}`, "aria-label": name},
      h("h2", {}, h("span", {class: "bb-who"}, name), h("span", {class: "bb-score"}, `${player.points} points`)),
      h("p", {class: "bb-counts"}, counts.join(", "), seat === turn ? h("span", {class: "bb-turn"}, "to play") : null),
      minis("bar", player.bar), minis("out", player.out),
      player.hand && seat !== this.person ? minis("hand", player.hand) : null);
  }
}
