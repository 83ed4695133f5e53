// The page of beasty: choose the players, play, look back. Routes: #/world/beasty and #/world/beasty/GAME.

import {ago, h, load, show} from "/static/elements.js";
import {allAnimals, card, explain, preview, previewWords, setAnimals} from "/static/beasty_cards.js";
import {storedSection} from "/static/beasty_replays.js";
import {graph, mistakeList, scrubber} from "/static/beasty_review.js";
import {Table} from "/static/beasty_table.js";

const API = "/api/worlds/beasty";
const KEYS = [["1 to 9", "go to that move"], ["arrows", "go to the next or previous move"], ["Enter", "play the move"], ["h", "hint"], ["u", "take back"],
  ["Escape", "skip the animation, close an explanation"], ["left and right, after the game", "one turn back or on"]];
let options = null;  // {choices, animals, scorings}
let fresh = null;  // a game that was just started, with the turns to animate

async function send(path, body) {
  const response = await fetch(API + path, {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(body)});
  if (!response.ok) throw new Error(await response.text() || `the server answered ${response.status}`);
  return response.json();
}

export async function page(main, {run, item}) {
  options ??= await load(`${API}/options`);
  setAnimals(options.animals);
  const root = h("div", {class: "bb"});
  let game = null, stored = null;
  if (item) {
    const data = fresh?.id === item ? fresh : await load(`${API}/games/${item}`);
    fresh = null;
    game = new Game(root, item, data);
    document.title = "Beasty Bar";
  } else {
    options = await load(`${API}/options`);
    stored = await storedSection(run);
    await startPage(root, run, stored);
  }
  show(main, root);
  const endExplanations = explain(root);
  await game?.open();
  return {async changed() { await stored?.changed(); }, close() { endExplanations(); game?.close(); stored?.close(); }, name: stored?.name};
}

function openGame(data) {
  fresh = data;
  location.hash = `#/world/beasty/${data.id}`;
}

function stored(name, otherwise) {
  return localStorage.getItem(`beasty ${name}`) ?? otherwise;
}

// --- the start ----------------------------------------------------------------------------------------------

async function startPage(root, run, stored) {
  const saved = await load(`${API}/games`);
  const problem = h("p", {class: "problem", role: "alert"});
  const begin = async (body) => {
    try { openGame(await send("/games", body)); } catch (error) { problem.textContent = error.message; }
  };
  const rival = run ? `run:${run}` : "agent";
  show(root, h("h1", {}, "Beasty Bar"),
    h("p", {}, "Bring your animals into the bar. Whenever five animals stand in line, the first two enter the bar and the last one is out. The most points in the bar win."),
    h("p", {class: "bb-actions"}, h("button", {type: "button", class: "main", onclick: () => begin({seats: ["you", rival]})}, run ? "Play against this run" : "Play against the agent")),
    problem, seatForm(begin, rival), stored.node, savedGames(saved, root, run, stored),
    h("h2", {}, "The animals"), h("ul", {class: "bb-gallery"}, ...allAnimals().map((animal) => h("li", {}, card(animal.name, {large: true}), h("p", {}, animal.text)))));
}

/** The form with all choices: number of seats, players, scoring, deal. */
function seatForm(begin, rival) {
  const seats = ["you", rival, "search:100", "search:100"];
  const box = h("div", {class: "bb-seats"});
  const count = h("select", {id: "bb-count"}, ...[2, 3, 4].map((n) => h("option", {value: n}, `${n} players`)));
  const scoring = h("select", {id: "bb-scoring"}, h("option", {value: "points"}, "most points in the bar"), h("option", {value: "count"}, "most animals in the bar"));
  const deal = h("input", {id: "bb-deal", inputmode: "numeric", pattern: "[0-9]{1,9}", placeholder: "random", size: "10"});
  const fits = (choice) => (choice.players ?? Number(count.value)) === Number(count.value) && (choice.scoring ?? scoring.value) === scoring.value;
  const drawSeats = () => show(box, ...seats.slice(0, Number(count.value)).map((key, seat) => {
    const groups = new Map();
    if (!options.choices.some((choice) => choice.key === seats[seat] && fits(choice))) seats[seat] = "search:100";
    for (const choice of options.choices) {
      const option = h("option", {value: choice.key, selected: choice.key === seats[seat], disabled: !fits(choice)}, fits(choice) ? choice.title : `${choice.title} (other rules)`);
      groups.set(choice.group, [...groups.get(choice.group) ?? [], option]);
    }
    const select = h("select", {id: `bb-seat-${seat}`}, ...[...groups].map(([label, entries]) => h("optgroup", {label}, ...entries)));
    select.addEventListener("change", () => {
      if (select.value === "you") seats.forEach((other, i) => { if (other === "you") seats[i] = "search:100"; });
      seats[seat] = select.value;
      drawSeats();
      document.getElementById(`bb-seat-${seat}`).focus();
    });
    return h("p", {}, h("label", {for: `bb-seat-${seat}`, class: `owner-${seat}`}, `Seat ${seat + 1}`), select);
  }));
  count.addEventListener("change", drawSeats);
  scoring.addEventListener("change", drawSeats);
  drawSeats();
  const start = () => begin({seats: seats.slice(0, Number(count.value)), scoring: scoring.value, deal: deal.value === "" ? null : Number(deal.value)});
  return h("details", {class: "bb-form"}, h("summary", {}, "Choose players and rules"),
    h("form", {onsubmit: (event) => { event.preventDefault(); start(); }},
      h("p", {}, h("label", {for: "bb-count"}, "Players"), count), box,
      h("p", {}, h("label", {for: "bb-scoring"}, "The winner has the"), scoring),
      h("p", {}, h("label", {for: "bb-deal"}, "Number of the deal"), deal),
      h("p", {class: "note"}, "Without a seat for you, the players play the whole game and you look at it."),
      h("button", {type: "submit"}, "Start")));
}

