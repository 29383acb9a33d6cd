"""Records out of batches: aborted ones marked, control records named, ranges read forwards and backwards.

Positions are cursors: an offset per partition. Nothing here keeps a place between two requests.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ottla.admin.partitions import EARLIEST, LATEST
from ottla.console.reader.fetch import Broken, Fetched, Reader
from ottla.console.web import BadInput
from ottla.errors import ApiException, ErrorCode
from ottla.records.batch import iter_records, record_bytes
from ottla.records.control import parse_control_type
from ottla.records.record import Header

if TYPE_CHECKING:
    from ottla.console.reader.fetch import Batch
    from ottla.records.batch import BatchHeader
    from ottla.records.record import Record
    from ottla.schemas.show import Decoded, Shower

MAX_COUNT: Final = 1_000
MAX_PARTITIONS: Final = 1_000
SCAN_S: Final = 2.0
"""How long one request searches before it answers with what it has, and where to go on."""
UNPACKED_BYTES: Final = 32 << 20
_MOST_BROKEN: Final = 5
_FIRST_WINDOW: Final = 4
"""Newest records are looked for in a window of this many times the records that are wanted; it doubles ..."""
_WINDOW_S: Final = 0.2
"""... until looking through one takes this long."""
_WHOLE_WINDOW_S: Final = 600.0
"""A window is looked through whole: what a part of it holds is not known to be the newest."""

Wanted = Callable[["Seen"], bool]
Pieces = tuple[Fetched, Sequence[tuple[int, int]]]
"""Fetched batches, and the aborted transactions among them."""


@dataclass(slots=True)
class Seen:
    """A record with its place, its batch, and what became of it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    batch: BatchHeader
    aborted: bool = False
    open: bool = False
    """Beyond the last stable offset: its transaction has not ended."""
    control: str = ""
    """The name of a control record's type."""
    stored: tuple[bytes | None, bytes | None] | None = field(default=None, repr=False)
    """Key and value as they stand in the log, where a schema registry has decoded them."""
    schemas: tuple[str, str] = ("", "")
    """The formats and schema ids of a decoded key and value, in words."""


@dataclass(slots=True)
class Found:
    """What a reading brought."""

    records: list[Seen] = field(default_factory=list)
    following: dict[int, int] = field(default_factory=dict)
    """Where to go on, per partition."""
    looked_at: int = 0
    bytes: int = 0
    complete: bool = True
    """Whether everything up to the ends was looked at."""
    share: float = 1.0
    """How much of the partitions has been looked at, by this reading and those before it."""
    starts: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    """Batches that could not be read, in words: the first ones."""


def unpack(
    topic: str,
    fetched: Fetched,
    low: int,
    aborted: Sequence[tuple[int, int]] | None = None,
    needles: Sequence[bytes] = (),
) -> list[Seen]:
    """The records of fetched batches from an offset on, with aborted and open ones marked. May take milliseconds.

    Batches, keys and values that contain none of the needles are passed over.
    """
    aborts = sorted(fetched.aborted if aborted is None else aborted, key=lambda each: each[1])
    within: set[int] = set()
    found: list[Seen] = []
    for batch in fetched.batches:
        header = batch.header
        while aborts and aborts[0][1] <= header.last_offset:
            within.add(aborts.pop(0)[0])
        gone = header.is_transactional and header.producer_id in within
        try:
            records = _records(batch, needles)
        except (ApiException, ValueError, IndexError, struct.error) as error:
            # Every producer can write such a batch; it must not hide the others.
            sentence = _in_words(fetched.partition, header, error)
            fetched.broken.append(Broken(header.base_offset, header.last_offset, sentence))
            continue
        for record in records:
            control = ""
            if header.is_control:
                control = parse_control_type(record.key).name
                if control == "ABORT":
                    within.discard(header.producer_id)
            elif needles and not _holds(record, needles):
                continue
            if record.offset >= low:
                found.append(
                    Seen(
                        topic,
                        fetched.partition,
                        record.offset,
                        record.timestamp,
                        record.key,
                        record.value,
                        record.headers,
                        header,
                        gone and not control,
                        record.offset >= fetched.stable >= 0 and header.is_transactional and not control,
                        control,
                    )
                )
    return found


def _records(batch: Batch, needles: Sequence[bytes]) -> list[Record]:
    """The records of a batch; none if it does not contain any of the needles."""
    if needles and not batch.header.is_control:
        data = record_bytes(batch.data, 0, batch.header, UNPACKED_BYTES)
        if not any(needle in data for needle in needles):
            return []
    return list(iter_records(batch.data, 0, batch.header, UNPACKED_BYTES))


def _in_words(partition: int, header: BatchHeader, error: Exception) -> str:
    first, last = header.base_offset, header.last_offset
    place = f"{partition}:{first:,}" + (f" to {partition}:{last:,}" if last > first else "")
    reason = (error.message if isinstance(error, ApiException) else "") or "its bytes are damaged"
    return f"The records at {place} cannot be read: {reason}."


