"""A small writer of Python source, shared by the two codec generators, and the functions that generated code calls.

Those functions run only in rare cases: long varints, tags that are set, and errors.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, NoReturn, cast

from ottla.wire.errors import DecodeError, EncodeError, UnsupportedVersionError
from ottla.wire.primitives import Buffer, read_uvarint, uvarint

MAX_STRING: Final = 0x7FFF
"""Kafka's longest string, in bytes."""


Compiled = Callable[..., Any]
"""A function that was generated, or a method of a `struct.Struct`: its arguments depend on the schema."""


class Source:
    """The lines of one function, its indentation, new names, and the globals that it runs with."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.globals: dict[str, object] = {}
        self._depth = 1
        self._names = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def constant(self, prefix: str, value: object) -> str:
        """The name of a global that holds the value; the same object has one name."""
        for name, known in self.globals.items():
            if known is value and name.startswith(prefix):
                return name
        name = self.name(prefix)
        self.globals[name] = value
        return name

    def compile(self, head: str, title: str) -> Compiled:
        code = compile("\n".join([head, *self.lines]), f"<{title}>", "exec")
        exec(code, self.globals)
        return cast(Compiled, self.globals[head.split("(")[0].removeprefix("def ")])


@cache
def packer(codes: str) -> Callable[..., bytes]:
    """`pack` of the big-endian struct of these codes."""
    return struct.Struct(">" + codes).pack


@cache
def unpacker(codes: str) -> Compiled:
    """`unpack_from` of the big-endian struct of these codes."""
    return struct.Struct(">" + codes).unpack_from


class ArrayStructs(dict[int, Compiled]):
    """`pack` or `unpack_from` of an array of n numbers, kept for short arrays."""

    __slots__ = ("_code", "_method")

    def __init__(self, code: str, method: str) -> None:
        super().__init__()
        self._code = code
        self._method = method

    def __missing__(self, count: int) -> Compiled:
        function: Compiled = getattr(struct.Struct(f">{count}{self._code}"), self._method)
        if count <= 64:
            self[count] = function
        return function


@cache
def array_structs(code: str, method: str) -> ArrayStructs:
    """The one table for an element's code."""
    return ArrayStructs(code, method)


def more(buf: Buffer, pos: int) -> tuple[int, int]:
    """A varint length or count of two bytes or more, whose first byte was just read."""
    value, pos = read_uvarint(buf, pos - 1)
    if value > 0x7FFF_FFFF:
        raise DecodeError(f"a length of {value - 1} at {pos} is out of range")
    return value, pos


def more_string(buf: Buffer, pos: int) -> tuple[int, int]:
    """The same for the length of a string, which has its own limit."""
    value, pos = read_uvarint(buf, pos - 1)
    if value > MAX_STRING + 1:
        raise DecodeError(f"a string of {value - 1} bytes at {pos} is longer than {MAX_STRING}")
    return value, pos


def read_tag(buf: Buffer, pos: int, end: int) -> tuple[int, int, int]:
    """A tag, where its data begin, and where they end."""
    tag, pos = read_uvarint(buf, pos)
    size, pos = read_uvarint(buf, pos)
    if tag > 0x7FFF_FFFF or size > end - pos:
        raise DecodeError(f"tag {tag} announces {size} bytes at {pos}, only {end - pos} follow")
    return tag, pos, pos + size


def short(what: str, wanted: int, there: int) -> NoReturn:
    raise DecodeError(f"{what} announces {wanted} bytes or elements, more than the {there} bytes that follow")


def null(what: str) -> NoReturn:
    raise DecodeError(f"{what} is null, but the field is not nullable")


def misfit(what: str) -> NoReturn:
    raise DecodeError(f"the tagged field {what} does not fill the size it announces")


def over_budget(what: str) -> NoReturn:
    raise DecodeError(f"{what} would take more memory than a frame of this size may")


def many_tags(what: str, count: int, most: int) -> NoReturn:
    raise DecodeError(f"{what} announces {count} tagged fields, the limit is {most}")


def long_tags(what: str, most: int) -> NoReturn:
    raise DecodeError(f"{what} has more than {most} bytes of unknown tagged fields")


def long_string(length: int) -> bytes:
    """The length prefix of a string too long for a prefix of one byte."""
    if length > MAX_STRING + 1:
        raise EncodeError(f"a string of {length - 1} bytes is longer than {MAX_STRING}")
    return uvarint(length)


def long_length(length: int) -> bytes:
    """A length prefix of two bytes or more."""
    if length < 0x4000:
        return bytes((length & 0x7F | 0x80, length >> 7))
    if length < 0x20_0000:
        return bytes((length & 0x7F | 0x80, length >> 7 & 0x7F | 0x80, length >> 14))
    return uvarint(length)


def put_tags(
    out: bytearray, known: list[tuple[int, bytes | bytearray]], unknown: Sequence[tuple[int, bytes]]
) -> None:
    """Append a section of tagged fields, sorted by their tags."""
    fields = sorted([*known, *unknown], key=lambda field: field[0])
    out += uvarint(len(fields))
    before = -1
    for tag, data in fields:
        if tag <= before:
            raise EncodeError(f"tag {tag} is set twice, or negative")
        out += uvarint(tag)
        out += uvarint(len(data))
        out += data
        before = tag


def not_in_version(what: str, version: int) -> NoReturn:
    raise UnsupportedVersionError(f"{what} is set, but version {version} has no such field")


def not_a_uuid(raw: bytes) -> NoReturn:
    raise EncodeError(f"a UUID has 16 bytes, not {len(raw)}")
