"""Progress of long downloads: a bar with size and time left on a terminal, a line now and then elsewhere.

It uses the standard library only, because `scripts/install.py` needs it before anything is installed.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from typing import Final, TextIO

INTERVAL_VARIABLE: Final = "OTTLA_PROGRESS_INTERVAL_S"
"""Seconds between two lines where the output is not a terminal."""
_LINE_INTERVAL_S: Final = 10.0
_REDRAW_INTERVAL_S: Final = 0.1
_BAR_CELLS: Final = 24
_CLEAR_LINE: Final = "\r\x1b[2K"
_MB: Final = 1_000_000


def describe(name: str, done: int, total: int | None, elapsed_s: float) -> str:
    """Name, bar, sizes, rate and time left; without a total, what is known."""
    rate = done / elapsed_s if elapsed_s > 0 else 0.0
    speed = f", {_megabytes(rate)} MB/s" if rate else ""
    if not total:
        return f"{name}  {_megabytes(done)} MB{speed}, {_duration(elapsed_s)}"
    share = min(done / total, 1.0)
    filled = round(share * _BAR_CELLS)
    left = f", {_duration((total - done) / rate)} left" if rate and done < total else ""
    bar = "#" * filled + "-" * (_BAR_CELLS - filled)
    return f"{name}  [{bar}] {share:4.0%}  {_megabytes(done)} of {_megabytes(total)} MB{speed}{left}"


class ProgressReporter:
    """Shows the state of one piece of work at a time. `update` may be called as often as the caller likes."""

    def __init__(self, out: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out if out is not None else sys.stderr
        self._clock = clock
        self._live = self._out.isatty()
        given = os.environ.get(INTERVAL_VARIABLE, "")
        interval_s = float(given) if given else _LINE_INTERVAL_S
        self._interval_s = _REDRAW_INTERVAL_S if self._live else interval_s
        self._name = ""
        self._started_s = 0.0
        self._shown_s = float("-inf")
        self._drawn = False

    def update(self, name: str, done: int | None = None, total: int | None = None) -> None:
        """The work called `name` has come so far. Without numbers only its name and time are shown."""
        now = self._clock()
        if name != self._name:
            self._name = name
            self._started_s = now
            self._shown_s = float("-inf")
        if now - self._shown_s < self._interval_s:
            return
        self._shown_s = now
        elapsed_s = now - self._started_s
        if done is None:
            text = f"{name}  {_duration(elapsed_s)}" if elapsed_s >= 1 else name
        else:
            text = describe(name, done, total, elapsed_s)
        self._draw(text)

    def finish(self, text: str = "") -> None:
        """Replace the bar by a line that stays, or by nothing."""
        if self._live and self._drawn:
            self._out.write(_CLEAR_LINE)
        if text:
            self._out.write(f"{text}\n")
        self._out.flush()
        self._drawn = False
        self._name = ""

    def _draw(self, text: str) -> None:
        if self._live:
            columns = shutil.get_terminal_size().columns
            self._out.write(_CLEAR_LINE + text[: columns - 1])
        else:
            self._out.write(f"{text}\n")
        self._out.flush()
        self._drawn = True


def _megabytes(size: float) -> str:
    value = size / _MB
    return f"{value:.1f}" if value < 10 else f"{value:.0f}"


def _duration(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60} s"
