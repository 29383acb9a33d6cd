"""A real browser as a stopwatch: how long a page takes until its document is ready."""

from __future__ import annotations

import shutil

_BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")
_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
_READY = """() => {
  const entry = performance.getEntriesByType("navigation")[0];
  return entry.domContentLoadedEventEnd - entry.startTime;
}"""


def dom_ready_ms(url: str, times: int) -> list[float]:
    """Milliseconds from the navigation to the end of DOMContentLoaded, of each visit. Empty without a browser."""
    path = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if path is None:
        return []
    from playwright.sync_api import sync_playwright

    found: list[float] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=_FLAGS)
        page = browser.new_page()
        page.goto(url)
        for _ in range(times):
            page.goto(url)
            found.append(float(page.evaluate(_READY)))
        browser.close()
    return found
