"""Spark's state as the maps under our stores: entries are in buckets, read once and written back at the batch's end.

A call to Spark's state is a message to the JVM and back, at some tenths of a millisecond, whatever its size. So one
call moves a bucket of entries. Buckets split one by one as a store grows (linear hashing), and stay at a few kilobytes.
Checkpoints hold pickled `Extent`s: the class keeps its name and place.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol
from zlib import crc32

from ottla.streams.type_variables import Unknown, V

KEPT_ENTRIES: Final = 200_000
"""A Python worker keeps the state of a task between batches if it has at most this many entries."""

BUCKET_BYTES: Final = 4_096
"""The size at which buckets split. A bucket is a pickled dictionary from keys to pickled values, under a number."""

_MOST_BITS: Final = 32


def bucket_of(hashed: int, count: int) -> int:
    """The bucket of an entry, by the hash of its key and the number of buckets."""
    bits = (count - 1).bit_length()
    place = hashed & ((1 << bits) - 1)
    return place if place < count else place & ((1 << (bits - 1)) - 1)


def possible_buckets(key: bytes) -> list[int]:
    """All buckets that an entry may be in, for any number of buckets."""
    hashed = crc32(key)
    # Spark's int is signed; no store comes near that many buckets.
    return sorted({hashed & ((1 << bits) - 1) for bits in range(_MOST_BITS)})


def read_bucket(data: bytes | bytearray | memoryview) -> dict[bytes, bytes]:
    """The pickled values of a bucket by their keys."""
    entries: dict[bytes, bytes] = pickle.loads(data)
    return entries


@dataclass(slots=True)
class Known:
    """The known part of a store: buckets as they are in Spark's state, and values that were read or changed."""

    buckets: dict[int, dict[bytes, bytes]] = field(default_factory=dict)
    values: dict[bytes, Unknown] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(map(len, self.buckets.values()))


@dataclass(slots=True)
class Extent:
    """The size of a store; it is kept beside the store."""

    buckets: int = 1
    held_bytes: int = 0


class MapState(Protocol):
    """Spark's MapState from a bucket's number to its bytes, each in a tuple."""

    def getValue(self, key: tuple[int]) -> tuple[bytes] | None:  # noqa: N802
        """The bytes of a bucket."""

    def updateValue(self, key: tuple[int], value: tuple[bytes]) -> None:  # noqa: N802
        """Replaces the bytes of a bucket."""

    def removeKey(self, key: tuple[int]) -> None:  # noqa: N802
        """Removes a bucket."""

    def iterator(self) -> Iterator[tuple[tuple[int], tuple[bytes]]]:
        """All buckets."""


class SparkMap(Generic[V]):
    """A StateMap over Spark's MapState; changes reach it with `write_back`."""

    __slots__ = ("_buckets", "_changed", "_extent", "_known", "_state")

    def __init__(self, state: MapState, known: Known, extent: Extent) -> None:
        self._state = state
        self._known = known.values
        self._buckets = known.buckets
        self._extent = extent
        self._changed: set[bytes] = set()

    def get(self, key: bytes) -> V | None:
        """The value of a key, or None."""
        value: V | None
        try:
            value = self._known[key]
        except KeyError:
            held = self._bucket(bucket_of(crc32(key), self._extent.buckets)).get(key)
            value = None if held is None else pickle.loads(held)
            self._known[key] = value
        return value

    def put(self, key: bytes, value: V) -> None:
        """Sets the value of a key."""
        self._known[key] = value
        self._changed.add(key)

    def delete(self, key: bytes) -> None:
        """Removes a key, if it is there."""
        self._known[key] = None
        self._changed.add(key)

    def items(self) -> Iterator[tuple[bytes, V]]:
        """All keys and values; reads all buckets."""
        for place, held in self._state.iterator():
            if place[0] not in self._buckets:
                self._buckets[place[0]] = read_bucket(held[0])
        held_entries = [entry for bucket in self._buckets.values() for entry in bucket.items()]
        for key, pickled in held_entries:
            if key not in self._known:
                yield key, pickle.loads(pickled)
        for key, value in list(self._known.items()):
            if value is not None:
                yield key, value

    def write_back(self) -> None:
        """Writes all changes into Spark's state."""
        touched = {self._take_in(key) for key in self._changed}
        self._changed.clear()
        touched |= self._grow()
        for place in touched:
            entries = self._buckets[place]
            if entries:
                self._state.updateValue((place,), (pickle.dumps(entries, 5),))
            else:
                self._state.removeKey((place,))

    def _bucket(self, place: int) -> dict[bytes, bytes]:
        entries = self._buckets.get(place)
        if entries is None:
            held = self._state.getValue((place,))
            entries = self._buckets[place] = {} if held is None else read_bucket(held[0])
        return entries

    def _take_in(self, key: bytes) -> int:
        """Puts a changed value into its bucket; returns the bucket's number."""
        place = bucket_of(crc32(key), self._extent.buckets)
        entries = self._bucket(place)
        before = entries.pop(key, None)
        if before is not None:
            self._extent.held_bytes -= len(key) + len(before)
        value = self._known[key]
        if value is not None:
            entries[key] = pickled = pickle.dumps(value, 5)
            self._extent.held_bytes += len(key) + len(pickled)
        return place

    def _grow(self) -> set[int]:
        """Splits buckets until they are small enough again; returns those that have changed."""
        extent, before = self._extent, self._extent.buckets
        extent.buckets = max(before, extent.held_bytes // BUCKET_BYTES + 1)
        made = range(before, extent.buckets)
        split = {bucket_of(place, before) for place in made}
        for place in split:
            self._bucket(place)
        self._buckets.update({place: {} for place in made})
        for place in split:
            entries = self._buckets[place]
            for key in list(entries):
                now = bucket_of(crc32(key), extent.buckets)
                if now != place:
                    self._buckets[now][key] = entries.pop(key)
        return split.union(made)


_remembered: dict[tuple[str, int, int], tuple[bytes, dict[str, Known]]] = {}


def recall(run: str, stage: int, group: int, token: bytes | None) -> dict[str, Known]:
    """The task's state that this worker has kept, if the token says that it has not changed since."""
    held = _remembered.pop((run, stage, group), None)
    return held[1] if held is not None and held[0] == token else {}


def remember(run: str, stage: int, group: int, token: bytes, known: dict[str, Known]) -> None:
    """Keeps a task's state in this worker for its next batch, unless it is large."""
    if sum(map(len, known.values())) <= KEPT_ENTRIES:
        _remembered[run, stage, group] = (token, known)
