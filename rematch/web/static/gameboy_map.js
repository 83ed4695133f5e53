// The world map: one panel per map with its visited places, the way to the frontier, savestates as flags, games as dots.

import {colour, stage} from "/static/replay_player.js";

const GROUPS = {early: "--early", mid: "--mid", late: "--late"};
const MARGIN = 1, GAP = 10, TITLE = 18;  // places around a map; pixels between panels and for a title
const SECONDS = 4;  // of the animation of a path

/** A map that draws itself: {node, update(data), select(what), close()}. choose({game}) or choose({savestate}). */
export function worldMap(choose) {
  let data = {maps: [], games: [], savestates: [], frontier: []}, panels = [], marks = [], selected = null, frame = 0, began = 0;
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const board = stage("map of the visited places; the lists below name every game and savestate", 0.75, (pen, width) => draw(pen, width));
  board.canvas.classList.add("world-map");

  function layout(width) {
    const bounds = mapBounds(data);
    let size = 14, rows;
    for (; size > 2; size--) {
      rows = pack(bounds, width, size);
      if (rows.fits && rows.height <= Math.max(420, 1.2 * width)) break;
    }
    panels = rows.panels;
    return {size, height: rows.height};
  }

  function draw(pen, width) {
    const {size, height} = layout(width);
    const ratio = Math.max(0.2, height / width);
    if (Math.abs(ratio - Number(board.canvas.dataset.ratio ?? 0)) > 0.005) {  // another height: draw again
      board.canvas.dataset.ratio = String(ratio);
      board.canvas.style.aspectRatio = String(1 / ratio);
      board.setRatio(ratio);
      return;
    }
    pen.clearRect(0, 0, width, height);
    marks = [];
    const at = ([map, y, x]) => {
      const panel = panels.find((one) => one.map === map);
      return panel ? [panel.left + (x - panel.x + 0.5) * size, panel.top + (y - panel.y + 0.5) * size] : null;
    };
    for (const panel of panels) floor(pen, panel, size);
    trail(pen, data.frontier, at, size);
    for (const one of data.savestates) if (one.place) flag(pen, one, at(one.place), size);
    const share = still.matches ? 1 : Math.min(1, (performance.now() - began) / 1000 / SECONDS);
    const crowd = new Map();
    for (const game of data.games) dot(pen, game, at, share, size, crowd);
    if (share < 1) { cancelAnimationFrame(frame); frame = requestAnimationFrame(board.paint); }
  }

  function floor(pen, panel, size) {
    pen.fillStyle = colour("--ink");
    pen.font = "12px system-ui, sans-serif";
    pen.fillText(panel.name, panel.left, panel.top - 5, panel.width);
    pen.fillStyle = colour("--floor");
    pen.strokeStyle = colour("--line");
    pen.fillRect(panel.left, panel.top, panel.width, panel.height);
    const most = Math.log(1 + Math.max(1, ...panel.tiles.map((tile) => tile[2])));
    const low = rgb("--tile0"), high = rgb("--tile1");
    for (const [y, x, steps] of panel.tiles) {
      const heat = 0.15 + 0.6 * Math.log(1 + steps) / most;
      pen.fillStyle = `rgb(${low.map((c, i) => Math.round(c + heat * (high[i] - c))).join(" ")})`;
      pen.fillRect(panel.left + (x - panel.x) * size, panel.top + (y - panel.y) * size, size - (size > 5 ? 1 : 0), size - (size > 5 ? 1 : 0));
    }
    pen.strokeRect(panel.left + 0.5, panel.top + 0.5, panel.width - 1, panel.height - 1);
  }

  function trail(pen, places, at, size) {
    pen.strokeStyle = colour("--trail");
    pen.lineWidth = Math.max(1.5, size / 5);
    pen.beginPath();
    places.forEach((place, i) => {
      const point = at(place), before = places[i - 1];
      const near = before && before[0] === place[0] && Math.abs(before[1] - place[1]) + Math.abs(before[2] - place[2]) <= 2;
      if (point) near ? pen.lineTo(...point) : pen.moveTo(...point);
    });
    pen.stroke();
  }

  function flag(pen, one, point, size) {
    if (!point) return;
    const [x, y] = point, high = Math.max(9, 1.3 * size);
    pen.strokeStyle = colour("--ink");
    pen.fillStyle = colour(GROUPS[one.group]);
    pen.lineWidth = selected?.savestate === one.id ? 3 : 1.2;
    pen.beginPath();
    pen.moveTo(x, y);
    pen.lineTo(x, y - high);
    pen.lineTo(x + 0.7 * high, y - 0.75 * high);
    pen.lineTo(x, y - 0.5 * high);
    pen.fill();
    pen.stroke();
    marks.push({x: x + 0.3 * high, y: y - 0.7 * high, reach: 0.6 * high, what: {savestate: one.id}});
  }

  function dot(pen, game, at, share, size, crowd) {
    const step = share * (game.path.length - 1), from = at(game.path[Math.floor(step)]), to = at(game.path[Math.ceil(step)]);
    if (!from || !to) return;
    const apart = Math.hypot(to[0] - from[0], to[1] - from[1]) > 3 * size ? 0 : step % 1;
    const radius = Math.min(8, Math.max(4, 0.42 * size)), key = game.path.at(-1).join();
    const n = crowd.get(key) ?? 0, angle = 2.4 * n, away = n ? 0.9 * radius * Math.sqrt(n) : 0;  // games in one place lie around it
    crowd.set(key, n + 1);
    const x = from[0] + apart * (to[0] - from[0]) + away * Math.cos(angle), y = from[1] + apart * (to[1] - from[1]) + away * Math.sin(angle);
    pen.beginPath();
    pen.arc(x, y, radius, 0, 2 * Math.PI);
    pen.fillStyle = colour(GROUPS[game.group]);
    pen.fill();
    const chosen = selected?.game === game.game;
    pen.lineWidth = chosen ? 3 : 1;
    pen.strokeStyle = colour(chosen ? "--ink" : "--paper");
    pen.stroke();
    marks.push({x, y, reach: radius + 3, what: {game: game.game}});
  }

  const hit = (event) => {
    const box = board.canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    return marks.filter((mark) => Math.hypot(mark.x - x, mark.y - y) <= mark.reach).sort((a, b) => Math.hypot(a.x - x, a.y - y) - Math.hypot(b.x - x, b.y - y))[0]?.what ?? null;
  };
  let pressed = null;  // what the pointer went down on: dots walk
  board.canvas.addEventListener("pointerdown", (event) => { pressed = hit(event); });
  board.canvas.addEventListener("click", (event) => { const what = pressed ?? hit(event); pressed = null; if (what) choose(what); });
  board.canvas.addEventListener("pointermove", (event) => { board.canvas.style.cursor = hit(event) ? "pointer" : "default"; });
  return {
    node: board.canvas,
    update(fresh) { data = fresh; began = performance.now(); board.paint(); },
    select(what) { selected = what; board.paint(); },
    marks: () => marks,
    close() { cancelAnimationFrame(frame); board.close(); },
  };
}

