// The page of runs whose world has no page of its own: stored games step by step, as numbers and as text.

import {h, load, show} from "/static/elements.js";
import {runJob} from "/static/jobs.js";
import {playerTable, replayFile, storedGames} from "/static/replay_lists.js";
import {graph, replayPlayer} from "/static/replay_player.js";

const MOST_GRAPHS = 8;  // observed numbers of a seat that are drawn

export async function page(main, {run}) {
  const base = `/api/worlds/other/runs/${run}`;
  const data = await load(base);
  const theatre = h("section", {class: "theatre", "aria-label": "game"}, h("p", {class: "note"}, data.replays.length ? "Choose a game." : "No game is stored yet: a run stores one at every evaluation."));
  const status = h("p", {class: "note", role: "status"});
  let game = null, wanted = 0;
  const open = (scene) => { game?.close(); game = showGame(theatre, scene); };
  const stored = storedGames([], async (id) => {
    const mine = ++wanted;
    try {
      const scene = await runJob(`${base}/show`, {replay: id}, status);
      if (scene && mine === wanted) open(scene);
    } catch (error) {
      show(status, h("span", {class: "problem"}, error.message));
    }
  });
  const file = replayFile("other", (scene) => { wanted += 1; stored.clear(); open(scene); });
  show(main, h("h1", {}, `${data.name}: replays`), h("div", {class: "replay-page"}, theatre, h("div", {class: "side"}, stored.node, status, file)));
  document.title = `${data.name}: replays · Rematch`;
  stored.update(data.replays);
  if (stored.newest()) stored.pick(stored.newest());
  return {async changed() { stored.update((await load(base)).replays); }, close() { game?.close(); }, name: data.name};
}

function showGame(theatre, scene) {
  const seats = scene.players.map((player, seat) => ({...player, seat, colour: seat < 2 ? `seat${seat}` : "plain"}));
  const text = scene.texts.length ? h("pre", {class: "log", tabindex: "0", "aria-label": "the game as text"}) : null;
  const state = h("dl", {class: "state-list"}), observed = h("p", {class: "note observed"});
  const label = (one) => scene.players.length > 1 ? one.role : "";
  const line = (one, values) => ({label: label(one), values, colour: one.colour});
  const graphs = [
    graph("value", seats.flatMap((one) => scene.values[one.seat] ? [line(one, scene.values[one.seat])] : []), scene.length),
    ...scene.actions[0].names.flatMap((name, k) => scene.actions[0].kind === "discrete" ? [] : [graph(`action: ${name}`, seats.map((one) => line(one, scene.actions[one.seat].rows.map((row) => row[k]))), scene.length)]),
    ...changing(scene).map(([name, values]) => graph(`observed: ${name}`, [line(seats[0], values)], scene.length)),
  ].filter((one) => one);
  const player = replayPlayer({length: scene.length, seconds: scene.seconds, draw(step) {
    if (text) text.textContent = scene.texts[step][scene.acting[step][0] ?? 0];
    graphs.forEach((one) => one.show(step));
    const seat = scene.acting[step][0] ?? 0, numbers = scene.observed[seat][step];
    observed.textContent = `${label(seats[seat])} observes ${scene.columns[seat].map((name, k) => `${name} ${numbers[k] ?? "–"}`).join(", ")}${scene.more[seat] ? `, and ${scene.more[seat]} more numbers` : ""}`.trim();
    show(state, ...seats.flatMap((one) => [h("dt", {}, scene.players.length > 1 ? `${one.role} (seat ${one.seat + 1})` : one.role), h("dd", {}, words(scene, one.seat, step))]));
  }});
  show(theatre, h("p", {class: "caption"}, `${scene.title}: ${scene.caption}`), playerTable(scene), text, player.controls, state, observed, h("div", {class: "graphs"}, ...graphs.map((one) => one.node)));
  player.show(0);
  return {close() { player.close(); }};
}

/** The first numbers that change in this game, as the first seat observes them: [[name, values]]. */
function changing(scene) {
  const columns = scene.columns[0].map((name, k) => [name, scene.observed[0].map((row) => row[k] ?? null)]);
  return columns.filter(([, values]) => new Set(values).size > 1).slice(0, MOST_GRAPHS);
}

/** What a seat does at a step; a seat that is not to move waits. */
function words(scene, seat, step) {
  if (!scene.acting[step].includes(seat)) return "waits";
  const {kind, names, rows} = scene.actions[seat], action = rows[step];
  if (kind !== "discrete") return names.map((name, k) => `${name} ${action[k].toFixed(2)}`).join(", ");
  const prob = scene.probs[seat]?.[step]?.[action];
  return names[action] + (typeof prob === "number" ? ` (${Math.round(100 * prob)} %)` : "");
}
