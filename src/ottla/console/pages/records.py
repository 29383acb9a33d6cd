"""Records of a topic: from a position, filtered, a page at a time; and one record by its address."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypedDict

from ottla.admin.connection import ConnectionFailed
from ottla.admin.record_filter import FilterError, parse_filter
from ottla.cli.tools.failures import UsageProblem
from ottla.cli.tools.values import parse_since
from ottla.console import parquet
from ottla.console.pages.topic import base_values
from ottla.console.reader import records as reading
from ottla.console.reader.connection import DOES_NOT_ANSWER
from ottla.console.reader.decode import FORMATS, Shown, pretty, show, show_record
from ottla.console.reader.records import Found, Seen
from ottla.console.security.audit import reading as reading_of
from ottla.console.security.roles import EXPORT, PRODUCE, READ
from ottla.console.web import BadInput, Values, View, page
from ottla.errors import ApiException

if TYPE_CHECKING:
    from ottla.console.reader.fetch import Broken
    from ottla.console.security.masks import Mask
    from ottla.records.batch import BatchHeader

COUNTS: Final = (25, 50, 100, 500)
POSITIONS: Final = (
    ("newest", "Newest"),
    ("oldest", "Oldest"),
    ("time", "From a time"),
    ("offset", "From an offset"),
)
FORMATS_OF_FILES: Final = (("jsonl", "JSON lines"), ("csv", "CSV"), ("parquet", "Parquet"))
_ASKED: Final = ("at", "since", "offset", "partition", "q", "filter", "isolation")
SLICE_S: Final = 0.4
"""How long a search takes before the page shows how far it got."""
_WINDOW_BYTES: Final = 32 << 20
_WINDOW_BY_BYTES: Final = 200_000
_WINDOW_BY_RECORD: Final = 50_000
"""A condition looks at each record, a text only at batches."""
_MAX_FIND: Final = 500
_MIN_NEEDLE: Final = 3
_NEIGHBOURS: Final = 3


@dataclass(frozen=True, slots=True)
class Row:
    """A record as the table shows it."""

    seen: Seen
    key: Shown
    value: Shown
    headers: list[tuple[str, Shown]]

    @property
    def pretty_value(self) -> str:
        return pretty(self.value)

    @property
    def pretty_key(self) -> str:
        return pretty(self.key)

    @property
    def size(self) -> int:
        key, value = self.seen.stored or (self.seen.key, self.seen.value)
        return len(key or b"") + len(value or b"")


def row(seen: Seen, how: str = "auto") -> Row:
    """A record, decoded."""
    if seen.control:
        return Row(seen, Shown("control", f"{seen.control} marker"), Shown("control", ""), [])
    stored = seen.stored if how == "hex" and seen.stored is not None else (seen.key, seen.value)
    key, value = show_record(seen.topic, *stored, how)
    headers = [(name, show(data)) for name, data in seen.headers[:100]]
    return Row(seen, key, value, headers)


class _AsMessage:
    """A record as the filter language sees it."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def topic(self) -> str:
        return self._seen.topic

    def partition(self) -> int:
        return self._seen.partition

    def offset(self) -> int:
        return self._seen.offset

    def key(self) -> bytes | None:
        return self._seen.key

    def value(self) -> bytes | None:
        return self._seen.value

    def timestamp(self) -> tuple[int, int]:
        return 1, self._seen.timestamp

    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        return list(self._seen.headers)


@dataclass(frozen=True, slots=True)
class Condition:
    """What a reading is to find."""

    wanted: Callable[[Seen], bool]
    needles: tuple[bytes, ...]
    masks: list[Mask]


