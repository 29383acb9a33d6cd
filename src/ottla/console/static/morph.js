// Makes one piece of the document look like new HTML, and touches only what differs, so that focus and selection stay.

/** Bring `target`'s content to `html`. */
export function morphInto(target, html) {
  const fresh = document.createElement("template");
  fresh.innerHTML = html;
  children(target, fresh.content);
}

function children(now, then) {
  const old = [...now.childNodes];
  const wanted = [...then.childNodes];
  wanted.forEach((node, index) => {
    const before = old[index];
    if (before === undefined) now.appendChild(node.cloneNode(true));
    else if (!same(before, node)) now.replaceChild(node.cloneNode(true), before);
    else one(before, node);
  });
  old.slice(wanted.length).forEach((node) => node.remove());
}

function same(before, node) {
  if (before.nodeType !== node.nodeType || before.nodeName !== node.nodeName) return false;
  return node.nodeType !== 1 || (before.id === node.id && before.dataset?.key === node.dataset?.key);
}

function one(before, node) {
  if (node.nodeType !== 1) {
    if (before.data !== node.data) before.data = node.data;
    return;
  }
  if (before.dataset.star !== undefined && before.dataset.star === node.dataset.star) return; // its state is the browser's
  for (const { name, value } of node.attributes) {
    if (before.getAttribute(name) !== value) before.setAttribute(name, value);
  }
  for (const { name } of [...before.attributes]) {
    const kept = name === "open" && before.nodeName === "DETAILS";
    if (!kept && !node.hasAttribute(name)) before.removeAttribute(name);
  }
  // What a person typed or ticked is theirs.
  if (!["INPUT", "TEXTAREA", "SELECT", "TIME"].includes(before.nodeName)) children(before, node);
  else if (before.nodeName === "TIME" && before.dateTime !== before.dataset.shown) children(before, node);
}
