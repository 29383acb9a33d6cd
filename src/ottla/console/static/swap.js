// Find boxes: while a person types, the server answers with one block of the same page; the address follows.
import { morphInto } from "./morph.js";
import { reopen } from "./live.js";
import { localTimes } from "./times.js";
import { showMarks } from "./marks.js";

const PAUSE_MS = 50;
let waiting = null;
let asked = 0;

async function swap(form) {
  const query = new URLSearchParams(new FormData(form));
  for (const [name, value] of [...query]) if (!value) query.delete(name);
  const address = form.action.split("?")[0] + (query.size ? `?${query}` : "");
  const turn = ++asked;
  const answer = await fetch(address, { headers: { "X-Block": form.dataset.swap } });
  const html = await answer.text();
  if (turn !== asked || !answer.ok) return;
  const target = document.querySelector(`[data-block="${form.dataset.swap}"]`);
  morphInto(target, html);
  localTimes(target);
  showMarks(target);
  history.replaceState(null, "", address);
  reopen();
}

document.addEventListener("input", (event) => {
  const form = event.target.closest("form[data-swap]");
  if (!form) return;
  clearTimeout(waiting);
  waiting = setTimeout(() => swap(form), PAUSE_MS);
});
document.addEventListener("submit", (event) => {
  const form = event.target.closest("form[data-swap]");
  if (form) {
    event.preventDefault();
    swap(form);
  }
});
document.addEventListener("change", (event) => {
  if (event.target.matches("select[data-go]")) location.href = event.target.value;
  if (event.target.closest("form[data-auto]")) event.target.form.requestSubmit();
});