def condition(view: View, topic: str, given: Mapping[str, str] | None = None) -> Condition:
    """The condition of the query, or of a form: a text, a filter, committed or all.

    Records are masked before it looks at them.
    """
    text = (view.text("q") if given is None else given.get("q", "").strip())[:_MAX_FIND]
    expression = view.text("filter") if given is None else given.get("filter", "").strip()
    shows_all = view.text("isolation") == "all"
    masks = view.console.masks.for_reader(topic, view.principal)
    spellings = tuple({text.encode(), _escaped(text)}) if text else ()
    try:
        fits = parse_filter(expression) if expression else None
    except FilterError as error:
        raise BadInput(error.message.replace("--filter ", "The condition ", 1)) from None

    def wanted(seen: Seen) -> bool:
        if not shows_all and (seen.aborted or seen.open or seen.control):
            return False
        if not text and fits is None:
            return True
        looked_at = view.console.masks.apply(seen, masks)
        if text and not any(
            spelling in part
            for spelling in spellings
            for part in (looked_at.key or b"", looked_at.value or b"")
        ):
            return False
        return fits is None or fits(_AsMessage(looked_at))

    plain = not masks and view.cluster.reader.shower is None
    usable = spellings if len(text.encode()) >= _MIN_NEEDLE and plain else ()
    return Condition(wanted, usable, masks)


def _escaped(text: str) -> bytes:
    """A text as it stands inside JSON that is escaped to ASCII."""
    import json

    return json.dumps(text)[1:-1].encode()


def partitions_of(view: View, count: int) -> list[int]:
    """The partitions of the query, or all."""
    chosen = view.text("partition")
    if not chosen:
        return list(range(min(count, reading.MAX_PARTITIONS)))
    found = []
    for word in chosen.split(","):
        if not word.strip().isdecimal() or int(word) >= count:
            raise BadInput(
                f"There is no partition '{word.strip()[:20]}': the topic has {count} (0 to {count - 1})."
            )
        found.append(int(word))
    return found


async def reachable(view: View, topic: str, partitions: list[int]) -> list[int]:
    """The partitions whose leaders do not hang. ApiException with the brokers' addresses if none is left."""
    hanging = await view.cluster.reader.unreachable(topic)
    found = [number for number in partitions if number not in hanging]
    if partitions and not found:
        raise ConnectionFailed(hanging[partitions[0]].address, TimeoutError(DOES_NOT_ANSWER))
    return found


async def left_out(view: View, topic: str) -> str:
    """Which partitions cannot be read because their leaders hang, in words."""
    hanging = await view.cluster.reader.unreachable(topic)
    if not hanging:
        return ""
    brokers = ", ".join(sorted({f"{node.id} ({node.address})" for node in hanging.values()}))
    numbers = ", ".join(map(str, sorted(hanging)[:20])) + (" ..." if len(hanging) > 20 else "")
    return f"Without the partitions {numbers}: broker {brokers} does not answer."


class _Looking(TypedDict):
    """What all ways of looking for records take."""

    wanted: reading.Wanted | None
    needles: Sequence[bytes]
    seconds: float


def _window(view: View, by_bytes: bool) -> int:
    """How many offsets of a partition a search looks through at once: some megabytes, a fraction of a second."""
    topic = view.topic()
    each = max(topic.size / max(topic.records, 1), 1)
    return int(min(_WINDOW_BYTES / each, _WINDOW_BY_BYTES if by_bytes else _WINDOW_BY_RECORD))


async def find(view: View, topic: str, count: int, rows: int) -> tuple[Found, Condition, str]:
    """The records that the query asks for; the third value says in which direction the next page goes."""
    reader = view.cluster.reader
    wanted = condition(view, topic)
    partitions = await reachable(view, topic, partitions_of(view, count))
    # The page comes soon, and goes on by itself while it shows what was found.
    seconds = SLICE_S if view.request.headers.get("accept", "").startswith("text/html") else reading.SCAN_S
    options: _Looking = {"wanted": wanted.wanted, "needles": wanted.needles, "seconds": seconds}
    window = _window(view, bool(wanted.needles)) if view.text("q") or view.text("filter") else 0
    at = view.text("at", "newest")
    cursor = view.text("cursor")
    if cursor:
        start = reading.parse_cursor(cursor, count)
        start = {number: start[number] for number in await reachable(view, topic, list(start))}
        if at == "newest":
            found = await reading.newest(
                reader, topic, list(start), rows, before=start, window=window, **options
            )
            return found, wanted, "older"
        return await reading.forward(reader, topic, start, rows, **options), wanted, "newer"
    if at == "newest":
        found = await reading.newest(reader, topic, partitions, rows, window=window, **options)
        return found, wanted, "older"
    start = await place(view, topic, partitions)
    return await reading.forward(reader, topic, start, rows, **options), wanted, "newer"


