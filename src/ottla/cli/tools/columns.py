"""Columns of text, as wide as Kafka's tools make them."""

from __future__ import annotations

from collections.abc import Sequence

MISSING = "-"


def shown(value: object) -> str:
    """A cell: a dash for nothing."""
    return MISSING if value is None else str(value)


def row(cells: Sequence[object], widths: Sequence[int]) -> str:
    """Cells one space apart, each padded to its width; a width of 0 leaves a cell as it is."""
    return " ".join(shown(cell).ljust(width) for cell, width in zip(cells, widths, strict=True))


def widest(minimum: int, cells: Sequence[object]) -> int:
    return max([minimum, *(len(shown(cell)) for cell in cells)])
