"""The tab Numbers: what comes in, how producers batch and compress it, and which keys are common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Final

from ottla.console import prometheus
from ottla.console.draw.chart import time_chart
from ottla.console.pages.topic import base_values
from ottla.console.reader import records as reading
from ottla.console.reader.decode import show
from ottla.console.render import short
from ottla.console.security.roles import READ
from ottla.console.web import Values, View, page

if TYPE_CHECKING:
    from ottla.console.reader.records import Seen

LOOKED_AT: Final = 10_000
_KEYS: Final = 10


@dataclass(slots=True)
class Numbers:
    """What a sample of records says."""

    records: int = 0
    batches: int = 0
    batch_bytes: float = 0.0
    """Of the batch in the middle, as for the following."""
    batch_records: float = 0.0
    value_bytes: float = 0.0
    codecs: list[tuple[str, float]] = field(default_factory=list)
    """Codecs with their share of the bytes."""
    keys: list[tuple[bytes | None, float]] = field(default_factory=list)
    distinct: int = 0
    from_ms: int = -1
    to_ms: int = -1


def numbers_of(records: Sequence[Seen]) -> Numbers:
    """The numbers of records; shares are of 1."""
    if not records:
        return Numbers()
    batches = {(each.partition, each.batch.base_offset): each.batch for each in records}
    total = sum(batch.size_in_bytes for batch in batches.values())
    codecs: Counter[str] = Counter()
    for batch in batches.values():
        codecs[batch.compression.name.lower()] += batch.size_in_bytes
    keys = Counter(each.key for each in records)
    return Numbers(
        records=len(records),
        batches=len(batches),
        batch_bytes=median(batch.size_in_bytes for batch in batches.values()),
        batch_records=median(batch.count for batch in batches.values()),
        value_bytes=median(len(each.value or b"") for each in records),
        codecs=[(name, count / total) for name, count in codecs.most_common()],
        keys=[(key, count / len(records)) for key, count in keys.most_common(_KEYS)],
        distinct=len(keys),
        from_ms=min(each.timestamp for each in records),
        to_ms=max(each.timestamp for each in records),
    )


@page(
    "/t/{topic}/numbers", "numbers.html", verb=READ, resource="topic:{topic}", live=("facts",), menu="topics"
)
async def numbers(view: View) -> Values:
    """Charts of the last ten minutes and of the last day, and a sample of the newest records."""
    topic = view.topic()
    masks = view.console.masks.for_reader(topic.name, view.principal)

    def wanted(seen: Seen) -> bool:
        return not seen.control

    partitions = list(range(min(topic.partitions, reading.MAX_PARTITIONS)))
    found = await reading.newest(view.cluster.reader, topic.name, partitions, LOOKED_AT, wanted=wanted)
    sample = numbers_of([view.console.masks.apply(each, masks) for each in found.records])
    view.console.audit.note(
        view.principal.name, "count records", view.cluster.name, f"topic:{topic.name}", records=sample.records
    )
    recent = topic.history.recent.values() if topic.history is not None else []
    day = topic.history.day.values() if topic.history is not None and topic.history.day is not None else []
    return {
        **base_values(view, "numbers"),
        "sample": sample,
        "keys": [("null" if key is None else show(key).line[:80], share) for key, share in sample.keys],
        "recent": time_chart([("records/s", recent)], "Records per second, ten minutes", short),
        "day": time_chart([("records/s", day)], "Records per second, a day", short, 300.0),
        "week": await prometheus.week(
            view,
            prometheus.messages_in(topic.name),
            "records/s",
            "Records per second, a week, from Prometheus",
            short,
        ),
        "largest": max(topic.sizes, default=0),
    }