async def place(view: View, topic: str, partitions: list[int]) -> dict[int, int]:
    """Where a reading forwards begins by the query, per partition: at a time, at an offset, or at the beginning."""
    at = view.text("at")
    if at == "offset":
        return dict.fromkeys(partitions, view.number("offset", 0))
    if at != "time":
        return dict.fromkeys(partitions, 0)
    try:
        moment = parse_since(view.text("since", "1h"))
    except (UsageProblem, ValueError):
        raise BadInput(
            f"'{view.text('since')[:40]}' is not a time: expected 10m, 2h, 1d, or 2026-01-31T12:00:00 in UTC."
        ) from None
    found = await view.cluster.reader.offsets(topic, dict.fromkeys(partitions, moment))
    late = [number for number, offset in found.items() if offset < 0]
    if late:
        _, ends = await reading.bounds(view.cluster.reader, topic, late)
        found.update(ends)
    return found


def _asked_for(view: View) -> dict[str, str]:
    """What the query asks for, without the place within its pages."""
    return {name: view.text(name) for name in _ASKED}


@page("/t/{topic}", "records.html", verb=READ, resource="topic:{topic}", menu="topics")
async def records(view: View) -> Values:
    """The tab Records."""
    topic = view.topic()
    rows = view.number("rows", 50, 1, 500)
    how = view.text("as", "auto")
    if how not in FORMATS:
        raise BadInput(f"There is no format '{how[:20]}'.")
    problem, found, masks, direction = "", Found(), [], "older"
    try:
        found, wanted, direction = await find(view, topic.name, topic.partitions, rows)
        masks = wanted.masks
    except BadInput as error:
        problem = error.message
    shown = [row(view.console.masks.apply(each, masks), how) for each in found.records]
    view.console.audit.note(
        view.principal.name,
        "read records",
        view.cluster.name,
        f"topic:{topic.name}",
        query=reading_of(view.request.query_params),
        records=len(shown),
    )
    more = (
        view.same(cursor=reading.cursor_text(found.following))
        if found.following and not found.complete
        else ""
    )
    group = f"ottla consume --bootstrap-server {view.cluster.bootstrap} --topic {topic.name} --from-beginning"
    return {
        **base_values(view, "records"),
        "rows": shown,
        "row_count": rows,
        "counts": COUNTS,
        "positions": POSITIONS,
        "at": view.text("at", "newest"),
        "how": how,
        "formats": FORMATS,
        "problem": problem,
        "left_out": await left_out(view, topic.name),
        "found": found,
        "more": more,
        "direction": direction,
        "searching": bool(view.text("q") or view.text("filter")),
        "masked": bool(masks),
        "may_produce": view.may(PRODUCE, f"topic:{topic.name}"),
        "may_export": view.may(EXPORT, f"topic:{topic.name}"),
        "exports": [
            (title, view.url("t", topic.name, "export", format=kind, **_asked_for(view)))
            for kind, title in FORMATS_OF_FILES
            if kind != "parquet" or parquet.is_installed()
        ],
        "commands": [group],
    }


