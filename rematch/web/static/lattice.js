// The page of lattice: replays of stored games.

import {h, load, show} from "/static/elements.js";

export async function page(main, {run}) {
  const facts = await load(`/api/runs/${run}`);
  show(main, h("h1", {}, facts.name), h("p", {class: "note"}, "No replay is stored yet."));
}
