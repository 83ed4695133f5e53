// Requests that change something, and jobs: games and calculations in a child process of the server.

import {h, load, show} from "/static/elements.js";

export async function post(path, body) {
  const response = await fetch(path, {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(body)});
  if (!response.ok) throw new Error(await response.text() || `the server answered ${response.status}`);
  return response.json();
}

/** Start a job and wait for its result; `status` shows its progress and a button that cancels it. */
export async function runJob(path, body, status) {
  let job = await post(path, body);
  const cancel = h("button", {type: "button", onclick: () => post(`/api/jobs/${job.job}/cancel`, {}).catch(() => {})}, "Cancel");
  const text = h("span", {});
  show(status, text, " ", cancel);
  while (job.state === "running") {
    text.textContent = `${job.text || "working"} (${Math.round(job.seconds ?? 0)} s)`;
    await new Promise((done) => setTimeout(done, 250));
    job = await load(`/api/jobs/${job.job}`);
  }
  show(status, h("span", {class: job.state === "failed" ? "problem" : "note"}, job.text));
  return job.state === "done" ? job.result : null;
}
