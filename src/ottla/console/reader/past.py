"""A topic at a moment of the past: offsets, a compacted topic as a table, and where groups stood.

Groups are read from the commits that `__consumer_offsets` still holds; compaction removes older ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ottla.console.reader import records as reading
from ottla.errors import ApiException
from ottla.json_types import Json, to_int

if TYPE_CHECKING:
    from ottla.console.reader.fetch import Reader
    from ottla.console.reader.records import Seen

OFFSETS_TOPIC: Final = "__consumer_offsets"
MOST_RECORDS: Final = 50_000
_SCAN_S: Final = 4.0


@dataclass(slots=True)
class Table:
    """The newest value of each key up to some offsets."""

    rows: dict[bytes, Seen] = field(default_factory=dict)
    read: int = 0
    complete: bool = True


async def offsets_then(reader: Reader, topic: str, partitions: list[int], moment_ms: int) -> dict[int, int]:
    """The offset of the first record at or after a moment; the end where all records are older."""
    found = await reader.offsets(topic, dict.fromkeys(partitions, moment_ms))
    late = [number for number, offset in found.items() if offset < 0]
    if late:
        _, ends = await reading.bounds(reader, topic, late)
        found.update(ends)
    return found


async def table_then(reader: Reader, topic: str, until: Mapping[int, int]) -> Table:
    """A topic as a table, as it stood at these offsets."""

    def wanted(seen: Seen) -> bool:
        return not (seen.control or seen.aborted or seen.open) and seen.key is not None

    starts = dict.fromkeys(until, 0)
    found = await reading.forward(
        reader, topic, starts, MOST_RECORDS, wanted=wanted, until=until, seconds=_SCAN_S
    )
    table = Table(read=len(found.records), complete=found.complete)
    for seen in sorted(found.records, key=lambda each: (each.partition, each.offset)):
        assert seen.key is not None
        if seen.value is None:
            table.rows.pop(seen.key, None)
        else:
            table.rows[seen.key] = seen
    return table


@dataclass(frozen=True, slots=True)
class Stood:
    """Where a group stood on a partition, and when it had committed that."""

    group: str
    partition: int
    offset: int
    committed_ms: int


async def groups_then(
    reader: Reader, partitions: int, topic: str, moment_ms: int
) -> tuple[list[Stood], bool]:
    """The last commits of groups on a topic before a moment, and whether all commits were looked at."""
    from ottla.cli.tools.decoders import read_coordinator_record

    def wanted(seen: Seen) -> bool:
        return not (seen.control or seen.aborted or seen.open) and seen.timestamp <= moment_ms

    found = await reading.forward(
        reader,
        OFFSETS_TOPIC,
        dict.fromkeys(range(partitions), 0),
        MOST_RECORDS,
        wanted=wanted,
        needles=(topic.encode(),),
        seconds=_SCAN_S,
    )
    stood: dict[tuple[str, int], Stood] = {}
    for seen in sorted(found.records, key=lambda each: (each.partition, each.offset)):
        try:
            known = read_coordinator_record("kafka-group-coordinator", seen.key or b"", seen.value)
        except ApiException:
            continue
        if known is None:
            continue
        one = _stood(known.key, known.value, topic, seen.timestamp)
        if one is not None:
            stood[one.group, one.partition] = one
        elif known.value is None and known.key.get("topic") == topic:
            stood.pop((str(known.key.get("group")), int(known.key.get("partition", -1))), None)
    return sorted(stood.values(), key=lambda each: (each.group, each.partition)), found.complete


def _stood(key: Mapping[str, Json], value: Json, topic: str, moment_ms: int) -> Stood | None:
    if key.get("topic") != topic or not isinstance(value, dict) or "offset" not in value:
        return None
    return Stood(str(key.get("group")), to_int(key["partition"]), to_int(value["offset"]), moment_ms)