def _holds(record: Record, needles: Sequence[bytes]) -> bool:
    """Whether one of the needles stands in the key or in the value."""
    key, value = record.key or b"", record.value or b""
    return any(needle in value or needle in key for needle in needles)


def decode(records: list[Seen], shower: Shower | None) -> list[Seen]:
    """Keys and values with schema ids become JSON. May ask the registry, and wait for it."""
    if shower is None:
        return records
    for seen in records:
        if seen.control or seen.topic.startswith("__"):
            continue
        key = shower.decode(seen.key, seen.headers, key=True)
        value = shower.decode(seen.value, seen.headers)
        if key is not None or value is not None:
            seen.stored = (seen.key, seen.value)
            seen.key = seen.key if key is None else key.text
            seen.value = seen.value if value is None else value.text
            seen.schemas = (_schema(key), _schema(value))
    return records


def _schema(found: Decoded | None) -> str:
    return "" if found is None else f"{found.format.capitalize()}, schema {found.schema}"


def unpack_decoded(
    topic: str,
    fetched: Fetched,
    low: int,
    aborted: Sequence[tuple[int, int]] | None,
    needles: Sequence[bytes],
    shower: Shower | None,
) -> list[Seen]:
    """The records of fetched batches, decoded by the schema registry if there is one. May take long: not for a loop."""
    return decode(unpack(topic, fetched, low, aborted, needles), shower)


async def read_at(
    reader: Reader,
    topic: str,
    partition: int,
    offset: int,
    *,
    partition_bytes: int = 1 << 20,
    needles: Sequence[bytes] = (),
) -> tuple[Fetched, list[Seen]]:
    """What one partition holds from an offset on: the fetched batches and their records."""
    fetched, aborted = await _pieces(reader, topic, partition, offset, partition_bytes)
    return fetched, await asyncio.to_thread(
        unpack_decoded, topic, fetched, offset, aborted, needles, reader.shower
    )


