"""Stores in the order of time: what suppress holds back, and what an outer join still waits for."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from ottla.streams.interpreter.state_map import StateMap

_SEGMENT_MS = 1_000
"""Entries of one second share an entry of the map."""

_SEGMENT = struct.Struct(">q")

Place = tuple[int, int, bytes]
T = TypeVar("T")


class TimeOrdered(Generic[T]):
    """Values by (time, rank, key), kept in segments of a second; the list of segments is a scalar of its own."""

    scalars: tuple[str, ...] = ("segments", "count")

    def __init__(self, entries: StateMap) -> None:
        self._entries = entries
        self.segments: tuple[int, ...] = ()
        self.count = 0

    def get(self, place: Place) -> T | None:
        segment = self._entries.get(self._name(place))
        return None if segment is None else segment.get(place)

    def put(self, place: Place, value: T) -> None:
        name = self._name(place)
        segment = self._entries.get(name)
        if segment is None:
            segment = {}
            self.segments = tuple(sorted((*self.segments, place[0] // _SEGMENT_MS)))
        if place not in segment:
            self.count += 1
        segment[place] = value
        self._entries.put(name, segment)

    def delete(self, place: Place) -> None:
        name = self._name(place)
        segment = self._entries.get(name)
        if segment is None or place not in segment:
            return
        self.count -= 1
        del segment[place]
        if segment:
            self._entries.put(name, segment)
        else:
            self._entries.delete(name)
            gone = place[0] // _SEGMENT_MS
            self.segments = tuple(number for number in self.segments if number != gone)

    def items(self) -> Iterator[tuple[Place, T]]:
        """The earliest first; the caller may delete what it was given."""
        for number in self.segments:
            segment = self._entries.get(b"T" + _SEGMENT.pack(number)) or {}
            yield from sorted(segment.items(), key=lambda entry: entry[0])

    @staticmethod
    def _name(place: Place) -> bytes:
        return b"T" + _SEGMENT.pack(place[0] // _SEGMENT_MS)


class SuppressBuffer(TimeOrdered[Any]):
    """At most one held change per key; a newer change takes the place and time of the first."""

    def hold(self, time: int, key: bytes, value: Any) -> None:
        known: int | None = self._entries.get(b"K" + key)
        if known is None:
            self._entries.put(b"K" + key, time)
            known = time
        self.put((known, 0, key), value)

    def release_while(self, may_go: Callable[[int], bool]) -> Iterator[Any]:
        """Takes out the earliest, as long as its time may go."""
        if not self.segments or not may_go(self.segments[0] * _SEGMENT_MS):
            return
        for place, value in self.items():
            if not may_go(place[0]):
                return
            self._entries.delete(b"K" + place[2])
            self.delete(place)
            yield value
