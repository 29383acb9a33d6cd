// Times are UTC in the HTML; here they become local, with UTC on hover.

/** Show every <time> below an element in the reader's own zone. */
export function localTimes(root = document) {
  for (const element of root.querySelectorAll("time[datetime]")) {
    if (element.dataset.shown === element.dateTime) continue;
    const moment = new Date(element.dateTime);
    if (Number.isNaN(moment.getTime())) continue;
    const pad = (value, size = 2) => String(value).padStart(size, "0");
    const day = `${moment.getFullYear()}-${pad(moment.getMonth() + 1)}-${pad(moment.getDate())}`;
    const clock = `${pad(moment.getHours())}:${pad(moment.getMinutes())}:${pad(moment.getSeconds())}`;
    element.textContent = `${day} ${clock}.${pad(moment.getMilliseconds(), 3)}`;
    element.dataset.shown = element.dateTime;
  }
}
localTimes();