function savedGames(saved, root, run, stored) {
  if (!saved.games.length) return null;
  const items = saved.games.map((game) => {
    const forget = async () => { await send(`/games/${game.id}/delete`, {}); await startPage(root, run, stored); };
    const remove = h("button", {type: "button", onclick: forget}, "Delete");
    if (game.problem) return h("li", {}, h("span", {class: "problem"}, game.problem), remove);
    const title = game.names.map((name, seat) => `${name} ${game.points[seat]}`).join(", ");
    const state = game.over ? `${game.end} ${game.step} turns` : `turn ${game.step + 1}`;
    remove.setAttribute("aria-label", `Delete the game ${title}`);
    return h("li", {}, h("a", {href: `#/world/beasty/${game.id}`}, game.over ? "Replay" : "Continue", h("span", {class: "bb-hidden-text"}, `: ${title}`)),
      h("span", {}, title), h("span", {class: "note"}, `${state}, ${ago(Date.now() / 1000 - game.written)}`), remove);
  });
  return h("section", {}, h("h2", {}, "Saved games"), h("ul", {class: "bb-saved"}, ...items),
    saved.more ? h("p", {class: "note"}, `${saved.more} older games are not listed.`) : null);
}

// --- a game -------------------------------------------------------------------------------------------------

class Game {
  constructor(root, id, data) {
    this.root = root;
    this.id = id;
    this.data = data;
    this.table = new Table(data.names, data.person);
    this.status = h("p", {class: "bb-status", role: "status", "aria-live": "polite"});
    this.problem = h("p", {class: "problem", role: "alert"});
    this.below = h("div", {class: "bb-below"});
    this.live = h("div", {class: "bb-live"});
    this.log = h("ol", {class: "bb-log", tabindex: "0", "aria-label": "turns so far"});
    this.busy = false;
    this.hint = null;
    this.scrub = null;
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.animated = this.switch("animation", still ? "off" : "on", "Animation", () => {});
    this.showChance = this.switch("chance", "off", "Chance to win", () => this.drawLive());
    this.letters = this.switch("letters", "on", "Letter keys", () => {});
    this.keys = (event) => this.key(event);
    document.addEventListener("keydown", this.keys);
    const names = data.names.join(", ");
    show(root, h("h1", {}, "Beasty Bar", h("span", {class: "note"}, ` ${names}`)), this.status, this.problem, this.table.element, this.below, this.live,
      h("details", {class: "bb-more"}, h("summary", {}, "Turns so far"), this.log),
      h("section", {class: "bb-settings", "aria-label": "settings"}, this.animated.element, this.showChance.element, this.letters.element,
        h("details", {}, h("summary", {}, "Keys"), h("dl", {class: "bb-keys"}, ...KEYS.flatMap(([key, text]) => [h("dt", {}, key), h("dd", {}, text)])))));
  }

  switch(name, otherwise, label, changed) {
    const input = h("input", {type: "checkbox", id: `bb-${name}`, checked: stored(name, otherwise) === "on"});
    input.addEventListener("change", () => { localStorage.setItem(`beasty ${name}`, input.checked ? "on" : "off"); changed(); });
    return {input, get on() { return input.checked; }, element: h("label", {class: "bb-switch", for: `bb-${name}`}, input, label)};
  }

