// The palette: every page, action, topic, group, schema and node by a few letters of its name. The server ranks the names.
const PAUSE_MS = 40;
let dialog, input, list, found = [], at = 0, turn = 0, waiting = null;

async function look() {
  const mine = ++turn;
  const address = `${document.body.dataset.base}/palette?q=${encodeURIComponent(input.value)}`;
  const answer = await fetch(address);
  if (mine !== turn || !answer.ok) return;
  found = (await answer.json()).found;
  at = 0;
  paint();
}

function paint() {
  list.replaceChildren(
    ...found.map((each, index) => {
      const item = document.createElement("li");
      const name = document.createElement("span");
      const kind = document.createElement("span");
      name.textContent = each.name;
      kind.textContent = each.kind;
      item.append(name, kind);
      item.id = `palette-${index}`;
      item.setAttribute("role", "option");
      item.setAttribute("aria-selected", String(index === at));
      item.addEventListener("click", () => (location.href = each.url));
      return item;
    }),
  );
  dialog.querySelector(".none").hidden = found.length > 0;
  list.hidden = found.length === 0;
  if (found.length) input.setAttribute("aria-activedescendant", `palette-${at}`);
  else input.removeAttribute("aria-activedescendant");
  list.children[at]?.scrollIntoView({ block: "nearest" });
}

/** Show the palette. */
export function openPalette() {
  dialog = document.getElementById("palette");
  input = dialog.querySelector("input");
  list = dialog.querySelector("ul");
  if (!dialog.dataset.ready) {
    dialog.dataset.ready = "yes";
    input.addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(look, PAUSE_MS);
    });
    input.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown") at = Math.min(at + 1, found.length - 1);
      else if (event.key === "ArrowUp") at = Math.max(at - 1, 0);
      else if (event.key === "Enter" && found[at]) {
        event.preventDefault();
        location.href = found[at].url;
        return;
      } else if (event.key === "Escape") {
        // A search field would only lose its text.
        event.preventDefault();
        dialog.close();
        return;
      } else return;
      event.preventDefault();
      paint();
    });
  }
  input.value = "";
  dialog.showModal();
  look();
}
