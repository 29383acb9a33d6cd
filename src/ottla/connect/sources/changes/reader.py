"""What readers of changes have in common: the snapshot's tables first, then the stream, heartbeats between.

A kind of database says how its snapshot is taken and how its log is read (`PostgresReader`, `MySqlReader`).
"""

from __future__ import annotations

import json
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Generic, TypeVar

from ottla.connect.data.record import Headers, SourceRecord
from ottla.connect.databases.dialect import TableId
from ottla.connect.sources.changes.envelope import (
    Change,
    RecordStyle,
    context_headers,
    heartbeat,
    records_of_change,
)
from ottla.connect.sources.changes.keys import ChangeSettings
from ottla.connect.sources.changes.signals import Chunk, Waiting, Work, obey
from ottla.connect.sources.changes.transactions import Counter, Mark
from ottla.connect.spi import Offsets, Read, ReadLimit, SourceReader, partition_key
from ottla.json_types import Json, JsonObject, as_object

Event = TypeVar("Event")

SNAPSHOT_TABLES: Final = "ottla_snapshot"
"""The tables of the snapshot that are in Kafka, each with its position in the log, as JSON."""
DRAIN_S: Final = 1.0
"""A log that is full of other tables' changes must not keep a connector from its heartbeats or its end."""
NO_SNAPSHOT: Final = ("no_data", "never", "schema_only")


@dataclass(slots=True)
class Drained(Generic[Event]):
    """What was taken from the log for one cycle, and the offset behind it."""

    events: list[Event | Mark | Change | SourceRecord] = field(default_factory=list)
    """Changes of the log, marks of transactions, rows of an incremental snapshot, and records that are made already."""
    bytes: int = 0
    offset: JsonObject = field(default_factory=dict)
    signalled: bool = False
    """A signal came, which the offset has to keep."""

    def is_full(self, limit: ReadLimit) -> bool:
        """Whether a cycle has enough."""
        return bool(self.events) and (len(self.events) >= limit.records or self.bytes >= limit.bytes)

    def is_something(self) -> bool:
        """Whether there is a cycle to make."""
        return bool(self.events) or self.signalled


def snapshot_tables(stored: Mapping[str, Json]) -> JsonObject:
    """The tables of the snapshot that an offset names, with their positions."""
    return as_object(json.loads(str(stored.get(SNAPSHOT_TABLES) or "{}")), SNAPSHOT_TABLES)


_SNAPSHOT_FIELD: Final = 4
"""Where the block `source` has its field `snapshot`."""


def _mark(place: str, *, first: bool, last: bool) -> str:
    if last and "last" in place:
        return "last"
    if first and "first" in place:
        return "first"
    if last:
        return "last_in_data_collection"
    return "first_in_data_collection" if first else "true"


def _marked(change: Change, mark: str) -> Change:
    source = list(change.source)
    source[_SNAPSHOT_FIELD] = mark
    return replace(change, source=source)


