// The page: routes by the address behind #. Redraws when the server says that files have changed never replace an element that stays.

import {h, load, show} from "/static/elements.js";
import {runPage} from "/static/run_page.js";
import {runsPage} from "/static/runs_page.js";

const main = document.getElementById("main"), live = document.getElementById("live"), trail = document.getElementById("trail");
let drawing = false, again = false;
let view = null, viewed = null;  // the element of the list or of a run, and the address of the page
let open = null;  // what a world's page has returned: {changed(), close()}
const PACE = 4000;
let stale = false;  // whether the page shows an older state of the files
let waiting = 0, refreshed = -PACE;  // a timer, and the time of the last redraw
const names = new Map();  // identifier of a run -> its name, once its page was loaded
let pages = null;  // the pages of worlds: [{world, title, without_run, styles}]

function route() {
  let match = location.hash.match(/^#\/run\/([0-9a-f]{16})$/);
  if (match) return {page: "run", run: match[1]};
  match = location.hash.match(/^#\/run\/([0-9a-f]{16})\/([a-z]+)$/);
  if (match) return {page: "world", run: match[1], world: match[2]};
  match = location.hash.match(/^#\/world\/([a-z]+)(?:\/([0-9a-f]{32}))?$/);
  return match ? {page: "world", run: null, world: match[1], item: match[2] ?? null} : {page: "runs", run: null};
}

function breadcrumb(here) {
  const links = [], name = names.get(here.run) ?? "run";
  if (here.page !== "runs") links.push(h("a", {href: "#/"}, "Runs"));
  if (here.page === "run") links.push(` / ${name}`);
  if (here.page === "world" && here.run) links.push(" / ", h("a", {href: `#/run/${here.run}`}, name));
  if (here.page === "world") links.push(` / ${pages?.find((page) => page.world === here.world)?.title ?? here.world}`);
  show(trail, ...links);
}

/** Load a style sheet once; colours on a canvas need it before the page is drawn. */
function styleSheet(name) {
  if (document.querySelector(`link[href="/static/${name}"]`)) return null;
  return new Promise((done) => document.head.append(h("link", {rel: "stylesheet", href: `/static/${name}`, onload: done, onerror: done})));
}

async function worldPage(here) {
  const known = pages.find((each) => each.world === here.world);
  if (!known || (!here.run && !known.without_run)) throw new Error("there is no such page");
  await Promise.all(known.styles.map(styleSheet));
  const module = await import(`/static/${known.world}.js`);
  open = await module.page(main, here) ?? null;
  if (open?.name) names.set(here.run, open.name);
}

/** Draw the present address: a new one from scratch, the same one in place. */
async function draw() {
  if (drawing) { again = true; return; }
  drawing = true;
  const here = route(), fresh = viewed !== location.hash || here.page === "world";
  try {
    if (fresh) {
      open?.close?.();
      open = null;
      viewed = location.hash;
      view = h("div", {});
      document.title = "Rematch";
    }
    pages ??= await load("/api/worlds");
    if (fresh) breadcrumb(here);
    if (here.page === "world") await worldPage(here);  // it draws into main when it has its data
    else if (here.page === "run") names.set(here.run, await runPage(view, here.run, pages));
    else await runsPage(view, draw, pages);
    if (fresh && here.run) breadcrumb(here);
    if (fresh && here.page !== "world") show(main, view);
    main.dataset.ready = [here.run ?? here.world ?? "runs", ...(here.run && here.world ? [here.world] : [])].join("/");
  } catch (error) {
    viewed = null;
    show(main, h("h1", {}, "This cannot be shown"), h("p", {class: "problem"}, error.message), h("p", {}, h("a", {href: "#/"}, "All runs")));
  }
  drawing = false;
  if (!again) return;
  again = false;
  if (open?.changed && viewed === location.hash) changed();  // a world's page that was just opened stays
  else draw();
}

/** Tell a world's page that files have changed; what it shows stays where they cannot be read, with the reason above it. */
async function changed() {
  const shown = open;
  let reason = "";
  try {
    await shown.changed();
  } catch (error) {
    reason = error.message;
  }
  if (open !== shown) return;
  document.getElementById("unreadable")?.remove();
  if (reason) main.prepend(h("p", {class: "problem", id: "unreadable", role: "alert"}, reason));
}

function listen() {
  const events = new EventSource("/api/events");
  events.onopen = () => { live.textContent = "live"; live.className = "on"; };
  events.onerror = () => { live.textContent = "not connected"; live.className = ""; };
  events.onmessage = (message) => {
    const {changed} = JSON.parse(message.data), here = route();
    if (!changed.length || (here.page !== "runs" && !changed.includes(here.run))) return;
    refresh();
  };
}

/** Show what has changed: at once, but at most every PACE milliseconds, and not in a hidden tab. */
function refresh() {
  const due = refreshed + PACE - performance.now();
  if (document.hidden || due > 0) {
    if (!waiting && !document.hidden) waiting = setTimeout(() => { waiting = 0; refresh(); }, due);
    stale = true;
    return;
  }
  refreshed = performance.now();
  stale = false;
  if (open?.changed) changed();
  else draw();
}

document.addEventListener("visibilitychange", () => { if (!document.hidden && stale) refresh(); });
addEventListener("hashchange", () => { main.focus({preventScroll: true}); scrollTo(0, 0); draw(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (route().page !== "world") { viewed = null; draw(); } });  // charts have colours
draw();
listen();
