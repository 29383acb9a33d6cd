"""The tab Log: a partition as its batches, with producer, sequence, codec, size, transaction and checksum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.console.pages.topic import base_values
from ottla.console.reader import records as reading
from ottla.console.security.roles import READ
from ottla.console.web import BadInput, Values, View, page
from ottla.errors import ApiException
from ottla.records.batch import record_bytes
from ottla.records.control import end_txn_marker

if TYPE_CHECKING:
    from ottla.console.reader.fetch import Batch
    from ottla.records.batch import BatchHeader

_SHOWN: Final = 200
_UNPACKED: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class BatchRow:
    """A batch as the strip and the table show it."""

    header: BatchHeader
    crc_ok: bool
    unpacked: int | None
    aborted: bool
    marker: str
    gap: int
    """Offsets that are missing before it: compaction took them."""

    @property
    def ratio(self) -> float | None:
        body = self.header.size_in_bytes - 61
        return self.unpacked / body if self.unpacked and body > 0 else None

    @property
    def tone(self) -> str:
        if not self.crc_ok:
            return "bad"
        if self.marker:
            return "marker"
        if self.aborted:
            return "aborted"
        return "transactional" if self.header.is_transactional else "plain"


def _unpacked(batch: Batch) -> int | None:
    if batch.header.is_control or not batch.crc_ok or not batch.header.compression:
        return None
    try:
        return len(record_bytes(batch.data, 0, batch.header, _UNPACKED))
    except ApiException:
        return None


def batch_rows(batches: list[Batch], aborted: list[tuple[int, int]], expected: int) -> list[BatchRow]:
    """Batches with what became of their transactions, and the gaps between them."""
    waiting = sorted(aborted, key=lambda each: each[1])
    within: set[int] = set()
    rows = []
    for batch in batches:
        header = batch.header
        while waiting and waiting[0][1] <= header.last_offset:
            within.add(waiting.pop(0)[0])
        marker = ""
        if header.is_control and batch.crc_ok:
            found = end_txn_marker(batch.data, 0, header)
            marker = found[0].name.lower() if found is not None else "control"
            if marker == "abort":
                within.discard(header.producer_id)
        gone = header.is_transactional and header.producer_id in within and not marker
        gap = max(header.base_offset - expected, 0) if expected >= 0 else 0
        rows.append(BatchRow(header, batch.crc_ok, _unpacked(batch), gone, marker, gap))
        expected = header.next_offset
    return rows


@page("/t/{topic}/log", "log.html", verb=READ, resource="topic:{topic}", menu="topics")
async def log(view: View) -> Values:
    """A partition's batches from an offset on; the newest without one."""
    topic = view.topic()
    number = view.number("partition", 0)
    if number >= topic.partitions:
        raise BadInput(f"There is no partition {number}: the topic has {topic.partitions}.")
    reader = view.cluster.reader
    starts, ends = await reading.bounds(reader, topic.name, [number])
    start, end = starts[number], ends[number]
    low = min(max(view.number("offset", max(end - 2000, start)), start), end)
    fetched = (await reader.fetch(topic.name, {number: low}))[number]
    committed = (await reader.fetch(topic.name, {number: low}, committed=True))[number]
    rows = batch_rows(fetched.batches[:_SHOWN], list(committed.aborted), -1)
    segments = await view.cluster.segments.of(topic.name, number, topic.leaders[number])
    following = rows[-1].header.next_offset if rows else end
    span = max(end - start, 1)
    return {
        **base_values(view, "log"),
        "rows": rows,
        "number": number,
        "start": start,
        "end": end,
        "stable": fetched.stable,
        "low": low,
        "share": (low - start) / span,
        "following": following if following < end else None,
        "before": max(low - 2000, start) if low > start else None,
        "widths": strip_widths(rows),
        "segments": segments,
        "borders": {each.base: each for each in segments},
        "commands": [
            f"ottla dump-log --files {topic.name}-{number}/00000000000000000000.log",
        ],
    }


def strip_widths(rows: list[BatchRow]) -> list[tuple[float, float]]:
    """Where each batch stands in the strip: start and width in per cent, by bytes, each at least a hair."""
    total = sum(max(row.header.size_in_bytes, 1) for row in rows)
    found = []
    position = 0.0
    for row in rows:
        width = 100.0 * row.header.size_in_bytes / total if total else 0.0
        found.append((position, width))
        position += width
    return found
