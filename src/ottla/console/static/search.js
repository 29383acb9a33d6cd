// A search goes on by itself, slice after slice, and can be stopped and taken up again at any point.
import { localTimes } from "./times.js";

const MOST_ROWS = 1000;
const block = document.querySelector("[data-search]");
const began = performance.now();
let looked = 0;
let bytes = 0;
let stopped = false;

const whole = (number) => Math.round(number).toLocaleString("en-US");
const size = (number) => (number < 1e6 ? `${whole(number / 1e3)} kB` : `${whole(number / 1e6)} MB`);

function words(share, ended) {
  const seconds = (performance.now() - began) / 1000;
  const said = [`${Math.floor(share * 100)} % searched`, `${whole(looked)} offsets`, size(bytes)];
  if (ended) return `${ended}: ${said.join(", ")}`;
  said.push(`${size(bytes / Math.max(seconds, 0.1))}/s`);
  if (share > 0.02) said.push(`about ${whole(Math.max((seconds / share) * (1 - share), 1))} s left`);
  return said.join(", ");
}

/** Add what a slice found below what is there; returns the new state of the search. */
function add(html) {
  const fresh = document.createElement("template");
  fresh.innerHTML = html;
  const rows = fresh.content.querySelectorAll("tbody tr");
  const table = block.querySelector("tbody");
  if (table) table.append(...rows);
  else if (rows.length) block.querySelector(".card").replaceWith(fresh.content.querySelector(".card"));
  localTimes(block);
  const pager = fresh.content.querySelector(".pager");
  const shown = block.querySelectorAll("tbody tr").length;
  pager.querySelector(".rows-shown").textContent = shown === 1 ? "1 record" : `${whole(shown)} records`;
  block.querySelector(".pager").replaceWith(pager);
  return fresh.content.querySelector(".progress");
}

function end(progress, share, reason) {
  progress.querySelector(".how-far").textContent = words(share, reason);
  progress.querySelector(".stop").hidden = true;
  const more = block.querySelector("a.more");
  if (more) more.hidden = false;
  const empty = block.querySelector(".empty p");
  if (empty && reason === "Done") empty.textContent = "Nothing found.";
  block.dataset.search = reason.toLowerCase();
}

async function run() {
  const progress = block.querySelector(".progress");
  if (!progress) return;
  const button = progress.querySelector(".stop");
  button.addEventListener("click", () => { stopped = true; });
  let state = progress;
  for (;;) {
    looked += Number(state.dataset.looked);
    bytes += Number(state.dataset.bytes);
    const share = Number(state.dataset.share);
    progress.querySelector("progress").value = share;
    const next = state.dataset.more;
    if (!next) return end(progress, share, "Done");
    if (stopped) return end(progress, share, "Stopped");
    if (block.querySelectorAll("tbody tr").length >= MOST_ROWS) return end(progress, share, "Enough found");
    progress.querySelector(".how-far").textContent = words(share, "");
    button.hidden = false;
    block.querySelector("a.more").hidden = true;
    const answer = await fetch(next, { headers: { "X-Block": "found", Accept: "text/html" } });
    if (!answer.ok) return end(progress, share, "The cluster does not answer");
    state = add(await answer.text());
  }
}

if (block) run();