  close() {
    document.removeEventListener("keydown", this.keys);
    this.table.skip?.();
    this.scrub?.stop();
    this.closed = true;
  }

  async open() {
    if (this.data.person === null) this.data.turns = [];
    await this.update(this.data);
  }

  /** Show a new state of the game, with the turns that led to it. */
  async update(data) {
    this.data = data;
    this.hint = null;
    this.problem.textContent = "";
    show(this.log, ...data.log.map((text) => h("li", {}, text)));
    if (data.turns.length && this.animated.on) {
      this.table.skip = null;
      show(this.below, h("p", {class: "bb-actions"}, h("button", {type: "button", onclick: () => this.skipAll()}, "Skip")));
      this.skipping = false;
      for (const turn of data.turns) {
        this.status.textContent = turn.text;
        if (!this.skipping) await this.table.play(turn);
        if (this.closed) return;
      }
    }
    this.table.draw(data.position, data.over);
    const said = data.turns.map((turn) => turn.text).join(" ");
    if (data.over) await this.drawEnd(said);
    else this.drawMoves(said);
    await this.drawLive();
    this.root.dataset.step = data.step;
    this.root.dataset.over = data.over;
  }

  skipAll() {
    this.skipping = true;
    this.table.skip?.();
  }

  /** Ask the server for something that changes the game; one request at a time. */
  async act(path, body) {
    if (this.busy) return;
    this.busy = true;
    try {
      await this.update(await send(`/games/${this.id}${path}`, body));
    } catch (error) {
      await this.failed(error);
    }
    this.busy = false;
  }

  /** A request failed: say why, and show the game as the server has it. */
  async failed(error) {
    try { await this.update(await load(`${API}/games/${this.id}`)); } catch { /* the first message says more */ }
    this.problem.textContent = error.message;
  }

  // --- moves ---

  drawMoves(said) {
    const {moves, names, position, person} = this.data;
    if (!moves.length) {
      this.status.textContent = `${said} ${names[position.turn]} has not played yet.`;
      show(this.below, h("p", {class: "bb-actions"}, h("button", {type: "button", onclick: () => this.act("/continue", {})}, `Let ${names[position.turn]} play`), this.undoButton()));
      return;
    }
    this.status.textContent = `${said} Your turn: turn ${this.data.step + 1}.`;
    const groups = position.players[person].hand.map((animal) => h("section", {class: "bb-group", "aria-label": animal}, card(animal, {large: true}),
      h("div", {class: "bb-moves"}, ...moves.flatMap((move, index) => move.card === animal ? [this.moveButton(move, index)] : []))));
    const lost = !this.root.contains(document.activeElement) || document.activeElement === document.body;
    show(this.below, h("h2", {}, "Your hand and your moves"), h("div", {class: "bb-hand"}, ...groups),
      h("p", {class: "bb-actions"}, h("button", {type: "button", class: "hint", onclick: () => this.askHint()}, "Hint"), this.undoButton(),
        h("button", {type: "button", onclick: () => this.confirmResign()}, "Resign")));
    if (lost) this.below.querySelector(".bb-move").focus({preventScroll: true});
  }

  moveButton(move, index) {
    const {names, person} = this.data;
    return h("button", {type: "button", class: "bb-move", "data-action": move.action, "aria-label": `${index + 1}: ${move.text}. ${previewWords(move, names)}`,
      onclick: () => this.act("/move", {action: move.action, step: this.data.step})},
      h("span", {class: "bb-move-text"}, h("span", {class: "bb-number"}, index + 1), move.text, h("span", {class: "bb-value"})), preview(move, names, person));
  }

  undoButton() {
    return this.data.can_undo ? h("button", {type: "button", class: "undo", onclick: () => this.act("/undo", {step: this.data.step})}, "Take back") : null;
  }

  confirmResign() {
    const actions = this.below.querySelector(".bb-actions:last-child");
    show(actions, h("span", {}, "Resign this game?"), h("button", {type: "button", onclick: () => this.act("/resign", {})}, "Yes, resign"),
      h("button", {type: "button", onclick: () => this.drawMoves("")}, "No, play on"));
    actions.querySelector("button").focus();
  }

