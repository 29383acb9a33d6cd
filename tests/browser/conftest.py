"""A browser, and consoles as processes on brokers of the tests."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

_BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")
_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


class ConsoleProcess:
    """`ottla console` on a free port."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self.log_path = log
        words = [sys.executable, "-m", "ottla", "console", "--listen", "127.0.0.1:0", *arguments]
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=stderr, text=True)
        ready, _, _ = select.select([self._process.stdout], [], [], 60)
        line = self._process.stdout.readline() if ready else ""
        assert "http://" in line, self.log or "the console did not say that it is ready"
        self.root = line.strip().rpartition(" ")[2].removesuffix("/metrics")
        self.url = f"{self.root}/c/local"

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(20)
        finally:
            self._process.kill()
            self._process.stdout.close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser process for the tests of a module.

    Not for longer: Playwright keeps an event loop running in this thread, and no other test could run its own.
    """
    path = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if path is None:
        pytest.skip("there is no browser: install Debian's chromium-headless-shell")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    os.environ.setdefault("PLAYWRIGHT_SKIP_BROWSER_GC", "1")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=_FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def start_console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., ConsoleProcess]]:
    """Start consoles: `start_console("--bootstrap-server", "...")`. They end with the module."""
    started: list[ConsoleProcess] = []
    folder = tmp_path_factory.mktemp("console")

    def start(*arguments: str) -> ConsoleProcess:
        started.append(ConsoleProcess(folder / f"{len(started)}.log", *arguments))
        return started[-1]

    yield start
    codes = [each.stop() for each in started]
    for each in started:
        assert "Traceback" not in each.log, each.log
    assert codes == [0] * len(codes), [each.log for each in started]


@pytest.fixture
def open_page(chromium: Any) -> Iterator[Callable[..., Any]]:
    """Open pages in a context of their own. A script error or a refused resource fails the test."""
    contexts, errors = [], []

    def open_(
        url: str, *, width: int = 1280, height: int = 800, theme: str = "light", bypass_csp: bool = False
    ) -> Any:
        context = chromium.new_context(
            viewport={"width": width, "height": height}, color_scheme=theme, bypass_csp=bypass_csp
        )
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on(
            "console",
            lambda message: (
                errors.append(message.text)
                if message.type == "error" and "the server responded with a status" not in message.text
                else None
            ),
        )
        page.goto(url)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert errors == []
