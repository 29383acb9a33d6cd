"""The context of a row: the two systems, in turns and alone on the machine, and the sheet for its figures."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench import load
from bench.machine import ready_memory
from bench.scale import Scale
from bench.sheet import Sheet
from bench.systems import System

_MAX_READY_BYTES = 1_200_000_000


@dataclass(slots=True)
class Bench:
    """The systems under measurement. In each turn one of them runs and the other one is paused."""

    systems: Sequence[System]
    scale: Scale
    sheet: Sheet
    directory: Path
    stalls: Path = field(init=False)
    """Where the brokers' watchdogs write what they found."""
    _names: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.stalls = self.directory / "stalls"

    def turns(self, rounds: int | None = None, systems: Sequence[System] | None = None) -> Iterator[System]:
        """Yield each system once a round; the first one alternates.

        The one whose turn it is not is stopped by a signal: an idle JVM takes 3 % of a core, which is nothing to
        its throughput and something to its neighbour's percentiles.
        """
        taking = self.systems if systems is None else systems
        for turn in range(self.scale.rounds if rounds is None else rounds):
            for system in taking if turn % 2 == 0 else tuple(reversed(taking)):
                for other in taking:
                    if other is not system:
                        other.pause()
                system.resume()
                yield system
        for system in taking:
            system.resume()

    def make_ready(self, plan: load.Load) -> None:
        """Free enough memory for the clients and the broker of a run."""
        ready_memory(self.directory, min(2 * plan.records * plan.size, _MAX_READY_BYTES))

    def topic(self, system: System, about: str, partitions: int, config: dict[str, str] | None = None) -> str:
        """Create a topic with a new name."""
        name = self.name(about)
        load.create_topic(system.bootstrap, name, partitions, config)
        return name

    def name(self, about: str) -> str:
        """Return a new name."""
        words = "".join(c if c.isalnum() else "-" for c in about)
        return f"{words}-{next(self._names)}"

    def say(self, text: str) -> None:
        sys.stderr.write(f"{text}\n")