  async askHint() {
    if (this.busy || this.hint || !this.data.moves.length) return;
    try {
      this.hint = await load(`${API}/games/${this.id}/hint`);
    } catch (error) {
      this.problem.textContent = error.message;
      return;
    }
    const moves = [...this.below.querySelectorAll(".bb-move")];
    for (const button of moves) {
      const value = this.hint.values[button.dataset.action], best = Number(button.dataset.action) === this.hint.best;
      button.classList.toggle("best", best);
      button.querySelector(".bb-value").textContent = [value.text, best ? "best" : ""].filter(Boolean).join(" · ");
    }
    const best = this.data.moves.find((move) => move.action === this.hint.best), value = this.hint.values[this.hint.best];
    const method = value.exact ? "exact" : `by search over ${this.hint.deals} deals`;
    this.status.textContent = moves.length === 1 ? "Hint: there is only one move." : `Hint, ${method}: ${best.text}, ${value.chance === null || value.exact ? value.text : `chance to win ${value.text}`}.`;
  }

  // --- chances, end ---

  async drawLive() {
    if (!this.showChance.on || this.data.over) { show(this.live); return; }
    const review = await load(`${API}/games/${this.id}/review`);
    show(this.live, h("h2", {}, "Chance to win"), this.chanceGraph(review));
  }

  chanceGraph(review) {
    const {names, outcomes, over, scoring, step} = this.data;
    if (scoring !== "points") return h("p", {class: "note"}, "With this scoring the search ranks moves, but gives no chance to win.");
    return graph(review, Math.max(step, 12), over ? outcomes[review.seat] : null, names[review.seat]);
  }

  async drawEnd(said) {
    const {names, position, person, end} = this.data;
    const score = names.map((name, seat) => `${name} ${position.players[seat].points}`).join(", ");
    this.status.textContent = `${said} ${end} Points: ${score}.`;
    const again = h("button", {type: "button", class: "main", onclick: () => { location.hash = "#/world/beasty"; }}, "New game");
    const banner = h("section", {class: "bb-end"}, h("h2", {}, end), h("p", {}, `Points: ${score}. This was deal ${this.data.deal}.`), h("p", {class: "bb-actions"}, again, this.undoButton()));
    const waiting = h("p", {class: "note"}, "The search looks at the moves.");
    show(this.below, banner, waiting);
    if (!this.root.contains(document.activeElement)) again.focus({preventScroll: true});
    try {
      const [history, review] = await Promise.all([load(`${API}/games/${this.id}/history`), load(`${API}/games/${this.id}/review`)]);
      this.drawReview(banner, history, review);
    } catch (error) {
      waiting.textContent = error.message;
    }
  }

  drawReview(banner, history, review) {
    const {names, person, scoring} = this.data;
    const chart = this.chanceGraph(review);
    const draw = (step) => { this.table.draw(history.positions[step], step === history.turns.length); chart.showStep?.(step); };
    this.scrub = scrubber(history, {draw, play: (step) => this.table.play(history.turns[step]), animated: () => this.animated.on});
    const goTo = (step) => { this.scrub.go(step); this.table.element.scrollIntoView({block: "start"}); };
    const tryAgain = async (step) => {
      try { openGame(await send(`/games/${this.id}/retry`, {step})); } catch (error) { this.problem.textContent = error.message; }
    };
    const exact = names.length === 2 ? "; exact once both decks are empty" : "; once all decks are empty its playouts hardly differ, so values jump";
    show(this.below, h("section", {"aria-label": "replay"}, this.scrub.element), banner,
      h("section", {class: "bb-review"}, h("h2", {}, scoring === "points" ? "Chance to win" : "Review"), chart,
        h("p", {class: "note"}, `By search over ${review.deals} deals${exact}. The line is the chance with the best move, red marks are mistakes.`),
        h("h2", {}, "Mistakes"), mistakeList(review, names, person, {goTo, tryAgain})));
    this.root.dataset.reviewed = "true";
  }

  // --- keys ---

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") { this.skipAll(); return; }
    if (event.target.matches?.("input, select, textarea")) return;
    const moves = [...this.below.querySelectorAll(".bb-move")], here = moves.indexOf(document.activeElement);
    const steps = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1};
    if (this.data.over) {
      if (this.scrub && event.key === "ArrowLeft") this.scrub.by(-1);
      else if (this.scrub && event.key === "ArrowRight") this.scrub.by(1);
      else return;
      event.preventDefault();
    } else if (event.key in steps && moves.length && (here >= 0 || event.target === document.body || event.target.id === "main")) {
      event.preventDefault();
      moves[(here + steps[event.key] + moves.length) % moves.length].focus();
    } else if (!this.letters.on) {
      return;
    } else if (/^[1-9]$/.test(event.key) && moves[Number(event.key) - 1]) {
      const byNumber = moves.find((button) => button.querySelector(".bb-number").textContent === event.key);
      byNumber.focus();
    } else if (event.key === "h") {
      this.askHint();
    } else if (event.key === "u" && this.data.can_undo) {
      this.act("/undo", {step: this.data.step});
    }
  }
}
