// Requests that change something, and jobs: games and calculations in a child process of the server.

import {h, load, show} from "/static/elements.js";

export async function post(path, body) {
  const response = await fetch(path, {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(body)});
  if (!response.ok) throw new Error(await response.text() || `the server answered ${response.status}`);
  return response.json();
}

let running = null;  // the job of this page: a page that is left has no use for it

function cancelJob() {  // a request with keepalive arrives also when the window closes
  if (running) fetch(`/api/jobs/${running}/cancel`, {method: "POST", keepalive: true, headers: {"Content-Type": "application/json"}, body: "{}"}).catch(() => {});
}
addEventListener("hashchange", cancelJob);
addEventListener("pagehide", cancelJob);

/** Start a job and wait for its result; `status` shows its progress and a button that cancels it. */
export async function runJob(path, body, status) {
  let job = await post(path, body);
  running = job.job;
  const cancel = h("button", {type: "button", onclick: cancelJob}, "Cancel");
  const text = h("span", {});
  show(status, text, " ", cancel);
  while (job.state === "running") {
    text.textContent = `${job.text || "working"} (${Math.round(job.seconds ?? 0)} s)`;
    await new Promise((done) => setTimeout(done, 250));
    job = await load(`/api/jobs/${job.job}`);
  }
  running = null;
  show(status, h("span", {class: job.state === "failed" ? "problem" : "note"}, job.text));
  return job.state === "done" ? job.result : null;
}
