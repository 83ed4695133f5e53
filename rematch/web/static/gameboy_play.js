// A game that a person plays: the emulator runs beside the server; keys go there, the screen comes back.

import {count, h, show} from "/static/elements.js";
import {post} from "/static/jobs.js";
import {replayPlayer} from "/static/replay_player.js";

const WIDTH = 160, HEIGHT = 144;
const SECONDS = 0.4;  // of an action: 24 frames
const SHADES = [[22, 44, 40], [64, 104, 74], [142, 178, 104], [224, 240, 192]];
const KEYS = {ArrowDown: "down", ArrowLeft: "left", ArrowRight: "right", ArrowUp: "up", s: "down", a: "left", d: "right", w: "up",
  j: "a", x: "a", " ": "a", k: "b", z: "b", Enter: "start"};
const NAMES = {down: "▼", left: "◀", right: "▶", up: "▲", a: "A", b: "B", start: "Start"};
const LABELS = {down: "down", left: "left", right: "right", up: "up", a: "button A", b: "button B", start: "start"};

/** Who plays in this window: the server holds one game for it. */
function client() {
  let name = sessionStorage.getItem("gameboy client");
  if (!name) {
    name = [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
    sessionStorage.setItem("gameboy client", name);
  }
  return name;
}

/** The screen with its buttons: {node, open(body, title), close()}. */
export function console_(base, actions, mostAtOnce) {
  let session = null, waiting = [], busy = false;
  let replay = null;  // a shown replay: {id, actions, at, wanted, player}; at, wanted: numbers of actions, null once the user plays
  const screen = h("canvas", {class: "gb-screen", width: WIDTH, height: HEIGHT, role: "img", tabindex: "0", "aria-label": "screen of the game; keys: arrows, x for A, z for B, Enter for start"});
  const title = h("h2", {}, "Screen"), facts = h("p", {class: "note", role: "status"}), problem = h("p", {class: "problem", role: "alert"});
  const pad = h("div", {class: "gb-pad"}, ...["up", "left", "right", "down", "b", "a", "start"].map((name) =>
    h("button", {type: "button", class: `gb-${name}`, "data-button": name, "aria-label": LABELS[name], disabled: true, onclick: () => press(name)}, NAMES[name])));
  const controls = h("div", {class: "gb-replay"});
  const help = h("p", {class: "note"}, "Choose a dot or a flag on the map, or a line of the lists. The game is yours from there: the training does not notice.");
  const node = h("section", {class: "gb-console", "aria-label": "game"}, title, screen, controls, facts, problem, pad, help);

  function draw(state) {
    const bytes = Uint8Array.from(atob(state.screen), (character) => character.charCodeAt(0));
    const image = new ImageData(WIDTH, HEIGHT);
    for (let pixel = 0; pixel < WIDTH * HEIGHT; pixel++) {
      image.data.set([...SHADES[bytes[pixel >> 2] >> 2 * (pixel & 3) & 3], 255], 4 * pixel);
    }
    screen.getContext("2d").putImageData(image, 0, 0);
    screen.dataset.place = state.place.join();
    screen.dataset.step = replay?.at ?? "";  // of a shown replay
    facts.textContent = `${state.map} ${state.place[2]}, ${state.place[1]} · ${count(state.badges, "badge")} · level ${state.level} · ${count(state.milestones.length, "milestone")} · ${count(state.actions, "action")}`
      + (state.finished ? " · the hall of fame" : "") + (state.note ? ` · ${state.note}` : "");
  }

  function enable(on) {
    pad.querySelectorAll("button").forEach((button) => { button.disabled = !on; });
  }

  function end(error) {
    session = null;
    waiting = [];
    enable(false);
    problem.textContent = error.message;
  }

  async function press(name) {
    if (!session || waiting.length >= mostAtOnce) return;
    if (replay) { replay.player.pause(); replay.at = replay.wanted = null; }
    waiting.push(actions.indexOf(name));
    if (busy) return;
    busy = true;
    while (session && waiting.length) {
      const sent = waiting.splice(0, mostAtOnce), here = session;
      try {
        const state = await post(`/api/worlds/gameboy/sessions/${here}/press`, {client: client(), actions: sent});
        if (session === here) draw(state);
      } catch (error) {
        if (session === here) end(error);
      }
    }
    busy = false;
  }

  screen.addEventListener("keydown", (event) => {
    const name = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!name || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();  // a shown replay has keys of its own
    press(name);
  });

  function endReplay() {
    replay?.player.close();
    replay = null;
    show(controls);
  }

  /** Show a stored game: its controls go to any action; a key or a button plays on from there. */
  async function openReplay(id, text) {
    await open({replay: id, step: 0}, text, (state) => {
      const player = replayPlayer({length: state.recorded.length + 1, seconds: SECONDS, draw(step) { if (replay) { replay.wanted = step; follow(); } }});
      replay = {id, actions: state.recorded, at: 0, wanted: 0, following: false, player};
      screen.dataset.step = "0";
      show(controls, player.controls);
      player.show(0);
    });
  }

  /** Bring the emulator to the wanted step of the replay: by its next actions, or from its start. */
  async function follow() {
    const here = replay;
    if (here.following) return;
    here.following = true;
    try {
      while (replay === here && here.wanted !== null && here.at !== here.wanted) {
        const step = here.wanted, near = here.at !== null && session && step > here.at && step - here.at <= mostAtOnce;
        const state = near ? await post(`/api/worlds/gameboy/sessions/${session}/press`, {client: client(), actions: here.actions.slice(here.at, step)})
          : await post(`${base}/open`, {client: client(), replay: here.id, step});
        if (replay !== here) break;
        session = state.session;
        here.at = here.wanted === null ? null : step;
        problem.textContent = "";
        draw(state);
        enable(true);
      }
    } catch (error) {
      if (replay === here) { here.player.pause(); here.at = here.wanted = null; end(error); }
    }
    here.following = false;
  }

  async function open(body, text, opened = () => {}) {
    endReplay();
    session = null;
    waiting = [];
    problem.textContent = "";
    title.textContent = text;
    facts.textContent = "starting the emulator";
    enable(false);
    try {
      const state = await post(`${base}/open`, "replay" in body ? {client: client(), ...body} : {client: client(), savestate: null, game: null, ...body});
      session = state.session;
      draw(state);
      enable(true);
      opened(state);
    } catch (error) {
      facts.textContent = "";
      end(error);
    }
  }

  function leave() {  // also when the window closes: then only a request with keepalive arrives
    if (!session) return;
    fetch(`/api/worlds/gameboy/sessions/${session}/close`, {method: "POST", keepalive: true, headers: {"Content-Type": "application/json"}, body: JSON.stringify({client: client()})}).catch(() => {});
    end(new Error(""));
  }
  addEventListener("pagehide", leave);
  return {node, open, openReplay, focus: () => screen.focus(), close() { removeEventListener("pagehide", leave); endReplay(); leave(); }};
}
