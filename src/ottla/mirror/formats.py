"""Keys and values of the internal topics: offset syncs, checkpoints and heartbeats as MirrorMaker 2 writes them, byte
for byte, and the runs of this mirror."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from ottla.mirror.runs import Run
from ottla.pipeline.writer import Place

_SHORT: Final = struct.Struct(">h")
_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
_VERSION: Final = 0
_MOST_STRING: Final = 32_767


class BadRecord(ValueError):
    """A record of an internal topic that is not what it should be."""


def _text(value: str) -> bytes:
    data = value.encode()
    if len(data) > _MOST_STRING:
        raise BadRecord(f"a text of {len(data)} bytes is longer than {_MOST_STRING}")
    return _SHORT.pack(len(data)) + data


class _Reader:
    """Takes fields from the front of some bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _number(self, kind: struct.Struct) -> int:
        try:
            (value,) = kind.unpack_from(self._data, self._at)
        except struct.error:
            raise BadRecord("a record ends too early") from None
        self._at += kind.size
        return int(value)

    def short(self) -> int:
        return self._number(_SHORT)

    def integer(self) -> int:
        return self._number(_INT)

    def long(self) -> int:
        return self._number(_LONG)

    def text(self) -> str:
        size = self.short()
        data = self._data[self._at : self._at + size]
        if size < 0 or len(data) != size:
            raise BadRecord("a text ends too early")
        self._at += size
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise BadRecord("a text is not UTF-8") from None

    def version(self) -> None:
        found = self.short()
        if found != _VERSION:
            raise BadRecord(f"version {found} is not known")


class OffsetSync(NamedTuple):
    """That an offset of a source's partition is an offset of the target's."""

    place: Place
    upstream: int
    downstream: int

    def key(self) -> bytes:
        """The key of its record."""
        return _text(self.place.topic) + _INT.pack(self.place.partition)

    def value(self) -> bytes:
        """The value of its record."""
        return _LONG.pack(self.upstream) + _LONG.pack(self.downstream)

    @classmethod
    def parse(cls, key: bytes, value: bytes) -> OffsetSync:
        """From a record; BadRecord if it is none."""
        keys, values = _Reader(key), _Reader(value)
        return cls(Place(keys.text(), keys.integer()), values.long(), values.long())


class Checkpoint(NamedTuple):
    """Where a group stands at both sides; the place is that of the target."""

    group: str
    place: Place
    upstream: int
    downstream: int
    metadata: str = ""

    def key(self) -> bytes:
        """The key of its record."""
        return _text(self.group) + _text(self.place.topic) + _INT.pack(self.place.partition)

    def value(self) -> bytes:
        """The value of its record."""
        offsets = _LONG.pack(self.upstream) + _LONG.pack(self.downstream)
        return _SHORT.pack(_VERSION) + offsets + _text(self.metadata)

    @classmethod
    def parse(cls, key: bytes, value: bytes) -> Checkpoint:
        """From a record; BadRecord if it is none."""
        keys, values = _Reader(key), _Reader(value)
        values.version()
        group, place = keys.text(), Place(keys.text(), keys.integer())
        return cls(group, place, values.long(), values.long(), values.text())


class Heartbeat(NamedTuple):
    """That a flow was at work at a time."""

    source: str
    target: str
    timestamp: int

    def key(self) -> bytes:
        """The key of its record."""
        return _text(self.source) + _text(self.target)

    def value(self) -> bytes:
        """The value of its record."""
        return _SHORT.pack(_VERSION) + _LONG.pack(self.timestamp)

    @classmethod
    def parse(cls, key: bytes, value: bytes) -> Heartbeat:
        """From a record; BadRecord if it is none."""
        keys, values = _Reader(key), _Reader(value)
        values.version()
        return cls(keys.text(), keys.text(), values.long())


def run_key(place: Place, run: Run) -> bytes:
    """The key of a run's record: a run that grows replaces its earlier record."""
    return _text(place.topic) + _INT.pack(place.partition) + _LONG.pack(run.upstream)


def run_value(run: Run) -> bytes:
    """The value of a run's record."""
    return _LONG.pack(run.upstream) + _LONG.pack(run.downstream) + _LONG.pack(run.span)


def parse_run_key(key: bytes) -> tuple[Place, int]:
    """The partition at the source, and the first offset of the run there."""
    reader = _Reader(key)
    return Place(reader.text(), reader.integer()), reader.long()


def parse_run_value(value: bytes) -> Run:
    """The run."""
    reader = _Reader(value)
    return Run(reader.long(), reader.long(), reader.long())
