"""Memory and descriptors of processes over time, and a chart of them (SVG)."""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_COLOURS: Final = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2")
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 820, 240, 60, 30


@dataclass(frozen=True, slots=True)
class Sample:
    """One process at one moment."""

    at_s: float
    name: str
    resident_mb: float
    descriptors: int


class Sampler:
    """Reads /proc for the processes that `pids` names, each few seconds."""

    def __init__(self, pids: Callable[[], Mapping[str, int]], each_s: float) -> None:
        self.samples: list[Sample] = []
        self._pids = pids
        self._each_s = each_s
        self._began = time.monotonic()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="soak-sampler")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._each_s):
            at_s = time.monotonic() - self._began
            for name, pid in self._pids().items():
                try:
                    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
                    descriptors = len(os.listdir(f"/proc/{pid}/fd"))
                except (OSError, IndexError):
                    continue  # it is down at this moment
                size = pages * resource.getpagesize() / 1e6
                self.samples.append(Sample(at_s, name, size, descriptors))


def growth(values: Sequence[float]) -> float:
    """How much the median of the last quarter is above that of the second, in parts; 0 for too few values."""
    if len(values) < 8:
        return 0.0
    quarter = len(values) // 4
    before, after = sorted(values[quarter : 2 * quarter]), sorted(values[-quarter:])
    middle = before[len(before) // 2]
    return (after[len(after) // 2] - middle) / middle if middle else 0.0


def chart(title: str, series: Mapping[str, Sequence[tuple[float, float]]], unit: str) -> str:
    """Return lines over time as SVG."""
    points = [point for line in series.values() for point in line]
    longest = max((at for at, _ in points), default=1.0) or 1.0
    highest = max((value for _, value in points), default=1.0) or 1.0
    wide, high = _WIDTH - _LEFT - 130, _HEIGHT - _BOTTOM - 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        f'font-size="11"><rect width="100%" height="100%" fill="white"/>'
        f'<text x="{_LEFT}" y="18" font-size="14">{title}</text>'
    ]
    for step in range(5):
        y = 30 + high - high * step / 4
        parts.append(
            f'<line x1="{_LEFT}" x2="{_LEFT + wide}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{highest * step / 4:.0f} {unit}</text>'
        )
    for number, (name, line) in enumerate(sorted(series.items())):
        colour = _COLOURS[number % len(_COLOURS)]
        path = " ".join(
            f"{_LEFT + wide * at / longest:.1f},{30 + high - high * value / highest:.1f}"
            for at, value in line
        )
        parts.append(
            f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{path}"/>'
            f'<text x="{_LEFT + wide + 8}" y="{40 + 16 * number}" fill="{colour}">{name}</text>'
        )
    parts.append(
        f'<text x="{_LEFT + wide}" y="{_HEIGHT - 8}" text-anchor="end">{longest / 60:.1f} min</text></svg>'
    )
    return "\n".join(parts)