@page(
    "/t/{topic}/{partition:int}/{offset:int}",
    "record.html",
    verb=READ,
    resource="topic:{topic}",
    menu="topics",
)
async def record(view: View) -> Values:
    """One record, its neighbours and its batch. The address holds for ever, the record for as long as it is kept."""
    topic = view.topic()
    partition, offset = int(view.part("partition")), int(view.part("offset"))
    if partition >= topic.partitions:
        raise BadInput(f"There is no partition {partition}: the topic has {topic.partitions}.")
    given = view.text("id")
    reader = view.cluster.reader
    starts, ends = await reading.bounds(reader, topic.name, [partition])
    start, end = starts[partition], ends[partition]
    masks = view.console.masks.for_reader(topic.name, view.principal)
    how = view.text("as", "auto")
    gone, here, near = "", None, []
    if offset < start:
        gone = f"The record at {offset:,} is gone: the partition begins at {start:,} now."
    elif offset >= end:
        gone = f"There is no record at {offset:,} yet: the partition ends at {end:,}."
    else:
        low = max(offset - _NEIGHBOURS, start)
        seen, broken = await _around(view, topic.name, partition, low, offset)
        here = next((each for each in seen if each.offset == offset), None)
        near = [
            row(view.console.masks.apply(each, masks), how)
            for each in seen
            if abs(each.offset - offset) <= _NEIGHBOURS and each.offset != offset
        ]
        if here is None:
            gone = f"There is no record at {offset:,}: compaction has removed it, or a transaction's marker is there."
            gone = next((each.sentence for each in broken if each.first <= offset <= each.last), gone)
    view.console.audit.note(
        view.principal.name,
        "read a record",
        view.cluster.name,
        f"topic:{topic.name}",
        partition=partition,
        offset=offset,
    )
    shown = (
        None
        if here is None
        else row(view.console.masks.apply(here, masks), how if how in FORMATS else "auto")
    )
    return {
        **base_values(view, "records"),
        "row": shown,
        "near": near,
        "gone": gone,
        "other_topic": bool(given and given != topic.topic_id),
        "partition": partition,
        "offset": offset,
        "start": start,
        "end": end,
        "batch": None if here is None else batch_facts(here.batch),
        "as_python": _as_python(view, topic.name, partition, offset),
        "formats": FORMATS,
        "how": how,
        "may_produce": view.may(PRODUCE, f"topic:{topic.name}"),
    }


async def _around(
    view: View, topic: str, partition: int, low: int, offset: int
) -> tuple[list[Seen], list[Broken]]:
    """The records from `low` on, up to the offset and somewhat further; and what could not be read."""
    try:
        fetched, seen = await reading.read_at(view.cluster.reader, topic, partition, low)
        broken = fetched.broken
        if not any(each.offset >= offset for each in seen):
            fetched, more = await reading.read_at(view.cluster.reader, topic, partition, offset)
            seen += [each for each in more if each.offset > low]
            broken = [*broken, *fetched.broken]
    except ApiException as error:
        if reading.missing(error):
            return [], []
        raise
    return seen, broken


def batch_facts(header: BatchHeader) -> list[tuple[str, str]]:
    """A batch in words."""
    facts = [
        ("Offsets", f"{header.base_offset:,} to {header.last_offset:,}"),
        ("Records", f"{header.count:,}"),
        ("Size", f"{header.size_in_bytes:,} bytes"),
        ("Codec", header.compression.name.lower()),
        ("Leader epoch", str(header.partition_leader_epoch)),
        ("Timestamps", "set by the broker" if header.timestamp_type else "set by the producer"),
    ]
    if header.has_producer_id:
        facts += [
            ("Producer", f"{header.producer_id}, epoch {header.producer_epoch}"),
            ("Sequence", f"{header.base_sequence:,} to {header.last_sequence:,}"),
        ]
    if header.is_transactional:
        facts.append(("Transaction", "yes"))
    return facts


def _as_python(view: View, topic: str, partition: int, offset: int) -> str:
    return (
        "from ottla import KafkaConsumer, TopicPartition\n\n"
        f"consumer = KafkaConsumer(bootstrap_servers={view.cluster.bootstrap!r}, enable_auto_commit=False)\n"
        f"place = TopicPartition({topic!r}, {partition})\n"
        "consumer.assign([place])\n"
        f"consumer.seek(place, {offset})\n"
        "record = next(consumer)\n"
    )
