"""Progress of a running mirror: a line for each flow with rate, lag and time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Final, TextIO

from ottla.mirror.flow import FlowProgress

_MB: Final = 1_000_000
_UP: Final = "\x1b[1A\x1b[2K"


def describe(name: str, now: FlowProgress, rate: float, bytes_rate: float) -> str:
    """One line about a flow."""
    if not now.partitions:
        return f"{name}  no partitions yet"
    parts = [
        f"{now.records:,} records",
        f"{rate:,.0f}/s",
        f"{bytes_rate / _MB:,.1f} MB/s",
        f"lag {now.lag:,}",
    ]
    if now.lag and rate > 0:
        parts.append(f"{_duration(now.lag / rate)} left")
    if now.stopped:
        parts.append(f"{now.stopped} of {now.partitions} partitions stopped")
    return f"{name}  " + ", ".join(parts)


def _duration(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    return (
        f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"
    )


class Watcher:
    """Writes lines; on a terminal each picture replaces the one before."""

    def __init__(
        self, *, live: bool, out: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._live = live
        self._out = out or sys.stderr
        self._clock = clock
        self._before: dict[str, tuple[float, FlowProgress]] = {}
        self._drawn = 0

    def show(self, flows: Mapping[str, FlowProgress]) -> None:
        """One line for each flow, with the rate since the last picture."""
        now_s = self._clock()
        lines = []
        for name, progress in flows.items():
            began, before = self._before.get(name, (now_s, progress))
            passed_s = now_s - began
            rate = (progress.records - before.records) / passed_s if passed_s else 0.0
            bytes_rate = (progress.size - before.size) / passed_s if passed_s else 0.0
            self._before[name] = now_s, progress
            lines.append(describe(name, progress, rate, bytes_rate))
        if self._live:
            self._out.write(_UP * self._drawn)
            self._drawn = len(lines)
        self._out.write("".join(f"{line}\n" for line in lines))
        self._out.flush()

    def finish(self, flows: Mapping[str, FlowProgress]) -> None:
        """A last line for each flow."""
        if self._live:
            self._out.write(_UP * self._drawn)
        for name, one in flows.items():
            self._out.write(
                f"{name}  {one.records:,} records copied, {one.size / _MB:,.1f} MB, lag {one.lag:,}\n"
            )
        self._out.flush()
