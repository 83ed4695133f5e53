// The page of gameboy: world map with games, savestates and frontier; milestones; play from any of them.

import {count, h, load, short, show, update} from "/static/elements.js";
import {worldMap} from "/static/gameboy_map.js";
import {milestoneSection} from "/static/gameboy_milestones.js";
import {console_} from "/static/gameboy_play.js";
import {storedGames} from "/static/replay_lists.js";

const GROUPS = ["early", "mid", "late"];

export async function page(main, {run}) {
  const base = `/api/worlds/gameboy/runs/${run}`;
  let data = await load(base), selected = null;
  const player = console_(base, data.actions, data.most_at_once);
  const map = worldMap((what) => choose(what));
  const lists = h("div", {class: "gb-lists"}), milestones = h("div", {}), facts = h("p", {class: "facts"}), problem = h("p", {class: "problem"});

  const stored = storedGames(["game"], async (id) => {
    choose({replay: id});
    await player.openReplay(id, "Stored game");
    player.node.querySelector(".play")?.focus({preventScroll: true});
    player.node.scrollIntoView({block: "nearest"});  // on a phone it is below the lists
  });

  function choose(what) {
    selected = what;
    map.select(what);
    mark();
    if (what.replay) return;
    stored.clear();
    if (what.game !== undefined) {
      const game = data.games.find((one) => one.game === what.game);
      player.open({game: what.game}, `Game ${what.game} (${game?.group ?? ""})`);
    } else if (what.savestate) {
      player.open({savestate: what.savestate}, `Savestate ${data.savestates.find((one) => one.id === what.savestate)?.milestone ?? ""}`);
    } else player.open({}, "Power-on");
    player.focus();
  }

  function mark() {
    for (const button of lists.querySelectorAll("button")) {
      const same = selected && (button.dataset.game === String(selected.game) || (selected.savestate && button.dataset.savestate === selected.savestate) || (selected.start && button.dataset.start));
      button.setAttribute("aria-pressed", String(Boolean(same)));
    }
  }

  function fill() {
    problem.textContent = data.problem;
    facts.textContent = data.step === null ? "" : `${count(data.games.length, "game")}, ${count(data.savestates.length, "savestate")}, ${count(data.maps.reduce((sum, one) => sum + one.tiles.length, 0), "place")} on ${count(data.maps.length, "map")}, at ${count(data.step, "step")}`;
    const names = new Map(data.maps.map((one) => [one.map, one.name]));
    const where = (place) => place ? `${names.get(place[0]) ?? `map ${place[0]}`} ${place[2]}, ${place[1]}` : "place not known";
    const button = (attributes, group, text, note, what) => h("button", {type: "button", ...attributes, onclick: () => choose(what)},
      h("span", {class: `dot ${group}`, "aria-hidden": "true"}), h("b", {}, text), ` ${note}`);
    const games = data.games.map((one) => h("li", {key: one.game}, button({"data-game": one.game, disabled: !one.replayable}, one.group, `Game ${one.game}`,
      `${where(one.path.at(-1))} · ${one.group}${one.actions === null ? " · began before the run" : ` · ${count(one.actions, "action")}`}`, {game: one.game})));
    const states = [...data.savestates].reverse().map((one) => h("li", {key: one.id}, button({"data-savestate": one.id}, one.group, one.milestone,
      `${where(one.place)} · step ${short(one.step)} · ${count(one.reached, "milestone")} · ${one.visits ? `${one.successes} of ${one.visits} episodes went on` : "no episode from here yet"}`, {savestate: one.id})));
    const start = h("li", {}, button({"data-start": "1"}, "early", "Power-on", "the initial state of the game", {start: true}));
    const list = (id, children) => h("ol", {class: "games", id, tabindex: "0", "aria-label": id === "gb-games" ? "games" : "savestates"}, ...children);
    update(lists, h("section", {}, h("h2", {}, "Games"), games.length ? list("gb-games", games) : h("p", {class: "note"}, "No game is recorded yet.")),
      h("section", {}, h("h2", {}, "Savestates"), list("gb-savestates", [start, ...states])));
    mark();
    stored.update(data.replays);
    update(milestones, milestoneSection(data.milestones, data.lines));
    map.update(data);
  }

  const legend = h("ul", {class: "gb-legend"}, ...GROUPS.map((group) => h("li", {}, h("span", {class: `dot ${group}`, "aria-hidden": "true"}), `game or savestate, ${group} in the game`)),
    h("li", {}, h("span", {class: "gb-line", "aria-hidden": "true"}), "way to the frontier"), h("li", {}, "stronger colour: more steps were spent there"));
  show(main, h("h1", {}, `${data.name}: world map`), facts, problem,
    h("div", {class: "replay-page gb-page"}, h("div", {class: "theatre"}, map.node, legend, lists, stored.node), h("div", {class: "side"}, player.node)), milestones);
  document.title = `${data.name}: world map · Rematch`;
  fill();
  return {
    async changed() { data = await load(base); fill(); },
    close() { map.close(); player.close(); },
    name: data.name,
  };
}
