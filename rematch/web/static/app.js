// The page: routes by the address behind #, and redraws when the server says that files have changed.

import {h, show} from "/static/elements.js";
import {runPage} from "/static/run_page.js";
import {runsPage} from "/static/runs_page.js";

const main = document.getElementById("main"), live = document.getElementById("live"), trail = document.getElementById("trail");
let drawing = false, again = false;

function route() {
  const match = location.hash.match(/^#\/run\/([0-9a-f]{16})$/);
  return match ? {page: "run", id: match[1]} : {page: "runs"};
}

async function draw() {
  if (drawing) { again = true; return; }
  drawing = true;
  const here = route();
  try {
    show(trail, ...(here.page === "run" ? [h("a", {href: "#/"}, "Runs"), " / run"] : []));
    document.title = "Rematch";
    await (here.page === "run" ? runPage(main, here.id) : runsPage(main, draw));
    main.dataset.ready = here.id ?? "runs";
  } catch (error) {
    show(main, h("h1", {}, "This cannot be shown"), h("p", {class: "problem"}, error.message), h("p", {}, h("a", {href: "#/"}, "All runs")));
  }
  drawing = false;
  if (again) { again = false; draw(); }
}

function listen() {
  const events = new EventSource("/api/events");
  events.onopen = () => { live.textContent = "live"; live.className = "on"; };
  events.onerror = () => { live.textContent = "not connected"; live.className = ""; };
  events.onmessage = (message) => {
    const {changed} = JSON.parse(message.data), here = route();
    if (changed.length && (here.page === "runs" || changed.includes(here.id))) draw();
  };
}

addEventListener("hashchange", () => { main.focus(); draw(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
draw();
listen();
