// The lists beside a replay: stored games of a run, and a form for a new game, which is played in a job.

import {runJob} from "/static/jobs.js";
import {h, short, show, update} from "/static/elements.js";

const MOST_FILE = 1 << 20;  // bytes

/** The stored games as a list of buttons; `filter` chooses by outcome. Returns {node, update(entries)}. */
export function storedGames(roles, choose) {
  let entries = [], chosen = null;
  const filter = h("select", {"aria-label": "show games by outcome", onchange: () => fill()},
    h("option", {value: ""}, "all games"),
    ...roles.map((role, seat) => h("option", {value: String(seat)}, `games the ${role} loses`)));
  const list = h("ol", {class: "games", reversed: true});
  const fill = () => {
    const seat = filter.value;
    const shown = entries.filter((entry) => seat === "" || (entry.outcome && entry.outcome[Number(seat)] < 0.25)).reverse();
    update(list, ...shown.map((entry) => h("li", {key: entry.id}, entry.problem
      ? h("span", {class: "problem"}, `${entry.id}: ${entry.problem}`)
      : h("button", {type: "button", "data-replay": entry.id, "aria-pressed": String(entry.id === chosen), onclick: () => pick(entry.id)},
        h("b", {}, `${short(entry.step)} steps trained`), ` ${entry.caption}`))));
    if (!shown.length) update(list, h("li", {class: "note"}, entries.length ? "No stored game ended so." : "No game is stored yet: a run stores one at every evaluation."));
  };
  const pick = (id) => { chosen = id; fill(); choose(id); };
  return {
    node: h("section", {}, h("h2", {}, "Stored games"), roles.length > 1 ? filter : null, list),
    update(fresh) { entries = fresh; fill(); },
    newest: () => entries.filter((entry) => !entry.problem).at(-1)?.id ?? null,
    pick, clear() { chosen = null; fill(); },
  };
}

/** Options of a select, one group per run. */
export function playerOptions(players) {
  const groups = new Map();
  for (const one of players) groups.set(one.group, [...groups.get(one.group) ?? [], h("option", {value: one.id}, one.label)]);
  return [...groups].map(([label, options]) => h("optgroup", {label}, ...options));
}

/** A button that shows a replay file of the user: the server gets its text. open(scene) draws it. */
export function replayFile(world, open) {
  const status = h("p", {class: "note", role: "status"});
  const input = h("input", {type: "file", accept: ".replay", "aria-label": "replay file", class: "replay-file"});
  input.addEventListener("change", async () => {
    const [file] = input.files;
    if (!file) return;
    try {
      if (file.size > MOST_FILE) throw new Error(`${file.name} is larger than 1 MiB`);
      const scene = await runJob(`/api/worlds/${world}/file`, {file: await file.text()}, status);
      if (scene) open(scene);
    } catch (error) {
      show(status, h("span", {class: "problem"}, error.message));
    }
    input.value = "";
  });
  return h("section", {}, h("h2", {}, "Replay file"), h("label", {}, h("span", {class: "note"}, "Show a game from a file, such as one of ", h("code", {}, "rematch replay --out game.replay"), ": "), input), status);
}

/** A form for a new game: a player for each role and the wanted outcome. play(body, status) starts it. */
export function newGame(roles, players, outcomes, play) {
  const selects = roles.map((role) => h("select", {"aria-label": `${role} of the new game`}, ...playerOptions(players[role])));
  const outcome = h("select", {"aria-label": "outcome of the new game"}, h("option", {value: ""}, "any outcome"), ...outcomes.map((text) => h("option", {value: text}, text)));
  const status = h("p", {class: "note", role: "status"});
  const button = h("button", {type: "submit", class: "primary"}, "Play");
  let seed = 0;
  const form = h("form", {class: "choices new-game", onsubmit: async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      await play({players: selects.map((select) => select.value), choose: outcome.value, seed: seed++}, status);
    } catch (error) {
      show(status, h("span", {class: "problem"}, error.message));
    }
    button.disabled = false;
  }}, ...roles.map((role, i) => h("label", {}, h("span", {}, role), selects[i])), h("label", {}, h("span", {}, "outcome"), outcome), button);
  return h("section", {}, h("h2", {}, "Watch a new game"), form, status);
}

/** A link that saves a new game as a file; stored games lie in the run's folder already. */
export function saveLink(scene) {
  if (!scene.file) return null;
  const address = URL.createObjectURL(new Blob([scene.file], {type: "application/json"}));
  return h("p", {class: "note"}, h("a", {href: address, download: "game.replay"}, "Save this game"), " as a file for ", h("code", {}, "rematch replay"));
}

/** The players of a game with their results. */
export function playerTable(scene) {
  return h("ul", {class: "players"}, ...scene.players.map((player, seat) =>
    h("li", {}, h("span", {class: `dot seat${seat}`, "aria-hidden": "true"}), h("b", {}, player.role), ` ${player.name.startsWith(player.role) ? player.name.slice(player.role.length).trim() : player.name}`,
      scene.end === "decided" ? (scene.outcome[seat] > 0.75 ? " – won" : scene.outcome[seat] < 0.25 ? " – lost" : " – drew") : "")));
}
