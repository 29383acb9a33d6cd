"""Writes the tables of docs/reference/metrics.md from the table of metrics: `python scripts/metrics_table.py`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap
from typing import Final

from ottla.metrics import names
from ottla.metrics.families import Family, Kind, Spelling, shown

PAGE: Final = Path(__file__).parents[1] / "docs" / "reference" / "metrics.md"
BEGIN: Final = "<!-- metrics: begin -->\n"
END: Final = "<!-- metrics: end -->\n"


def families() -> Iterator[Family]:
    """All families, in the order of the table."""
    for value in vars(names).values():
        if isinstance(value, Family):
            yield value
        elif isinstance(value, dict):
            yield from (each for each in value.values() if isinstance(each, Family))


def table() -> str:
    """The families by bean: Kafka's name, the default spelling, and what it is."""
    lines = []
    bean = None
    for family in families():
        here = f"{family.domain}:type={family.type}" if family.domain else "the process and Ottla itself"
        if here != bean:
            bean = here
            lines += ["", f"### {here}", ""]
        name, kind = shown(family, Spelling.KAFKA)
        more = ", by quantile; `_count`" if family.kind is Kind.TIMES else ""
        item = f"- `{name}` ({kind}{more}): {family.help}"
        lines += wrap(item, 118, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return "\n".join([*lines[1:], "", ""])


def page(text: str) -> str:
    """The page with its tables written again."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
