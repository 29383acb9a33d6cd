"""What every page must be: accessible by axe's rules, and laid out without anything cut or sticking out."""

from __future__ import annotations

from axe_playwright_python.sync_playwright import Axe

_RULES = {
    "runOnly": {
        "type": "tag",
        "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
    }
}

_OF_LOOKS = {
    "runOnly": {
        "type": "rule",
        "values": ["color-contrast", "link-in-text-block", "scrollable-region-focusable", "target-size"],
    }
}
"""The rules whose outcome depends on colours or on the width."""
_NARROW = {"width": 390, "height": 844}

_LAYOUT = """() => {
  const problems = [];
  const width = document.documentElement.clientWidth;
  const full = document.documentElement.scrollWidth;
  if (full > width) problems.push(`the page is ${full} wide`);
  for (const element of document.querySelectorAll("main *")) {
    const style = getComputedStyle(element);
    if (style.display === "none" || style.visibility === "hidden") continue;
    if (element.closest(".scroll, .tabs, pre, svg, .sr, details:not([open]) > :not(summary)")) continue;
    const box = element.getBoundingClientRect();
    const out = box.width && (box.right > width + 1 || box.left < -1);
    if (out) problems.push(`${element.tagName}.${element.className} sticks out`);
    const cut = style.overflowX === "hidden" && element.scrollWidth > element.clientWidth + 1;
    if (cut) problems.push(`${element.tagName}.${element.className} is cut`);
  }
  for (const control of document.querySelectorAll("main button, main a.button, main select")) {
    const box = control.getBoundingClientRect();
    if (box.height && box.height < 24) problems.push(`${control.textContent.trim()} is ${box.height} high`);
  }
  return problems;
}"""


def problems(page):
    """What is wrong with a page, or with the dialog that is open, in both themes and two widths, as short lines.

    The page must be in the light theme of the system, 1280 pixels wide, and without a security policy.
    """
    found = [*violations(page), *layout_problems(page)]
    # Without motion: axe would see colours on their way from one theme to the other.
    page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    found += violations(page, _OF_LOOKS)
    page.set_viewport_size(_NARROW)
    return [*found, *violations(page, _OF_LOOKS), *layout_problems(page)]


def violations(page, options=_RULES):
    """What axe finds, as short lines."""
    found = Axe().run(page, options=options).response["violations"]
    return [
        f"{each['id']}: {node['html'][:160]} {node['failureSummary'][:200]}"
        for each in found
        for node in each["nodes"]
    ]


def layout_problems(page):
    """Elements that stick out of the page or are cut."""
    return page.evaluate(_LAYOUT)
