"""What became of the records that a share group was given, from the group's state in `__share_group_state`.

The state holds what is done or to be given again. What a member holds right now is known to its broker alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.console.reader import records as reading
from ottla.wire.codec import decode_prefix
from ottla.wire.errors import DecodeError
from ottla.wire.messages import ShareSnapshotKey, ShareSnapshotValue, ShareUpdateValue

if TYPE_CHECKING:
    from ottla.console.reader.fetch import Reader
    from ottla.console.reader.records import Seen

STATE_TOPIC: Final = "__share_group_state"
KEPT_S: Final = 10.0
_SNAPSHOT, _UPDATE = 0, 1
_AVAILABLE, _ACKNOWLEDGED = 0, 2
_MOST_RECORDS: Final = 20_000
_SCAN_S: Final = 3.0
_TYPE_BYTES: Final = 2


class Run(NamedTuple):
    """Offsets of one state and number of deliveries."""

    first: int
    last: int
    state: int
    deliveries: int


@dataclass(slots=True)
class Delivered:
    """The state of one partition."""

    start: int = 0
    runs: list[Run] = field(default_factory=list)

    def merge(self, start: int, runs: Iterable[Run]) -> None:
        """Newer runs take the place of older ones; what stands before the start is done."""
        self.start = max(start, self.start)
        for new in runs:
            kept = []
            for old in self.runs:
                if old.last < new.first or old.first > new.last:
                    kept.append(old)
                    continue
                if old.first < new.first:
                    kept.append(old._replace(last=new.first - 1))
                if old.last > new.last:
                    kept.append(old._replace(first=new.last + 1))
            self.runs = [*kept, new]
        self.runs = sorted(
            each._replace(first=max(each.first, self.start)) for each in self.runs if each.last >= self.start
        )

    def count(self, state: int | None) -> int:
        """The records in a state; for None those that were given up."""
        wanted = (_AVAILABLE, _ACKNOWLEDGED)
        return sum(
            each.last - each.first + 1
            for each in self.runs
            if (each.state == state if state is not None else each.state not in wanted)
        )

    @property
    def again(self) -> int:
        """Records that were delivered before and will be again."""
        return sum(
            each.last - each.first + 1
            for each in self.runs
            if each.state == _AVAILABLE and each.deliveries > 0
        )

    @property
    def done(self) -> int:
        """Records that are acknowledged, while earlier ones are not."""
        return self.count(_ACKNOWLEDGED)

    @property
    def given_up(self) -> int:
        """Records that were rejected, or delivered too often."""
        return self.count(None)

    @property
    def deliveries(self) -> int:
        """The most deliveries of a record that will be given again."""
        return max((each.deliveries for each in self.runs if each.state == _AVAILABLE), default=0)


Place = tuple[bytes, int]
"""A topic's id and the number of a partition."""


def _runs(kind: int, data: bytes) -> tuple[int, list[Run]]:
    """The start offset and the runs of a snapshot or an update."""
    value: ShareSnapshotValue | ShareUpdateValue
    if kind == _SNAPSHOT:
        value, _ = decode_prefix(ShareSnapshotValue, 0, data, _TYPE_BYTES)
    else:
        value, _ = decode_prefix(ShareUpdateValue, 0, data, _TYPE_BYTES)
    return value.start_offset, [
        Run(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in value.state_batches
    ]


def fold(group: str, records: Iterable[Seen]) -> dict[Place, Delivered]:
    """The state of each partition of a group, from its records in their order."""
    found: dict[Place, Delivered] = {}
    for seen in records:
        if seen.key is None or len(seen.key) < _TYPE_BYTES:
            continue
        kind = int.from_bytes(seen.key[:_TYPE_BYTES], "big")
        if kind not in (_SNAPSHOT, _UPDATE):
            continue
        try:
            # Keys of updates have the same fields.
            key, _ = decode_prefix(ShareSnapshotKey, 0, seen.key, _TYPE_BYTES)
            if key.group_id != group:
                continue
            place = bytes(key.topic_id), key.partition
            if seen.value is None:
                found.pop(place, None)
                continue
            start, runs = _runs(kind, seen.value)
        except DecodeError:
            continue
        if kind == _SNAPSHOT:
            found[place] = Delivered()
        found.setdefault(place, Delivered()).merge(start, runs)
    return found


async def deliveries(reader: Reader, group: str, partitions: int) -> tuple[dict[Place, Delivered], bool]:
    """The state of a group, and whether all of it was read in time."""
    found = await reading.forward(
        reader,
        STATE_TOPIC,
        dict.fromkeys(range(partitions), 0),
        _MOST_RECORDS,
        wanted=lambda seen: not seen.control and seen.key is not None,
        needles=[group.encode()],
        seconds=_SCAN_S,
    )
    ordered = sorted(found.records, key=lambda each: (each.partition, each.offset))
    return fold(group, ordered), found.complete
