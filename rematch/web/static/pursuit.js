// The page of pursuit: a game from above on a canvas, with trails, sight line, LiDAR, actions and values.

import {h, load, show} from "/static/elements.js";
import {runJob} from "/static/jobs.js";
import {heldButtons, playYourself} from "/static/played_game.js";
import {newGame, playerTable, replayFile, saveLink, storedGames} from "/static/replay_lists.js";
import {colour, graph, replayPlayer, stage} from "/static/replay_player.js";

const TRAIL = 200;  // past steps that are drawn
const COLOURS = ["--seat0", "--seat1"];
const CONTROLS = [["left", "◀", "turn left", ["ArrowLeft", "a"]], ["drive", "▲", "drive", ["ArrowUp", "w"]], ["right", "▶", "turn right", ["ArrowRight", "d"]]];

export async function page(main, {run}) {
  const base = `/api/worlds/pursuit/runs/${run}`;
  const data = await load(base);
  const theatre = h("section", {class: "theatre", "aria-label": "game"}, h("p", {class: "note"}, "Choose a game."));
  let game = null;
  const open = (scene, atEnd = false) => {
    game?.close();
    game = showGame(theatre, scene, atEnd);
  };
  const play = (live) => {
    game?.close();
    stored.clear();
    game = playedGame(theatre, live, (scene) => open(scene, true));
    theatre.scrollIntoView({block: "nearest"});
  };
  const stored = storedGames(data.roles, async (id) => {
    try {
      open(await load(`${base}/replays/${id}`));
    } catch (error) {
      game?.close();
      game = null;
      show(theatre, h("p", {class: "problem"}, error.message));
    }
  });
  const outcomes = data.roles.map((role) => `${role} loses`).concat("shortest", "longest");
  const form = newGame(data.roles, data.players, outcomes, async (body, status) => {
    const scene = await runJob(`${base}/match`, body, status);
    if (scene) { stored.clear(); open(scene); }
  });
  const file = replayFile("pursuit", (scene) => { stored.clear(); open(scene); });
  show(main, h("h1", {}, `${data.name}: replays`), h("div", {class: "replay-page"}, theatre, h("div", {class: "side"}, stored.node, playYourself("pursuit", run, data.roles, data.players, play), form, file)));
  document.title = `${data.name}: replays · Rematch`;
  stored.update(data.replays);
  if (stored.newest()) stored.pick(stored.newest());
  return {
    async changed() { stored.update((await load(base)).replays); },
    close() { game?.close(); },
    name: data.name,
  };
}

function showGame(theatre, scene, atEnd) {
  const options = {trails: true, sight: true, lidar: true};
  const canvas = stage(`${scene.caption}; the state of the shown step stands below`, Math.min(1.2, scene.arena[1] / scene.arena[0]), (pen, width, height) => paint(pen, width, height, scene, player.step(), options));
  const state = h("dl", {class: "state-list"});
  const boxes = [["trails", "trails"], ["sight", "sight line"], ...(scene.lidar ? [["lidar", "LiDAR and field of view"]] : [])].map(([key, text]) =>
    h("label", {class: "switch"}, h("input", {type: "checkbox", checked: true, onchange: (event) => { options[key] = event.target.checked; canvas.paint(); }}), ` ${text}`));
  const graphs = [
    graph("value", scene.values.flatMap((values, seat) => values ? [{label: scene.players[seat].role, values, colour: `seat${seat}`}] : []), scene.length),
    ...scene.actions[0].names.map((name, k) => graph(`action: ${name.replaceAll("_", " ")}`, scene.actions.map((one, seat) => ({label: scene.players[seat].role, values: one.rows.map((row) => row[k]), colour: `seat${seat}`})), scene.length)),
    graph("distance, m", [{label: "", values: scene.x.map((_, step) => distance(scene, step)), colour: "plain"}], scene.length),
  ].filter((one) => one);
  const player = replayPlayer({length: scene.length, seconds: scene.dt, draw(step) {
    canvas.paint();
    graphs.forEach((one) => one.show(step));
    show(state, ...stateList(scene, step));
  }});
  show(theatre, h("p", {class: "caption"}, scene.caption), playerTable(scene), canvas.canvas, player.controls,
    h("div", {class: "switches"}, ...boxes), state, h("div", {class: "graphs"}, ...graphs.map((one) => one.node)), saveLink(scene));
  player.show(atEnd ? scene.length - 1 : 0);
  return {close() { player.close(); canvas.close(); }};
}

