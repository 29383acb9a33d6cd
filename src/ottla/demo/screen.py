"""The output of the demo: permanent lines, and below them a block that is redrawn. Without a terminal only lines."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import Final, TextIO

from ottla.demo.results import Results

ROWS: Final = 8
_UP_AND_CLEAR: Final = "\x1b[{}F\x1b[J"


class Screen:
    """The output of the demo. `live` is true on a terminal."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self.live = self._out.isatty()
        self._drawn: Sequence[str] = ()

    def say(self, text: str) -> None:
        """Print a permanent line above the block."""
        block = self._drawn
        self._write(self._erase() + text + "\n" + self._lay(block))

    def draw(self, block: Sequence[str]) -> None:
        """Replace the block. Does nothing without a terminal."""
        if self.live:
            self._write(self._erase() + self._lay(block))

    def keep(self) -> None:
        """Keep the block as it is: later output goes below it."""
        self._drawn = ()

    def _erase(self) -> str:
        lines = len(self._drawn)
        self._drawn = ()
        return _UP_AND_CLEAR.format(lines) if lines else ""

    def _lay(self, block: Sequence[str]) -> str:
        columns, rows = shutil.get_terminal_size()
        # A line that wraps, or a block that scrolls, cannot be erased.
        self._drawn = [text[: columns - 1] for text in block][: rows - 1]
        return "".join(f"{text}\n" for text in self._drawn)

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def table(results: Results, *, lines: int, clicks: int) -> list[str]:
    """Return both results side by side, and the numbers of records sent."""
    words = results.top_words(ROWS)
    pages = results.latest_clicks(ROWS)
    rows = ["", f"  {'WORD':<14}{'COUNT':>9}      {'WINDOW (UTC)':<22}{'PAGE':<12}{'CLICKS':>7}"]
    for at in range(ROWS):
        word, count = words[at] if at < len(words) else ("", None)
        left = f"  {word:<14}{'' if count is None else f'{count:,}':>9}"
        right = ""
        if at < len(pages):
            start, page, seen = pages[at]
            right = f"{start.replace('T', ' ').rstrip('Z'):<22}{page:<12}{seen:>7,}"
        rows.append(f"{left}      {right}".rstrip())
    return [*rows, "", f"  {_sent(lines, clicks)}; {results.updates:,} results read"]


def summary(results: Results, *, lines: int, clicks: int) -> str:
    """Return the results in one line, for a log."""
    words = ", ".join(f"{word} {count:,}" for word, count in results.top_words(3))
    latest = results.latest_clicks(ROWS)
    newest = [(start, page, seen) for start, page, seen in latest if start == latest[0][0]][:3]
    pages = ", ".join(f"{page} {seen:,}" for _, page, seen in newest)
    window = f"; clicks from {newest[0][0]}: {pages}" if newest else ""
    return f"{_sent(lines, clicks)}; words: {words or 'none yet'}{window}"


def _sent(lines: int, clicks: int) -> str:
    return f"{lines:,} lines and {clicks:,} clicks sent"
