"""CBOR (RFC 8949) as JSON values, for showing. It reads what is there once, with bounds, and never runs anything."""

from __future__ import annotations

import struct
from typing import Final

from ottla.json_types import Json

MAX_DEPTH: Final = 100
MAX_ITEMS: Final = 100_000
_INDEFINITE: Final = 31
_FLOATS: Final = {25: ">e", 26: ">f", 27: ">d"}
_SIMPLE: Final[dict[int, Json]] = {20: False, 21: True, 22: None, 23: None}
_MOST_DIGITS: Final = 1024
_BIGNUM, _NEGATIVE_BIGNUM = 2, 3


class NotCbor(ValueError):
    """The bytes are not one whole CBOR item, or a larger one than is read."""


class _Break(Exception):
    """The end of an item without a length."""


def decode(data: bytes) -> Json:
    """The one item that the bytes are. NotCbor for anything else."""
    reader = _Reader(data)
    try:
        found = reader.item(0)
    except (struct.error, IndexError, UnicodeDecodeError, _Break) as error:
        raise NotCbor(str(error)) from None
    if reader.place != len(data):
        raise NotCbor("bytes are left behind the item")
    return found


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.place = 0
        self._items = 0

    def item(self, depth: int) -> Json:
        self._items += 1
        if depth > MAX_DEPTH or self._items > MAX_ITEMS:
            raise NotCbor("nested too deeply, or too many items")
        first = self._data[self.place]
        self.place += 1
        kind, short = first >> 5, first & 31
        if kind == 7:
            return self._simple(short)
        length = None if short == _INDEFINITE else self._length(short)
        match kind:
            case 0 | 1:
                if length is None:
                    raise NotCbor("a number without a length")
                return length if kind == 0 else -1 - length
            case 2 | 3:
                return self._string(kind, length, depth)
            case 4:
                return self._array(length, depth)
            case 5:
                return self._map(length, depth)
        if length is None:
            raise NotCbor("a tag without a number")
        return self._tagged(length, depth)

    def _length(self, short: int) -> int:
        if short < 24:
            return short
        if short > 27:
            raise NotCbor("a length that CBOR does not have")
        size = 1 << (short - 24)
        return int.from_bytes(self._take(size), "big")

    def _take(self, size: int) -> bytes:
        found = self._data[self.place : self.place + size]
        if len(found) != size:
            raise NotCbor("the bytes end too soon")
        self.place += size
        return found

    def _simple(self, short: int) -> Json:
        if short == _INDEFINITE:
            raise _Break
        if short in _FLOATS:
            form = _FLOATS[short]
            value: float = struct.unpack(form, self._take(struct.calcsize(form)))[0]
            return value
        if short == 24:
            short = self._take(1)[0]
        return _SIMPLE.get(short, f"simple({short})")

    def _string(self, kind: int, length: int | None, depth: int) -> str:
        if length is not None:
            data = self._take(length)
            return data.hex() if kind == 2 else data.decode()
        parts: list[str] = []
        while True:
            try:
                part = self.item(depth + 1)
            except _Break:
                return "".join(parts)
            if not isinstance(part, str):
                raise NotCbor("a piece of a string that is none")
            parts.append(part)

    def _array(self, length: int | None, depth: int) -> list[Json]:
        found: list[Json] = []
        while length is None or len(found) < length:
            try:
                found.append(self.item(depth + 1))
            except _Break:
                if length is None:
                    return found
                raise
        return found

    def _map(self, length: int | None, depth: int) -> dict[str, Json]:
        found: dict[str, Json] = {}
        count = 0
        while length is None or count < length:
            count += 1
            try:
                key = self.item(depth + 1)
            except _Break:
                if length is None:
                    return found
                raise
            found[key if isinstance(key, str) else str(key)] = self.item(depth + 1)
        return found

    def _tagged(self, tag: int, depth: int) -> Json:
        value = self.item(depth + 1)
        if tag not in (_BIGNUM, _NEGATIVE_BIGNUM):
            return value
        if not isinstance(value, str):
            raise NotCbor("a large number that is not of bytes")
        if len(value) > _MOST_DIGITS:
            return value
        try:
            number = int(value or "0", 16)
        except ValueError:
            raise NotCbor("a large number that is not of bytes") from None
        return number if tag == _BIGNUM else -1 - number