class ChangeReader(SourceReader, Generic[Event]):
    """Reads one database for one connector."""

    def __init__(self, settings: ChangeSettings, connector: str) -> None:
        self._settings = settings
        headers = context_headers(settings.prefix, connector) if settings.headers else Headers()
        self._style = RecordStyle(settings.tombstones, headers)
        self._key = partition_key({"server": settings.prefix})
        self._ready = False
        self._drained: Drained[Event] = Drained()
        self._beaten = time.monotonic()
        self._counter = Counter()
        self._work = Work()
        self._chunk: Chunk | None = None

    # -- what each kind of database does

    @abstractmethod
    def _prepare(self, stored: Mapping[str, Json]) -> None:
        """Checks the server, and that it still has what follows an offset."""

    @abstractmethod
    def _is_complete(self, stored: Mapping[str, Json]) -> bool:
        """Whether the snapshot is done."""

    @abstractmethod
    def _plan_table(self, stored: Mapping[str, Json]) -> JsonObject:
        """The offset after the next table of the snapshot."""

    @abstractmethod
    def _drain(self, stored: Mapping[str, Json], limit: ReadLimit) -> None:
        """Fills `_drained` from the log: whole transactions until the limit; one that is larger is cut."""

    @abstractmethod
    def _beat(self, stored: Mapping[str, Json]) -> JsonObject:
        """The offset of a heartbeat, when there was nothing to read."""

    @abstractmethod
    def _ask(self, sql: str) -> object:
        """Runs a statement."""

    @abstractmethod
    def _snapshot_changes(self, table: TableId) -> Iterator[Change]:
        """The rows of a table as the snapshot has them; `source` says that each is one of a snapshot."""

    @abstractmethod
    def _change(self, event: Event) -> Change:
        """The change of an event."""

    @abstractmethod
    def _tables(self) -> Sequence[TableId]:
        """The tables that the connector reads."""

    @abstractmethod
    def _read_chunk(self, waiting: Waiting) -> Chunk | None:
        """The next rows of a table in the order of its key; None to try again in the next cycle."""

    @abstractmethod
    def _chunk_is_passed(self) -> bool:
        """Whether the log was read up to where the chunk was."""

    # -- planning

    def latest_offsets(self, start: Offsets, limit: ReadLimit) -> Offsets:
        stored = start.get(self._key, {})
        if not self._ready:
            self._prepare(stored)
            self._ready = True
        if not self._is_complete(stored):
            return {**start, self._key: self._plan_table(stored)}
        if self._settings.snapshot_mode == "initial_only":
            return start
        self._drained, self._work = Drained(), Work.of(stored)
        if self._chunk is None and self._work.current is not None:
            self._chunk = self._read_chunk(self._work.current)
        self._drain(stored, limit)
        if self._chunk is not None and self._chunk_is_passed():
            self._take_chunk(self._chunk, stored)
        if self._drained.is_something():
            return {**start, self._key: self._drained.offset}
        if not self._beat_is_due():
            return start
        self._beaten = time.monotonic()
        if self._settings.heartbeat_query:
            self._ask(self._settings.heartbeat_query)
        return {**start, self._key: self._beat(stored)}

    def _signal(self, kind: str | None, data: str | None, at: str) -> None:
        """Follows a signal, as soon as the log shows it."""
        self._drained.signalled = True
        self._work = obey(self._work, kind, data, self._tables, at)
        if self._chunk is not None and self._work.current != self._chunk.waiting:
            self._chunk = None

    def _take_chunk(self, chunk: Chunk, stored: Mapping[str, Json]) -> None:
        """The rows of the chunk come behind what was read of the log."""
        drained = self._drained
        drained.events += chunk.changes.values()
        self._work, self._chunk = self._work.read_up_to(chunk.after), None
        drained.offset = self._work.into(dict(drained.offset or stored))
        drained.signalled = True

    def _beat_is_due(self) -> bool:
        every_ms = self._settings.heartbeat_ms
        return bool(every_ms) and time.monotonic() - self._beaten >= every_ms / 1000

    # -- reading

    def splits(self, start: Offsets, end: Offsets, max_splits: int) -> Sequence[str]:
        """A table of the snapshot, or what was drained; one connection gives them in order."""
        if self._drained.is_something():
            return ["stream"]
        stored = start.get(self._key, {})
        if not self._is_complete(stored):
            before = snapshot_tables(stored)
            tables = snapshot_tables(end[self._key])
            in_parts = {one.table for one in Work.of(end[self._key]).tables}
            place = ("first " if not before else "") + ("last " if self._is_complete(end[self._key]) else "")
            return [
                f"{'no rows of ' if name in in_parts else ''}{place}table {name}"
                for name in tables
                if name not in before
            ]
        return ["heartbeat"]

    def read(self, split: str) -> Iterator[Read]:
        if split == "stream":
            for event in self._drained.events:
                if isinstance(event, SourceRecord):
                    yield event
                elif isinstance(event, Mark):
                    yield event.record(self._settings.transactions_topic)
                elif isinstance(event, Change):
                    yield from records_of_change(event, self._style)
                else:
                    yield from records_of_change(self._change(event), self._style)
        elif split == "heartbeat":
            yield heartbeat(self._settings.prefix, self._settings.heartbeat_prefix)
        else:
            place, _, table = split.partition("table ")
            if "first" in place:
                yield from self._before_snapshot()
            if place.startswith("no rows"):
                return
            schema, _, name = table.partition(".")
            for change in self._marked(TableId(name, schema), place):
                yield from records_of_change(change, self._style)

    def _before_snapshot(self) -> Iterator[SourceRecord]:
        """Records before those of the first table."""
        return iter(())

    def _marked(self, table: TableId, place: str) -> Iterator[Change]:
        """The rows of a table with Debezium's marks of the first and last ones, of the table and of all tables."""
        kept: Change | None = None
        first = True
        for change in self._snapshot_changes(table):
            if kept is not None:
                yield _marked(kept, _mark(place, first=first, last=False))
                first = False
            kept = change
        if kept is not None:
            yield _marked(kept, _mark(place, first=first, last=True))

    def commit(self, end: Offsets) -> None:
        self._drained = Drained()
