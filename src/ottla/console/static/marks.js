// Lists of topics: stars that this browser keeps, and rows that are picked for a change of several at once.
const base = document.body.dataset.base;
const KEPT = `stars ${base}`;
const MOST = 200;
const picked = new Set();

function stars() {
  try {
    const found = JSON.parse(localStorage.getItem(KEPT) || "[]");
    return new Set(Array.isArray(found) ? found.filter((each) => typeof each === "string") : []);
  } catch {
    return new Set();
  }
}

/** Show the marks in a piece of the page that the server has sent again. */
export function showMarks(root) {
  const mine = stars();
  for (const button of root.querySelectorAll("button[data-star]")) {
    button.setAttribute("aria-pressed", String(mine.has(button.dataset.star)));
  }
  for (const box of root.querySelectorAll("input[data-pick]")) box.checked = picked.has(box.dataset.pick);
  for (const all of root.querySelectorAll("input[data-pick-all]")) all.checked = shown().length > 0 && shown().every((each) => each.checked);
}

function shown() {
  return [...document.querySelectorAll("input[data-pick]")];
}

function showLinks() {
  const names = [...stars()].sort();
  for (const link of document.querySelectorAll("a[data-mine]")) {
    const address = new URL(link.href);
    address.searchParams.set("names", names.join(","));
    if (!names.length) address.searchParams.delete("names");
    link.href = address.href;
  }
}

function showBar() {
  const bar = document.getElementById("picked");
  if (!bar) return;
  bar.hidden = picked.size === 0;
  bar.querySelector("[data-count]").textContent = picked.size === 1 ? "1 topic" : `${picked.size.toLocaleString("en")} topics`;
  for (const field of document.querySelectorAll("input[name=topics]")) field.value = [...picked].join("\n");
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-star]");
  if (button) {
    const mine = stars();
    if (!mine.delete(button.dataset.star) && mine.size < MOST) mine.add(button.dataset.star);
    localStorage.setItem(KEPT, JSON.stringify([...mine]));
    showMarks(document);
    showLinks();
  }
  if (event.target.closest("[data-pick-none]")) {
    picked.clear();
    showMarks(document);
    showBar();
  }
});
document.addEventListener("change", (event) => {
  const box = event.target;
  if (box.matches("input[data-pick-all]")) {
    for (const each of shown()) picked[box.checked ? "add" : "delete"](each.dataset.pick);
  } else if (box.matches("input[data-pick]")) picked[box.checked ? "add" : "delete"](box.dataset.pick);
  else return;
  showMarks(document);
  showBar();
});
// Browsers tick boxes again when a person comes back to a page.
addEventListener("pageshow", () => showMarks(document));
showMarks(document);
showLinks();
showBar();
