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


def tabbed(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """A table whose columns are as wide as what is in them, with a tab after each."""
    table = [list(titles), *([str(cell) for cell in cells] for cells in rows)]
    widths = [max(len(cells[index]) for cells in table) for index in range(len(titles))]
    return [
        "".join(cell.ljust(width) + "\t" for cell, width in zip(cells, widths, strict=True))
        for cells in table
    ]