class Ahead:
    """Reads partitions piece by piece, and asks for the next piece while this one is looked through."""

    def __init__(self, reader: Reader, topic: str, needles: Sequence[bytes]) -> None:
        self._reader = reader
        self._topic = topic
        self._needles = needles
        self._asked: dict[int, tuple[int, asyncio.Task[Pieces]]] = {}

    async def __aenter__(self) -> Ahead:
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [task for _, task in self._asked.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def read(self, number: int, low: int, end: int) -> tuple[Fetched, list[Seen]]:
        """What a partition holds from an offset on; the piece behind it is on its way afterwards."""
        known = self._asked.pop(number, None)
        if known is not None and known[0] == low:
            fetched, aborted = await known[1]
        else:
            if known is not None:
                known[1].cancel()
            fetched, aborted = await _pieces(self._reader, self._topic, number, low)
        following = fetched.batches[-1].header.next_offset if fetched.batches else end
        if following < end:
            task = asyncio.create_task(_pieces(self._reader, self._topic, number, following))
            self._asked[number] = following, task
        return fetched, await asyncio.to_thread(
            unpack_decoded, self._topic, fetched, low, aborted, self._needles, self._reader.shower
        )


async def _pieces(
    reader: Reader, topic: str, partition: int, offset: int, partition_bytes: int = 1 << 20
) -> Pieces:
    """The batches of a partition from an offset on, and which of their transactions were aborted."""
    fetched = (await reader.fetch(topic, {partition: offset}, partition_bytes=partition_bytes))[partition]
    if fetched.error:
        raise ApiException(fetched.error, f"{topic}-{partition} at {offset:,}: {fetched.error.name}")
    if not any(batch.header.is_transactional for batch in fetched.batches):
        return fetched, ()
    committed = await reader.fetch(
        topic, {partition: offset}, partition_bytes=partition_bytes, committed=True
    )
    return fetched, committed[partition].aborted


async def bounds(
    reader: Reader, topic: str, partitions: Sequence[int]
) -> tuple[dict[int, int], dict[int, int]]:
    """The starts and ends of partitions."""
    starts = await reader.offsets(topic, dict.fromkeys(partitions, EARLIEST))
    return starts, await reader.offsets(topic, dict.fromkeys(partitions, LATEST))


async def forward(
    reader: Reader,
    topic: str,
    cursor: Mapping[int, int],
    count: int,
    *,
    wanted: Wanted | None = None,
    needles: Sequence[bytes] = (),
    until: Mapping[int, int] | None = None,
    seconds: float = SCAN_S,
) -> Found:
    """The first records from a cursor on that are wanted, partition by partition in turn, within a time.

    A batch must contain one of the needles before its records are looked at.
    """
    found = Found(following=dict(cursor))
    found.starts, found.ends = await bounds(reader, topic, list(cursor))
    ends = {number: min(found.ends[number], (until or found.ends).get(number, 2**63)) for number in cursor}
    for number, offset in cursor.items():
        found.following[number] = max(offset, found.starts[number])
    deadline = time.monotonic() + seconds
    open_ = [number for number in cursor if found.following[number] < ends[number]]
    async with Ahead(reader, topic, needles) as ahead:
        while open_ and len(found.records) < count:
            for number in list(open_):
                low = found.following[number]
                fetched, seen = await ahead.read(number, low, ends[number])
                if not fetched.batches:
                    open_.remove(number)
                    continue
                _note_broken(found, [each.sentence for each in fetched.broken])
                found.bytes += sum(batch.header.size_in_bytes for batch in fetched.batches)
                following = fetched.batches[-1].header.next_offset
                for each in seen:
                    if each.offset >= ends[number]:
                        break
                    if wanted is None or wanted(each):
                        found.records.append(each)
                        if len(found.records) >= count:
                            following = each.offset + 1
                            break
                found.following[number] = max(following, low + 1)
                found.looked_at += min(found.following[number], ends[number]) - low
                if found.following[number] >= ends[number]:
                    open_.remove(number)
                if len(found.records) >= count or time.monotonic() > deadline:
                    break
            if time.monotonic() > deadline:
                break
    found.share = _share(found, {number: found.following[number] for number in cursor})
    found.complete = not open_
    return found


async def newest(
    reader: Reader,
    topic: str,
    partitions: Sequence[int],
    count: int,
    *,
    wanted: Wanted | None = None,
    needles: Sequence[bytes] = (),
    before: Mapping[int, int] | None = None,
    seconds: float = SCAN_S,
    window: int = 0,
) -> Found:
    """The newest records that are wanted, newest first. Windows double, so that gaps of compaction cost little.

    A search begins with a larger `window`: few of its records will be wanted.
    """
    found = Found()
    found.starts, found.ends = await bounds(reader, topic, partitions)
    highs = {
        number: min((before or found.ends).get(number, found.ends[number]), found.ends[number])
        for number in partitions
    }
    deadline = time.monotonic() + seconds
    lows = dict(highs)
    taken: list[Seen] = []
    window = max(_FIRST_WINDOW * count // max(len(partitions), 1), count, window)
    pending = [number for number in partitions if highs[number] > found.starts[number]]
    have: dict[int, int] = dict.fromkeys(partitions, 0)
    while pending:
        began = time.monotonic()
        for number in list(pending):
            low = max(lows[number] - window, found.starts[number])
            part = await forward(
                reader,
                topic,
                {number: low},
                2**31,
                wanted=wanted,
                needles=needles,
                until={number: lows[number]},
                seconds=_WHOLE_WINDOW_S,
            )
            taken += part.records
            found.looked_at += part.looked_at
            found.bytes += part.bytes
            _note_broken(found, part.broken)
            have[number] += len(part.records)
            lows[number] = low
            if low <= found.starts[number] or have[number] >= count:
                pending.remove(number)
            if time.monotonic() > deadline:
                break
        if time.monotonic() - began < _WINDOW_S:
            window *= 2
        if time.monotonic() > deadline:
            break
    taken.sort(key=lambda each: (each.timestamp, each.offset), reverse=True)
    found.records = taken[:count]
    # The next page begins below what was looked at, or below what is shown of a partition that has more.
    cut = {each.partition for each in taken[count:]}
    found.following = {number: highs[number] if number in cut else lows[number] for number in partitions}
    for each in found.records:
        if each.partition in cut:
            found.following[each.partition] = min(found.following[each.partition], each.offset)
    left = len(taken) <= count and all(lows[number] <= found.starts[number] for number in partitions)
    found.complete = left
    reached = {number: found.starts[number] + found.ends[number] - low for number, low in lows.items()}
    found.share = _share(found, reached)
    return found


def _note_broken(found: Found, broken: Sequence[str]) -> None:
    found.broken += broken[: max(_MOST_BROKEN - len(found.broken), 0)]


def _share(found: Found, reached: Mapping[int, int]) -> float:
    """How much of the partitions lies before the places that were reached."""
    whole = sum(found.ends[number] - found.starts[number] for number in reached)
    done = sum(max(offset - found.starts[number], 0) for number, offset in reached.items())
    return min(done / whole, 1.0) if whole > 0 else 1.0


def parse_cursor(text: str, partitions: int) -> dict[int, int]:
    """`0:17.1:90` as an offset per partition."""
    found: dict[int, int] = {}
    for part in text.split("."):
        number, _, offset = part.partition(":")
        digits = number.isdecimal() and offset.isdecimal()
        # Python refuses to read thousands of digits, with an error of its own.
        if not digits or len(number) > 9 or len(offset) > 19 or int(number) >= partitions:
            raise BadInput("The position in the address is damaged: start again from the newest records.")
        found[int(number)] = int(offset)
    return found


def cursor_text(cursor: Mapping[int, int]) -> str:
    return ".".join(f"{number}:{offset}" for number, offset in sorted(cursor.items()))


def missing(error: ApiException) -> bool:
    """Whether an error means that the offset is not there any more, or not yet."""
    return error.code == ErrorCode.OFFSET_OUT_OF_RANGE
