// The page of lattice: exact value and regret by cells, games from any start, optimal play beside the trained one.

import {h, load, number, show} from "/static/elements.js";
import {robot, disc, stroke} from "/static/pursuit.js";
import {runJob} from "/static/jobs.js";
import {heldButtons, playYourself} from "/static/played_game.js";
import {newGame, playerOptions, playerTable, replayFile, saveLink, storedGames} from "/static/replay_lists.js";
import {colour, graph, replayPlayer, stage} from "/static/replay_player.js";

const MOVES = [["left", "◀ left", "turn left and move", ["ArrowLeft", "a"]], ["straight", "▲ straight", "move straight on", ["ArrowUp", "w"]], ["right", "right ▶", "turn right and move", ["ArrowRight", "d"]]];
const TABLES = [
  ["value", "exact value: chance of capture when both play perfectly", "--heat1"],
  ["pursuer", "regret of the pursuer: capture that it loses to the best evader", "--regret1"],
  ["evader", "regret of the evader: capture that it concedes to the best pursuer", "--regret1"],
];

export async function page(main, {run}) {
  const base = `/api/worlds/lattice/runs/${run}`;
  const data = await load(base);
  const theatre = h("section", {class: "theatre", "aria-label": "game"}, h("p", {class: "note"}, "Choose a game."));
  let game = null;
  const open = (scene, atEnd = false) => { game?.close(); game = showGame(theatre, scene, atEnd); };
  const play = (live) => {
    game?.close();
    stored.clear();
    game = playedGame(theatre, live, (scene) => open(scene, true));
    theatre.scrollIntoView({block: "nearest"});
  };
  const fail = (error) => { game?.close(); game = null; show(theatre, h("p", {class: "problem"}, error.message)); };
  const stored = storedGames(data.roles, (id) => load(`${base}/replays/${id}`).then((scene) => open(scene), fail));
  const outcomes = data.roles.map((role) => `${role} loses`).concat("shortest", "longest");
  const form = newGame(data.roles, data.players, outcomes, async (body, status) => {
    const scene = await runJob(`${base}/match`, body, status);
    if (scene) { stored.clear(); open(scene); }
  });
  const exact = exactSection(base, data, (scene) => { stored.clear(); open(scene); theatre.scrollIntoView({block: "nearest"}); });
  const file = replayFile("lattice", (scene) => { stored.clear(); open(scene); });
  show(main, h("h1", {}, `${data.name}: exact values and replays`), h("div", {class: "replay-page"}, theatre, h("div", {class: "side"}, stored.node, playYourself("lattice", run, data.roles, data.players, play), form, file)), exact);
  document.title = `${data.name}: exact values · Rematch`;
  stored.update(data.replays);
  if (stored.newest()) stored.pick(stored.newest());
  return {async changed() { stored.update((await load(base)).replays); }, close() { game?.close(); }, name: data.name};
}

// --- exact tables and games from a start ---

function exactSection(base, data, open) {
  const status = h("p", {class: "note", role: "status"}), result = h("div", {id: "exact"});
  const button = h("button", {type: "button", class: "primary"}, "Solve the board and compare");
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      const tables = await runJob(`${base}/exact`, {}, status);
      if (tables) show(result, ...heatMaps(base, data, tables, open));
    } catch (error) {
      show(status, h("span", {class: "problem"}, error.message));
    }
    button.disabled = false;
  });
  return h("section", {"aria-label": "exact values"}, h("h2", {}, "Exact values"),
    h("p", {class: "note"}, "The board is solved exactly, and the best response to each policy is computed. Choose a cell of the pursuer and one of the evader; all numbers are means over the headings."), button, status, result);
}