/** The part of each map that is drawn: everything visited, with a margin. */
function mapBounds(data) {
  const places = [...data.frontier, ...data.savestates.map((one) => one.place), ...data.games.flatMap((game) => game.path)].filter((place) => place && place.some((part) => part));
  return data.maps.map((one) => {
    const here = [...one.tiles, ...places.filter((place) => place[0] === one.map).map((place) => place.slice(1))];
    const ys = here.map((each) => each[0]), xs = here.map((each) => each[1]);
    const [top, bottom, left, right] = [Math.min(...ys), Math.max(...ys), Math.min(...xs), Math.max(...xs)];
    return {map: one.map, name: one.name, tiles: one.tiles, y: top - MARGIN, x: left - MARGIN, rows: bottom - top + 1 + 2 * MARGIN, columns: right - left + 1 + 2 * MARGIN};
  }).filter((one) => Number.isFinite(one.rows));
}

/** Panels from left to right in rows, in the order of the maps. */
function pack(bounds, width, size) {
  let left = 0, top = TITLE, tallest = 0, fits = true;
  const panels = bounds.map((one) => {
    const w = one.columns * size, tall = one.rows * size;
    if (left && left + w > width) { left = 0; top += tallest + GAP + TITLE; tallest = 0; }
    fits = fits && w <= width;
    const panel = {...one, left, top, width: w, height: tall};
    left += Math.max(w, 60) + GAP;
    tallest = Math.max(tallest, tall);
    return panel;
  });
  return {panels, height: top + tallest + 2, fits};
}

const rgb = (name) => colour(name).split(",").map(Number);