/** A game that the user plays, in real time from the first key on; finished(scene) gets its replay. */
function playedGame(theatre, live, finished) {
  const {seat, first} = live, you = ["pursuer", "evader"][seat];
  const scene = {...first, ...first.frame, x: [], y: [], theta: [], sight: [], lidar: null};
  const step = () => scene.x.length - 1, options = {trails: true, sight: true, lidar: false};
  const canvas = stage(`arena; you are the ${you}`, Math.min(1.2, scene.arena[1] / scene.arena[0]), (pen, width, height) => paint(pen, width, height, scene, step(), options));
  const facts = h("p", {class: "step-label", role: "status"}), problem = h("p", {class: "problem", role: "alert"});
  const add = (frame) => {
    for (const key of ["x", "y", "theta", "sight"]) scene[key].push(frame[key]);
    canvas.paint();
    const time = `${(step() * scene.dt).toFixed(1)} s of ${(scene.max_steps * scene.dt).toFixed(0)} s · distance ${distance(scene, step()).toFixed(2)} m`;
    facts.textContent = running ? time : `${time} · the game begins with your first key`;
  };
  let running = false, closed = false;
  const controls = heldButtons(CONTROLS, () => { if (!running) { running = true; run(); } });
  const action = () => {
    const turn = Number(controls.held("left")) - Number(controls.held("right"));
    return scene.fixed_speed ? [turn] : [controls.held("drive") ? 1 : -1, turn];
  };
  async function run() {
    let due = performance.now();
    try {
      while (!closed) {
        const answer = await live.act(action());
        if (closed) return;
        if (answer.over) { finished(answer.scene); return; }
        add(answer.frame);
        due = Math.max(due + 1000 * scene.dt, performance.now() - 1000 * scene.dt);  // a slow answer is not made up for
        await new Promise((done) => setTimeout(done, Math.max(0, due - performance.now())));
      }
    } catch (error) {
      problem.textContent = error.message;
    }
  }
  const goal = seat ? `stay out of reach for ${(scene.max_steps * scene.dt).toFixed(0)} s` : `come within ${scene.capture_radius} m of the evader`;
  show(theatre, h("p", {class: "caption"}, h("span", {class: `dot seat${seat}`, "aria-hidden": "true"}), `You are the ${you}: ${goal}.`), canvas.canvas, controls.node, facts,
    h("p", {class: "note"}, `Arrow keys or W A D, or hold the buttons: ▲ drives${scene.fixed_speed ? " (always, in this run)" : ""}, ◀ ▶ turn. The training does not notice; the game becomes a replay.`), problem);
  add(first.frame);
  theatre.focus?.({preventScroll: true});
  return {close() { closed = true; controls.close(); canvas.close(); live.close(); }};
}

function distance(scene, step) {
  const [x, y] = [scene.x[step], scene.y[step]];
  return Math.hypot(x[0] - x[1], y[0] - y[1]);
}

function stateList(scene, step) {
  const rows = scene.players.map((player, seat) => [player.role,
    `x ${scene.x[step][seat].toFixed(2)} m, y ${scene.y[step][seat].toFixed(2)} m, heading ${(scene.theta[step][seat] * 180 / Math.PI).toFixed(0)}°`]);
  rows.push(["distance", `${distance(scene, step).toFixed(2)} m, sight line ${scene.sight[step] ? "free" : "blocked"}`]);
  return rows.flatMap(([name, text]) => [h("dt", {}, name), h("dd", {}, text)]);
}