function heatMaps(base, data, exact, open) {
  const summary = exact.summary;
  let start = null;  // cell of the pursuer, then of both
  let evader = null;
  const maps = h("div", {class: "maps"}), picked = h("p", {class: "verdict", role: "status"});
  const choices = (role) => [{id: "optimal", label: "optimal play", group: "solver"}, ...data.players[role]];
  const selects = data.roles.map((role) => h("select", {"aria-label": `${role} from this start`}, ...playerOptions(choices(role))));
  selects[1].value = "newest";
  const status = h("p", {class: "note", role: "status"});
  const play = h("button", {type: "button", class: "primary", disabled: true}, "Play from this start");
  let seed = 0;
  play.addEventListener("click", async () => {
    play.disabled = true;
    try {
      const scene = await runJob(`${base}/game`, {cells: [start, evader], players: selects.map((select) => select.value), seed: seed++}, status);
      if (scene) open(scene);
    } catch (error) {
      show(status, h("span", {class: "problem"}, error.message));
    }
    play.disabled = false;
  });
  const choose = (cell) => {
    if (start === null || evader !== null || exact.tables.value[start][cell] === null) { start = cell; evader = null; }
    else evader = cell;
    fill();
  };
  const fill = () => {
    show(maps, ...TABLES.map(([name, text, paint]) => heatMap(exact, name, text, paint, start, evader, choose)));
    play.disabled = evader === null;
    const at = (cell) => `(${cell % exact.n}, ${Math.floor(cell / exact.n)})`;
    const values = (role) => number(exact.tables[role][start][evader]);
    picked.textContent = start === null ? "Choose the cell of the pursuer."
      : evader === null ? `Pursuer at ${at(start)}: choose the cell of the evader.`
      : `Pursuer at ${at(start)}, evader at ${at(evader)}: value ${values("value")}, as played ${values("played")}, regret of the pursuer ${values("pursuer")}, of the evader ${values("evader")}.`;
  };
  fill();
  return [h("p", {}, `Value of the game ${number(summary.value)}, as played ${number(summary.played)}, NashConv ${number(summary.nash_conv)}.`), picked, maps,
    h("div", {class: "choices new-game"}, ...data.roles.map((role, seat) => h("label", {}, h("span", {}, role), selects[seat])), play), status];
}

/** A board of buttons: means by the pursuer's cell, or with a chosen pursuer the values by the evader's cell. */
function heatMap(exact, name, text, paint, start, evader, choose) {
  const {n} = exact, table = exact.tables[name], low = rgb("--heat0"), high = rgb(paint);
  const value = (cell) => start !== null ? table[start][cell] : mean(table[cell]);
  const rows = [];
  for (let y = n - 1; y >= 0; y--) {
    rows.push(h("tr", {}, ...Array.from({length: n}, (_, x) => {
      const cell = y * n + x, v = value(cell);
      if (!exact.free[cell]) return h("td", {}, h("div", {class: "blocked"}));
      const share = v === null ? 0 : Math.min(1, Math.max(0, v)), mixed = low.map((c, i) => Math.round(c + share * (high[i] - c)));
      const text = cell === start ? "P" : cell === evader ? "E" : v === null ? "" : v.toFixed(2).replace(/^0/, "");
      const button = h("button", {type: "button", "aria-pressed": String(cell === start || cell === evader), "data-cell": String(cell), "data-table": name,
        "aria-label": `cell ${x}, ${y}: ${text || "no start"}${cell === start ? ", pursuer" : cell === evader ? ", evader" : ""}`, onclick: () => choose(cell)}, text);
      button.style.backgroundColor = `rgb(${mixed.join(" ")})`;
      button.style.color = luminance(mixed) > 0.179 ? "#000000" : "#ffffff";
      return h("td", {}, button);
    })));
  }
  const by = start === null ? "mean by the cell of the pursuer" : "by the cell of the evader";
  return h("figure", {class: "chart"}, h("figcaption", {}, `${text}; ${by}`), h("table", {class: "map", "aria-label": text}, h("tbody", {}, ...rows)));
}

function mean(row) {
  const known = row.filter((value) => value !== null);
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
}

const rgb = (name) => colour(name).split(",").map(Number);

