// Live pages: the page's own address as an event stream. Changed blocks replace what is shown. A hidden tab waits.
import { morphInto } from "./morph.js";
import { localTimes } from "./times.js";
import { showMarks } from "./marks.js";

let source = null;

function open() {
  if (source || document.hidden || !document.body.hasAttribute("data-live")) return;
  source = new EventSource(location.pathname + location.search);
  source.addEventListener("blocks", (event) => {
    const blocks = JSON.parse(event.data);
    if (blocks.gone) {
      close();
      location.reload();
      return;
    }
    if (document.body.hasAttribute("data-frozen")) return;
    for (const [name, html] of Object.entries(blocks)) {
      for (const target of document.querySelectorAll(`[data-block="${name}"]`)) {
        morphInto(target, html);
        localTimes(target);
        showMarks(target);
      }
    }
    document.body.dataset.updates = Number(document.body.dataset.updates || 0) + 1;
  });
  source.addEventListener("error", () => {
    if (source && source.readyState === EventSource.CLOSED) {
      close();
      setTimeout(open, 4000);
    }
  });
}

function close() {
  source?.close();
  source = null;
}

document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
addEventListener("pagehide", close);
addEventListener("pageshow", open);
open();

/** Start again after the address has changed, so that the stream follows the filter. */
export function reopen() {
  close();
  open();
}