function paint(pen, width, height, scene, step, options) {
  const [w, ht] = scene.arena, edge = 8;
  const scale = Math.min((width - 2 * edge) / w, (height - 2 * edge) / ht);
  const at = (x, y) => [width / 2 + x * scale, height / 2 - y * scale];
  const paints = COLOURS.map(colour), line = colour("--line");
  pen.clearRect(0, 0, width, height);
  pen.fillStyle = colour("--floor");
  pen.strokeStyle = colour("--faint");
  pen.lineWidth = 1.5;
  pen.beginPath();
  pen.roundRect(...at(-w / 2, ht / 2), w * scale, ht * scale, 4);
  pen.fill();
  pen.stroke();
  pen.save();
  pen.clip();
  pen.strokeStyle = line;
  pen.lineWidth = 1;
  const grid = 10 ** Math.floor(Math.log10(Math.max(w, ht))) / 2;
  for (let k = -Math.floor(w / 2 / grid); k <= w / 2 / grid; k++) stroke(pen, [at(k * grid, -ht / 2), at(k * grid, ht / 2)]);
  for (let k = -Math.floor(ht / 2 / grid); k <= ht / 2 / grid; k++) stroke(pen, [at(-w / 2, k * grid), at(w / 2, k * grid)]);
  pen.fillStyle = colour("--faint");
  pen.font = "11px system-ui, sans-serif";
  pen.textAlign = "right";
  pen.fillText(`grid ${grid} m`, ...at(w / 2 - 6 / scale, -ht / 2 + 7 / scale));
  if (options.lidar && scene.lidar) [0, 1].forEach((seat) => sensors(pen, scene, step, seat, at, scale, paints[seat]));
  for (const [x, y, radius] of scene.obstacles) disc(pen, at(x, y), radius * scale, colour("--stone"), colour("--faint"));
  if (options.sight) {
    pen.setLineDash(scene.sight[step] ? [] : [4, 5]);
    pen.globalAlpha = 0.55;
    pen.strokeStyle = scene.sight[step] ? colour("--good") : colour("--faint");
    pen.lineWidth = 1.2;
    stroke(pen, [0, 1].map((seat) => at(scene.x[step][seat], scene.y[step][seat])));
    pen.setLineDash([]);
    pen.globalAlpha = 1;
  }
  if (options.trails) [0, 1].forEach((seat) => trail(pen, scene, step, seat, at, paints[seat]));
  const [px, py] = at(scene.x[step][0], scene.y[step][0]);
  pen.globalAlpha = 0.14;
  disc(pen, [px, py], scene.capture_radius * scale, paints[0]);
  pen.globalAlpha = 1;
  pen.restore();
  [0, 1].forEach((seat) => robot(pen, at(scene.x[step][seat], scene.y[step][seat]), scene.theta[step][seat], Math.max(7, 1.6 * scene.robot_radius * scale), paints[seat]));
}

function sensors(pen, scene, step, seat, at, scale, paint) {
  const [x, y, heading] = [scene.x[step][seat], scene.y[step][seat], scene.theta[step][seat]];
  const here = at(x, y), view = scene.view, role = ["pursuer", "evader"][seat], rays = scene.lidar[role][step];
  pen.fillStyle = pen.strokeStyle = paint;
  if (view.kind !== "line_of_sight") {
    const half = (view.kind === "fov" || view.kind === "combined" ? view.half_angle : 180) * Math.PI / 180;
    pen.globalAlpha = 0.07;
    pen.beginPath();
    if (half < Math.PI) pen.moveTo(...here);
    pen.arc(...here, view.range * scale, -heading - half, -heading + half);
    pen.fill();
  }
  pen.globalAlpha = 0.25;
  pen.lineWidth = 1;
  rays.forEach((share, k) => {
    const angle = heading - Math.PI + 2 * Math.PI * k / rays.length, reach = share * scene.lidar_range;
    stroke(pen, [here, at(x + reach * Math.cos(angle), y + reach * Math.sin(angle))]);
  });
  pen.globalAlpha = 1;
}

function trail(pen, scene, step, seat, at, paint) {
  pen.strokeStyle = paint;
  pen.lineWidth = 2;
  const first = Math.max(0, step - TRAIL);
  for (let k = first; k < step; k++) {
    pen.globalAlpha = 0.1 + 0.6 * (k - first + 1) / (step - first);
    stroke(pen, [at(scene.x[k][seat], scene.y[k][seat]), at(scene.x[k + 1][seat], scene.y[k + 1][seat])]);
  }
  pen.globalAlpha = 1;
}

export function robot(pen, [x, y], heading, radius, paint) {
  disc(pen, [x, y], radius, paint, "#ffffff");
  pen.fillStyle = "#ffffff";
  pen.beginPath();
  for (const [a, b] of [[0.8, 0], [-0.5, 0.55], [-0.2, 0], [-0.5, -0.55]]) {
    pen.lineTo(x + radius * (a * Math.cos(heading) - b * Math.sin(heading)), y - radius * (a * Math.sin(heading) + b * Math.cos(heading)));
  }
  pen.fill();
}

export function disc(pen, [x, y], radius, fill, edge = null) {
  pen.beginPath();
  pen.arc(x, y, radius, 0, 2 * Math.PI);
  pen.fillStyle = fill;
  pen.fill();
  if (edge) { pen.strokeStyle = edge; pen.lineWidth = 1; pen.stroke(); }
}

export function stroke(pen, [from, to]) {
  pen.beginPath();
  pen.moveTo(...from);
  pen.lineTo(...to);
  pen.stroke();
}
