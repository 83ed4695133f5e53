// Recorded games of beasty: those that a run has stored, and replay files of the user. Every position, graph, mistakes.

import {h, load, show} from "/static/elements.js";
import {graph, mistakeList, scrubber} from "/static/beasty_review.js";
import {Table} from "/static/beasty_table.js";
import {replayFile, storedGames} from "/static/replay_lists.js";

const API = "/api/worlds/beasty";

/** The section of the start page: {node, name, changed(), close()}. `run`: identifier, or null. */
export async function storedSection(run) {
  const theatre = h("div", {class: "bb-theatre"});
  let view = null;
  const open = (scene, review) => {
    view?.close();
    view = recorded(theatre, scene, review);
  };
  const fail = (error) => { view?.close(); view = null; show(theatre, h("p", {class: "problem"}, error.message)); };
  const file = replayFile("beasty", (scene) => { list?.clear(); open(scene, () => scene.review); });
  let list = null, name = null;
  if (run) {
    const base = `${API}/runs/${run}`, data = await load(base);
    const seats = Math.max(1, ...data.replays.map((entry) => entry.players?.length ?? 1));
    list = storedGames(Array.from({length: seats}, (_, seat) => `player ${seat + 1}`), (id) =>
      load(`${base}/replays/${id}`).then((scene) => open(scene, () => load(`${base}/replays/${id}/review`)), fail));
    list.update(data.replays);
    name = data.name;
  }
  const lists = h("div", {class: "bb-lists"}, list?.node, file);
  return {
    name, node: h("section", {"aria-label": "recorded games"}, lists, theatre),
    async changed() { if (run) list.update((await load(`${API}/runs/${run}`)).replays); },
    close() { view?.close(); },
  };
}

/** A recorded game in `theatre`; `review` gives the chances and mistakes, or a promise of them. */
function recorded(theatre, scene, review) {
  const table = new Table(scene.names, null), below = h("div", {}, h("p", {class: "note"}, "The search looks at the moves."));
  let chart = null;
  const draw = (step) => { table.draw(scene.positions[step], step === scene.turns.length); chart?.showStep?.(step); };
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const scrub = scrubber(scene, {draw, play: (step) => table.play(scene.turns[step]), animated: () => !still});
  show(theatre, h("p", {class: "caption"}, scene.caption), h("section", {"aria-label": "replay"}, scrub.element), table.element, below);
  scrub.go(0);
  let closed = false;
  (async () => {
    try {
      const found = await review();
      if (closed) return;
      chart = scene.scoring === "points" ? graph(found, Math.max(scene.turns.length, 12), scene.outcomes?.[found.seat] ?? null, scene.names[found.seat])
        : h("p", {class: "note"}, "With this scoring the search ranks moves, but gives no chance to win.");
      const goTo = (step) => { scrub.go(step); theatre.scrollIntoView({block: "start"}); };
      show(below, h("section", {class: "bb-review"}, h("h2", {}, `Chance to win of ${scene.names[found.seat]}`), chart,
        h("p", {class: "note"}, `By search over ${found.deals} deals. The line is the chance with the best move, red marks are mistakes.`),
        h("h2", {}, "Mistakes"), mistakeList(found, scene.names, null, {goTo})));
    } catch (error) {
      show(below, h("p", {class: "problem"}, error.message));
    }
  })();
  return {close() { closed = true; scrub.stop(); table.skip?.(); }};
}
