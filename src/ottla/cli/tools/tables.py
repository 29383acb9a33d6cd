"""Tables for a person at a terminal; what a program reads has Kafka's columns instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def as_rows(document: object) -> tuple[list[str], list[list[object]]] | None:
    """Titles and rows of a list of plain objects; None for everything else."""
    if not isinstance(document, list) or not document:
        return None
    titles: dict[str, None] = {}
    for each in document:
        if not isinstance(each, Mapping) or any(isinstance(value, Mapping) for value in each.values()):
            return None
        titles |= dict.fromkeys(each)
    return list(titles), [[each.get(title) for title in titles] for each in document]


def show(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table as wide as the terminal allows: numbers to the right, nothing as a dash."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    # A column without any value is left out.
    kept = [
        index for index in range(len(titles)) if any(_cell(cells[index]) != "-" for cells in rows) or not rows
    ]
    for index in kept:
        numeric = all(isinstance(cells[index], int | float | None) for cells in rows)
        table.add_column(_title(titles[index]), justify="right" if numeric else "left", overflow="fold")
    for cells in rows:
        table.add_row(*(_cell(cells[index]) for index in kept))
    Console(highlight=False, markup=False).print(table)


def _title(title: str) -> str:
    return title.replace("-", " ").replace("_", " ").lower()


def _cell(value: object) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)