/** Relative luminance (WCAG 2.2); above 0.179 black text has more contrast than white text. */
function luminance(rgb) {
  const [r, g, b] = rgb.map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

// --- a game ---

function showGame(theatre, scene, atEnd) {
  const canvas = stage(`${scene.caption}; the state of the shown step stands below`, 1, (pen, width, height) => paint(pen, width, height, scene, player.step()));
  const state = h("dl", {class: "state-list"});
  const graphs = [graph("value", scene.values.flatMap((values, seat) => values ? [{label: scene.players[seat].role, values, colour: `seat${seat}`}] : []), scene.length)].filter((one) => one);
  const player = replayPlayer({length: scene.length, seconds: 1, draw(step) {
    canvas.paint();
    graphs.forEach((one) => one.show(step));
    show(state, ...stateList(scene, step));
  }});
  canvas.canvas.classList.add("board");
  show(theatre, h("p", {class: "caption"}, scene.caption), playerTable(scene), canvas.canvas, player.controls, state, h("div", {class: "graphs"}, ...graphs.map((one) => one.node)), saveLink(scene));
  player.show(atEnd ? scene.length - 1 : 0);
  return {close() { player.close(); canvas.close(); }};
}

/** A game that the user plays, move by move; finished(scene) gets its replay. */
function playedGame(theatre, live, finished) {
  const {seat, first} = live, you = ["pursuer", "evader"][seat];
  const scene = {...first, cells: [], headings: [], moves_left: []};
  const canvas = stage(`board; you are the ${you}`, 1, (pen, width, height) => paint(pen, width, height, scene, scene.cells.length - 1));
  const facts = h("p", {class: "step-label", role: "status"}), problem = h("p", {class: "problem", role: "alert"});
  const add = (frame) => {
    for (const key of ["cells", "headings", "moves_left"]) scene[key].push(frame[key]);
    canvas.paint();
    facts.textContent = `Choose a move · ${frame.moves_left} moves left`;
  };
  let busy = false, closed = false;
  const controls = heldButtons(MOVES, async (name) => {
    if (busy || closed) return;
    busy = true;
    try {
      const answer = await live.act(MOVES.findIndex((move) => move[0] === name));
      if (closed) return;
      if (answer.over) finished(answer.scene);
      else add(answer.frame);
      busy = false;
    } catch (error) {
      problem.textContent = error.message;
    }
  });
  canvas.canvas.classList.add("board");
  const goal = seat ? `stay out of reach for ${scene.horizon} moves` : `catch the evader within ${scene.horizon} moves`;
  show(theatre, h("p", {class: "caption"}, h("span", {class: `dot seat${seat}`, "aria-hidden": "true"}), `You are the ${you}: ${goal}.`), canvas.canvas, controls.node, facts,
    h("p", {class: "note"}, "Arrow keys, W A D or the buttons. Both robots move at once. The training does not notice; the game becomes a replay."), problem);
  add(first.frame);
  return {close() { closed = true; controls.close(); canvas.close(); live.close(); }};
}

function stateList(scene, step) {
  const rows = scene.players.map((player, seat) => {
    const cell = scene.cells[step][seat], actions = scene.actions[seat], probs = scene.probs[seat]?.[step];
    const odds = probs && probs[0] !== null ? ` (${actions.names.map((name, k) => `${name} ${Math.round(100 * probs[k])} %`).join(", ")})` : "";
    return [player.role, `cell (${cell % scene.n}, ${Math.floor(cell / scene.n)}), goes ${actions.names[actions.rows[step]]}${odds}`];
  });
  rows.push(["moves left", String(scene.moves_left[step])]);
  return rows.flatMap(([name, text]) => [h("dt", {}, name), h("dd", {}, text)]);
}

function paint(pen, width, height, scene, step) {
  const side = Math.min(width, height), size = (side - 8) / scene.n, left = (width - side) / 2 + 4;
  const at = (cell, offset = 0) => [left + (cell % scene.n + 0.5 + offset) * size, height - 4 - (Math.floor(cell / scene.n) + 0.5 + offset) * size];
  const paints = ["--seat0", "--seat1"].map(colour);
  pen.clearRect(0, 0, width, height);
  pen.strokeStyle = colour("--line");
  scene.free.forEach((free, cell) => {
    const [x, y] = at(cell);
    pen.fillStyle = colour(free ? "--floor" : "--stone");
    pen.fillRect(x - size / 2, y - size / 2, size, size);
    pen.strokeRect(x - size / 2, y - size / 2, size, size);
  });
  pen.fillStyle = colour("--faint");
  pen.font = `${Math.min(11, 0.26 * size)}px system-ui, sans-serif`;
  if (size >= 24) for (let k = 0; k < scene.n; k++) {  // coordinates along the lower and the left edge
    const [x, y] = at(k), [, up] = at(k * scene.n);
    pen.fillText(String(k), x - size / 2 + 3, y + size / 2 - 3);
    if (k) pen.fillText(String(k), left + 3, up + size / 2 - 3);
  }
  pen.globalAlpha = 0.15;
  pen.save();
  pen.beginPath();
  pen.rect(left, height - 4 - scene.n * size, scene.n * size, scene.n * size);
  pen.clip();
  disc(pen, at(scene.cells[step][0]), Math.max(scene.radius, 0.05) * size, paints[0]);
  pen.restore();
  [0, 1].forEach((seat) => {
    pen.strokeStyle = paints[seat];
    pen.lineWidth = Math.max(1.5, 0.07 * size);
    for (let k = 0; k < step; k++) {
      pen.globalAlpha = 0.15 + 0.6 * (k + 1) / step;
      stroke(pen, [at(scene.cells[k][seat], 0.09 * (1 - 2 * seat)), at(scene.cells[k + 1][seat], 0.09 * (1 - 2 * seat))]);
    }
  });
  pen.globalAlpha = 1;
  pen.lineWidth = 1;
  [0, 1].forEach((seat) => robot(pen, at(scene.cells[step][seat]), scene.headings[step][seat] * Math.PI / 4, 0.38 * size, paints[seat]));
}
