// A game that the user plays against a policy or a scripted player: a form, and the requests of a game.

import {post} from "/static/jobs.js";
import {h, show} from "/static/elements.js";
import {playerOptions} from "/static/replay_lists.js";

/** Who plays in this window: the server holds one game for it. */
export function client() {
  let name = sessionStorage.getItem("played client");
  if (!name) {
    name = [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
    sessionStorage.setItem("played client", name);
  }
  return name;
}

/** A section with a form: your role and your opponent. open({first, seat, act(action), close()}) shows the game. */
export function playYourself(world, run, roles, players, open) {
  const status = h("p", {class: "note", role: "status"}), button = h("button", {type: "submit", class: "primary"}, "Play");
  const role = h("select", {"aria-label": "your role"}, ...roles.map((name) => h("option", {value: name}, name)));
  const opponent = h("select", {"aria-label": "your opponent"});
  const fill = () => opponent.replaceChildren(...playerOptions(players[roles.find((name) => name !== role.value)]));
  role.value = roles.at(-1);
  role.addEventListener("change", fill);
  fill();
  let seed = Math.floor(Math.random() * 1e6);
  const form = h("form", {class: "choices", onsubmit: async (event) => {
    event.preventDefault();
    button.disabled = true;
    status.textContent = "Loading the players.";
    try {
      const first = await post(`/api/worlds/${world}/runs/${run}/play`, {client: client(), role: role.value, opponent: opponent.value, seed: seed++});
      status.textContent = "";
      open(liveGame(world, first, roles.indexOf(role.value)));
    } catch (error) {
      show(status, h("span", {class: "problem"}, error.message));
    }
    button.disabled = false;
  }}, h("label", {}, h("span", {}, "you are"), role), h("label", {}, h("span", {}, "against"), opponent), button);
  return h("section", {}, h("h2", {}, "Play yourself"), form, status);
}

function liveGame(world, first, seat) {
  const address = `/api/worlds/${world}/games/${first.game}`;
  let open = true;
  const close = () => {  // also when the window closes: then only a request with keepalive arrives
    if (open) fetch(`${address}/close`, {method: "POST", keepalive: true, headers: {"Content-Type": "application/json"}, body: JSON.stringify({client: client()})}).catch(() => {});
    open = false;
    removeEventListener("pagehide", close);
  };
  addEventListener("pagehide", close);
  return {first, seat, close, async act(action) {
    const answer = await post(`${address}/act`, {client: client(), action});
    if (answer.over) { open = false; removeEventListener("pagehide", close); }
    return answer;
  }};
}

/** Buttons that can be held, and keys: {node, held(name)}. buttons: [[name, sign, label, keys]]; pressed(name) is called once per press. */
export function heldButtons(buttons, pressed) {
  const down = new Set(), names = new Map(buttons.flatMap(([name, , , keys]) => keys.map((key) => [key, name])));
  const press = (name) => { if (!down.has(name)) { down.add(name); pressed(name); } };
  const nodes = buttons.map(([name, sign, label]) => {
    const button = h("button", {type: "button", "data-button": name, "aria-label": label}, sign);
    button.addEventListener("pointerdown", (event) => { button.setPointerCapture(event.pointerId); press(name); });
    for (const type of ["pointerup", "pointercancel", "lostpointercapture"]) button.addEventListener(type, () => down.delete(name));
    button.addEventListener("click", (event) => { if (!event.detail) { pressed(name); } });  // by keyboard: one press
    return button;
  });
  const key = (event) => {
    const name = names.get(event.key.length === 1 ? event.key.toLowerCase() : event.key);
    if (!name || event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, select, textarea")) return;
    event.preventDefault();
    event.type === "keydown" ? press(name) : down.delete(name);
  };
  const forget = () => down.clear();
  document.addEventListener("keydown", key);
  document.addEventListener("keyup", key);
  addEventListener("blur", forget);
  return {node: h("div", {class: "held-buttons", role: "group", "aria-label": "controls"}, ...nodes), held: (name) => down.has(name),
    close() { document.removeEventListener("keydown", key); document.removeEventListener("keyup", key); removeEventListener("blur", forget); }};
}
