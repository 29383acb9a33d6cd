"""The results of a run: samples by figure, notes on what was left out, and when each row ran."""

from __future__ import annotations

from dataclasses import dataclass, field

OTTLA = "ottla"
KAFKA = "kafka"
MACHINE = "machine"


@dataclass(slots=True)
class Metric:
    """Samples of one figure, by system."""

    row: str
    name: str
    unit: str
    higher_is_better: bool
    samples: dict[str, list[float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Span:
    """When a row ran, on the monotonic clock."""

    row: str
    begin: float
    end: float
    watched: bool = False
    """Brokers of Ottla ran in it, and what their watchdogs found is there."""


class Sheet:
    """All metrics of a run, in the order in which they first came."""

    def __init__(self) -> None:
        self.metrics: dict[tuple[str, str], Metric] = {}
        self.notes: list[str] = []
        self.spans: list[Span] = []

    def add(self, system: str, row: str, name: str, unit: str, value: float, *, higher: bool = False) -> None:
        metric = self.metrics.setdefault((row, name), Metric(row, name, unit, higher))
        metric.samples.setdefault(system, []).append(value)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)
