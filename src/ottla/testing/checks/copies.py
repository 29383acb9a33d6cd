"""The promises about copies outside of a cluster: a mirror's target, and a table that a connector fills.

A copy has each committed record of its source once. A mirror keeps their order, and a group that moves to the target
goes on with the same record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ottla.testing.checks.history import FilledTable, History, MirroredPartition
from ottla.testing.checks.seen import Anomaly, Seen


def check_mirrors(history: History, seen: Seen) -> Iterator[Anomaly]:
    """The records of a mirrored partition are those of its source, and positions of groups are equal."""
    visible = seen.visible(committed=True)
    for copy in history.mirrored:
        original = sorted(visible.get(copy.partition, {}).items())
        yield from _records(copy, [value for _, value in original], [value for _, value in copy.records])
        for group, (here, there) in sorted(copy.groups.items()):
            expected = next((value for offset, value in original if offset >= here), None)
            found = next((value for offset, value in copy.records if offset >= there), None)
            if found != expected:
                yield Anomaly(
                    "unequal position",
                    f"{group} goes on with {expected} at {here} of {copy.partition}, "
                    f"and with {found} at {there} of its copy in {copy.mirror}",
                )


def _records(copy: MirroredPartition, original: list[str], found: list[str]) -> Iterator[Anomaly]:
    where = f"{copy.partition} in {copy.mirror}"
    yield from _once(original, found, where, "not mirrored", "mirrored twice", "mirrored and foreign")
    if found != original and Counter(found) == Counter(original):
        first = next(
            i for i, (ours, theirs) in enumerate(zip(original, found, strict=True)) if ours != theirs
        )
        yield Anomaly("mirrored out of order", f"{where} has {found[first]} in place of {original[first]}")


def check_tables(history: History, seen: Seen) -> Iterator[Anomaly]:
    """A table has a row for each record of its topics, with its place."""
    visible = seen.visible(committed=True)
    for table in history.tables:
        original = [
            _row(partition, offset, value)
            for partition in table.partitions
            for offset, value in sorted(visible.get(partition, {}).items())
        ]
        yield from _rows(table, original)


def _rows(table: FilledTable, original: list[str]) -> Iterator[Anomaly]:
    found = [_row(*row) for row in table.rows]
    where = f"the table of {table.connector}"
    yield from _once(original, found, where, "not in a table", "twice in a table", "foreign in a table")


def _row(partition: str, offset: int, value: str) -> str:
    return f"{value} ({partition} at {offset})"


def _once(
    original: list[str], found: list[str], where: str, missing: str, twice: str, foreign: str
) -> Iterator[Anomaly]:
    expected, got = Counter(original), Counter(found)
    for kind, wrong in (
        (missing, [each for each in expected if each not in got]),
        (twice, [each for each, count in got.items() if count > expected[each] > 0]),
        (foreign, [each for each in got if each not in expected]),
    ):
        if wrong:
            yield Anomaly(kind, f"{len(wrong)} records of {where}, among them {sorted(wrong)[:5]}")
