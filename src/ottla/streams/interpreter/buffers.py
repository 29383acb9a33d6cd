"""Stores in the order of time: the changes that suppress holds back, and records of an outer join without partner."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Generic

from ottla.streams.interpreter.state_map import StateMap
from ottla.streams.records import Change, Headers
from ottla.streams.type_variables import V

_SEGMENT_MS = 1_000
"""Entries of one second share an entry of the map."""

_SEGMENT = struct.Struct(">q")

Place = tuple[int, int, bytes]


class TimeOrdered(Generic[V]):
    """Values by (time, rank, key), kept in segments of a second; the list of segments is a scalar of its own."""

    scalars: tuple[str, ...] = ("segments", "count")

    def __init__(self, entries: StateMap) -> None:
        self._entries = entries
        self.segments: tuple[int, ...] = ()
        self.count = 0

    def get(self, place: Place) -> V | None:
        """The value at a place, or None."""
        segment = self._entries.get(self._name(place))
        return None if segment is None else segment.get(place)

    def put(self, place: Place, value: V) -> None:
        """Sets the value at a place."""
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
        """Removes a place, if it is there."""
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

    def items(self) -> Iterator[tuple[Place, V]]:
        """The earliest first; the caller may delete an entry that it received."""
        for number in self.segments:
            segment = self._entries.get(b"T" + _SEGMENT.pack(number)) or {}
            yield from sorted(segment.items(), key=lambda entry: entry[0])

    @staticmethod
    def _name(place: Place) -> bytes:
        return b"T" + _SEGMENT.pack(place[0] // _SEGMENT_MS)


HeldChange = tuple[object, Change, int, Headers]
"""Key, change, time and headers. A plain tuple: checkpoints hold it."""


class SuppressBuffer(TimeOrdered[HeldChange]):
    """At most one change per key; a newer change takes the place and time of the first."""

    def hold(self, time: int, key: bytes, value: HeldChange) -> None:
        """Keeps a change under the time of the first change of its key."""
        known: int | None = self._entries.get(b"K" + key)
        if known is None:
            self._entries.put(b"K" + key, time)
            known = time
        self.put((known, 0, key), value)

    def release_while(self, may_go: Callable[[int], bool]) -> Iterator[HeldChange]:
        """Takes out the earliest changes, as long as their time may go."""
        if not self.segments or not may_go(self.segments[0] * _SEGMENT_MS):
            return
        for place, value in self.items():
            if not may_go(place[0]):
                return
            self._entries.delete(b"K" + place[2])
            self.delete(place)
            yield value
