// The live end of a topic: counts everything, keeps the newest 10,000, paints at most one screen per animation frame.
const KEPT = 10000;
const SHOWN = 200;
const table = document.getElementById("tail");
const body = document.getElementById("tail-rows");
const status = document.getElementById("tail-status");
const pause = document.getElementById("tail-pause");
let ring = [];
let total = 0;
let shown = 0;
let recent = [];
let paused = false;
let painting = false;
let source = null;
let said = -1000;

function cell(row, text, className) {
  const element = row.insertCell();
  element.className = className;
  if (text === null) {
    const none = document.createElement("span");
    none.className = "dim";
    none.textContent = "null";
    element.append(none);
  } else element.textContent = text;
  return element;
}

function clock(milliseconds) {
  const moment = new Date(milliseconds);
  return Number.isNaN(moment.getTime()) ? "" : moment.toLocaleTimeString([], { hour12: false }) + "." + String(moment.getMilliseconds()).padStart(3, "0");
}

function paint() {
  painting = false;
  if (paused) return;
  const rows = document.createDocumentFragment();
  for (const [timestamp, partition, offset, key, value, open] of ring.slice(-SHOWN).reverse()) {
    const row = document.createElement("tr");
    cell(row, clock(timestamp), "mono small nowrap");
    const place = cell(row, "", "n mono small");
    const link = document.createElement("a");
    link.href = `${table.dataset.record}/${partition}/${offset}`;
    link.textContent = `${partition}:${offset}`;
    place.append(link);
    cell(row, key, "mono key wide");
    const shownValue = cell(row, value, "mono value");
    if (open) shownValue.classList.add("dim");
    rows.append(row);
  }
  body.replaceChildren(rows);
  document.getElementById("tail-empty").hidden = ring.length > 0;
}

function tell(force) {
  const now = performance.now();
  if (!force && now - said < 1000) return;
  said = now;
  recent = recent.filter(([at]) => now - at < 5000);
  const over = recent.length ? Math.max((now - recent[0][0]) / 1000, 1) : 1;
  const rate = recent.reduce((sum, [, count]) => sum + count, 0) / over;
  const share = total > shown * 1.02 && shown ? `, showing 1 of ${(total / shown).toFixed(total / shown < 10 ? 1 : 0)}` : "";
  status.textContent = `${Math.round(rate).toLocaleString("en")} records/s, ${total.toLocaleString("en")} came in${share}${paused ? "; paused, still counting" : ""}`;
}

function open() {
  if (source || document.hidden || !table) return;
  source = new EventSource(table.dataset.stream);
  source.addEventListener("frame", (event) => {
    const frame = JSON.parse(event.data);
    total += frame.count;
    shown += frame.rows.length;
    if (frame.count) recent.push([performance.now(), frame.count]);
    ring = ring.concat(frame.rows);
    if (ring.length > KEPT) ring = ring.slice(-KEPT);
    if (!painting && !paused && frame.rows.length) {
      painting = true;
      requestAnimationFrame(paint);
    }
    tell(false);
  });
}

function close() {
  source?.close();
  source = null;
}

if (table) {
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Go on" : "Pause";
    if (!paused) paint();
    tell(true);
  });
  document.getElementById("tail-clear").addEventListener("click", () => {
    ring = [];
    total = shown = 0;
    paint();
    body.replaceChildren();
    tell(true);
  });
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  setInterval(() => total && tell(false), 1000);
  open();
}
