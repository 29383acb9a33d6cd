"""Where readers put values: a family at a time, its samples in rows of labels and number.

`TextSink` writes Prometheus' text format. `ottla.metrics.otlp` has one for OTLP.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Final

from ottla.counters import lower_bound_s, quantile_s
from ottla.metrics.families import Family, Kind, Spelling, shown

QUANTILES: Final = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
_LOWERED: Final = {"networkProcessor": "network_processor", "client-id": "client_id"}
_BUCKETS_S: Final = (0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


def escaped(text: str) -> str:
    """A label's value as the text format wants it."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Labels:
    """The labels of a sample, with the text that they are written as."""

    __slots__ = ("_lowered", "pairs", "text")

    def __init__(self, *pairs: tuple[str, str]) -> None:
        self.pairs = pairs
        self.text = _text(pairs)
        self._lowered: str | None = None

    @property
    def lowered(self) -> str:
        """The same with names in lower case, as Confluent's rules have them."""
        if self._lowered is None:
            self._lowered = _text((_LOWERED.get(name, name.lower()), value) for name, value in self.pairs)
        return self._lowered

    def with_pair(self, name: str, value: str) -> Labels:
        """These labels and one more."""
        return Labels(*self.pairs, (name, value))


def _text(pairs: Iterable[tuple[str, str]]) -> str:
    inner = ",".join(f'{name.replace("-", "_")}="{escaped(value)}"' for name, value in pairs)
    return f"{{{inner}}}" if inner else ""


NONE: Final = Labels()

Rows = Iterable[tuple[Labels, float]]
Counts = list[int]


class Sink(ABC):
    """Takes families, each with all of its samples before the next one begins."""

    spelling: Spelling

    @abstractmethod
    def begin(self, family: Family) -> None:
        """The samples that follow are of this family."""

    @abstractmethod
    def rows(self, rows: Rows) -> None:
        """Samples of the family that has begun."""

    @abstractmethod
    def times(self, family: Family, rows: Iterable[tuple[Labels, Counts, Counts, float]]) -> None:
        """Distributions: labels, counts by step since the start, the same for the last minutes, and the sum in s."""

    @abstractmethod
    def buckets(self, family: Family, counts: Counts, sum_s: float) -> None:
        """One distribution with buckets of seconds."""

    @abstractmethod
    def summaries(self, family: Family, rows: Iterable[tuple[Labels, float, int]]) -> None:
        """Sums with their counts."""

    def one(self, family: Family, value: float, labels: Labels = NONE) -> None:
        """A family with one sample."""
        self.begin(family)
        self.rows([(labels, value)])

    def all(self, family: Family, rows: Rows) -> None:
        """A family with all of its samples."""
        self.begin(family)
        self.rows(rows)


class TextSink(Sink):
    """Prometheus' text format, version 0.0.4."""

    def __init__(self, spelling: Spelling) -> None:
        self.spelling = spelling
        self.parts: list[bytes] = []
        """The text in pieces, each of whole lines: a join of megabytes would hold up the event loop."""
        self._name = ""
        self._lower = spelling is Spelling.CONFLUENT

    def text(self) -> bytes:
        """All of it. Large texts are sent in pieces instead."""
        return b"".join(self.parts)

    def lines(self, lines: list[str]) -> None:
        """Append whole lines."""
        if lines:
            lines.append("")
            self.parts.append("\n".join(lines).encode())

    def prefix(self, labels: Labels) -> str:
        """The labels as this sink writes them, after the name of a sample."""
        return labels.lowered if self._lower else labels.text

    @property
    def name(self) -> str:
        """The name of the family that has begun."""
        return self._name

    def begin(self, family: Family) -> None:
        self._name, kind = shown(family, self.spelling)
        self._head(self._name, kind, family.help)

    def _head(self, name: str, kind: str, help: str) -> None:
        self.parts.append(f"# HELP {name} {help}\n# TYPE {name} {kind}\n".encode())

    def rows(self, rows: Rows) -> None:
        name = self._name
        if self._lower:
            lines = [f"{name}{labels.lowered} {value}" for labels, value in rows]
        else:
            lines = [f"{name}{labels.text} {value}" for labels, value in rows]
        self.lines(lines)

    def times(self, family: Family, rows: Iterable[tuple[Labels, Counts, Counts, float]]) -> None:
        rows = list(rows)
        name, kind = shown(family, self.spelling)
        summary = kind == "summary"
        if not rows or family.kind is not Kind.TIMES:
            return
        self._head(name, kind, family.help)
        self._name = name
        self.rows(
            (labels.with_pair("quantile", quantile), round(quantile_s(recent, float(quantile)) * 1000, 4))
            for labels, _, recent, _ in rows
            for quantile in QUANTILES
        )
        if not summary:
            self._head(f"{name}_count", "counter", f"{family.help} How many.")
        self._name = f"{name}_count"
        self.rows((labels, sum(counts)) for labels, counts, _, _ in rows)
        if summary:
            self._name = f"{name}_sum"
            self.rows((labels, round(sum_s * 1000, 4)) for labels, _, _, sum_s in rows)

    def summaries(self, family: Family, rows: Iterable[tuple[Labels, float, int]]) -> None:
        rows = list(rows)
        self.begin(family)
        name = self._name
        self._name = f"{name}_sum"
        self.rows((labels, total) for labels, total, _ in rows)
        self._name = f"{name}_count"
        self.rows((labels, count) for labels, _, count in rows)

    def buckets(self, family: Family, counts: Counts, sum_s: float) -> None:
        self.begin(family)
        name = self._name
        lines = []
        for bound in _BUCKETS_S:
            lines.append(f'{name}_bucket{{le="{bound}"}} {below(counts, bound)}')
        total = sum(counts)
        lines += [f'{name}_bucket{{le="+Inf"}} {total}', f"{name}_sum {sum_s}", f"{name}_count {total}"]
        self.lines(lines)


def below(counts: Counts, bound_s: float) -> int:
    """How many of the counted durations are in steps that end by `bound_s`."""
    return sum(count for step, count in enumerate(counts) if lower_bound_s(step + 1) <= bound_s * 1.001)
