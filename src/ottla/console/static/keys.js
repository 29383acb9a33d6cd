// Keyboard and small things: g and a letter, j and k in tables, ? for help, copy buttons, dialogs.
import { openPalette } from "./palette.js";

let before = "";
let row = -1;

function typing(target) {
  return target.matches("input, textarea, select, [contenteditable]") || target.closest("dialog");
}

function move(step) {
  const links = [...document.querySelectorAll("main tbody tr")].filter((each) => each.querySelector("a, summary, button"));
  if (!links.length) return;
  row = Math.min(Math.max(row + step, 0), links.length - 1);
  for (const each of links) each.classList.remove("picked");
  links[row].classList.add("picked");
  const target = links[row].querySelector("a, summary") || links[row].querySelector("button");
  target.focus({ preventScroll: true });
  links[row].scrollIntoView({ block: "nearest" });
}

document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    openPalette();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
  const was = before;
  before = "";
  if (was === "g") {
    const entry = document.querySelector(`.rail a[data-key="${CSS.escape(event.key)}"]`);
    if (entry) location.href = entry.href;
  } else if (event.key === "g") before = "g";
  else if (event.key === "/") {
    event.preventDefault();
    const find = document.querySelector("main .find");
    if (find) find.focus();
    else openPalette();
  } else if (event.key === "j") move(1);
  else if (event.key === "k") move(-1);
  else if (event.key === "?") document.getElementById("help").showModal();
});

document.addEventListener("click", async (event) => {
  const copy = event.target.closest("[data-copy]");
  if (copy) {
    await navigator.clipboard.writeText(copy.dataset.copy || copy.previousElementSibling.textContent);
    toast("Copied");
  }
  const opener = event.target.closest("[data-dialog]");
  if (opener) document.getElementById(opener.dataset.dialog).showModal();
  const closer = event.target.closest("[data-close]");
  if (closer) closer.closest("dialog").close();
  if (event.target.closest("[data-palette]")) openPalette();
});

/** A short word at the edge of the page. */
export function toast(text) {
  const element = document.createElement("div");
  element.className = "toast";
  element.setAttribute("role", "status");
  element.textContent = text;
  document.body.append(element);
  setTimeout(() => element.remove(), 2500);
}
