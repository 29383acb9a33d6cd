"""Serdes: values to bytes and back. Numbers are big-endian, as Kafka's own serializers write them."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from typing import Generic, Literal, TypeVar, cast

import msgspec

from ottla.streams.errors import SerializationError
from ottla.streams.records import Window, Windowed
from ottla.streams.type_variables import K, Unknown, V

T = TypeVar("T")


class Serde(Generic[V]):
    """A named pair of functions, one that writes a value as bytes and one that reads it.

    `None` never reaches them: Kafka has null keys and values of its own.

    >>> hexadecimal = Serde("hex", lambda number: b"%x" % number, lambda data: int(data, 16))
    >>> hexadecimal.serialize(255)
    b'ff'
    """

    __slots__ = ("_made_by", "decode", "encode", "name")

    def __init__(
        self,
        name: str,
        encode: Callable[[V], bytes],
        decode: Callable[[bytes], V],
        made_by: str | tuple[object, ...] | None = None,
    ) -> None:
        self.name = name
        self.encode = encode
        self.decode = decode
        self._made_by = made_by

    def __reduce__(self) -> str | tuple[object, ...]:
        """A serde of this module is pickled as its name, or as the call that makes it."""
        return self._made_by or (Serde, (self.name, self.encode, self.decode))

    def serialize(self, value: V | None) -> bytes | None:
        """The bytes of a value; None stays None.

        >>> long_serde.serialize(1)
        b'\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x01'
        """
        if value is None:
            return None
        try:
            return self.encode(value)
        except (struct.error, TypeError, ValueError, AttributeError, msgspec.MsgspecError) as problem:
            raise SerializationError(
                f"the serde {self.name} cannot write a {type(value).__name__}: {problem}"
            ) from problem

    def deserialize(self, data: bytes | None) -> V | None:
        """The value of some bytes; None stays None.

        >>> str_serde.deserialize(b"hello")
        'hello'
        """
        if data is None:
            return None
        try:
            return self.decode(data)
        except (struct.error, TypeError, ValueError, msgspec.MsgspecError) as problem:
            raise SerializationError(
                f"the serde {self.name} cannot read these {len(data)} bytes: {problem}"
            ) from problem

    def __repr__(self) -> str:
        return f"Serde({self.name})"


AnySerde = Serde[Unknown]
"""A serde of values whose type is not known here."""

SerdeLike = Serde[V] | type[V] | Literal["json"] | None
"""The ways to name a serde: a Serde, a type (`int`, a dataclass, `list[int]`), or `"json"`."""


def _number(name: str, layout: str, made_by: str, kind: type[T]) -> Serde[T]:
    packed = struct.Struct(layout)

    def decode(data: bytes) -> T:
        if len(data) != packed.size:
            raise ValueError(f"{packed.size} bytes are expected, not {len(data)}")
        value: T = packed.unpack(data)[0]
        return value

    return Serde(name, packed.pack, decode, made_by)


def _encode_str(value: str) -> bytes:
    return value.encode()


def _decode_str(data: bytes) -> str:
    return str(data, "utf-8")


def _decode_bool(data: bytes) -> bool:
    if len(data) != 1:
        raise ValueError(f"1 byte is expected, not {len(data)}")
    return data != b"\0"


bytes_serde: Serde[bytes] = Serde("bytes", bytes, bytes, "bytes_serde")
"""Bytes as they are."""
str_serde: Serde[str] = Serde("str", _encode_str, _decode_str, "str_serde")
"""UTF-8, as Java's StringSerde."""
long_serde: Serde[int] = _number("long", ">q", "long_serde", int)
"""Python's int in eight bytes, as Java's LongSerde."""
int_serde = long_serde
"""Another name for `long_serde`; `int32_serde` is Java's IntegerSerde."""
int32_serde: Serde[int] = _number("int32", ">i", "int32_serde", int)
short_serde: Serde[int] = _number("short", ">h", "short_serde", int)
float_serde: Serde[float] = _number("double", ">d", "float_serde", float)
"""Eight bytes, as Java's DoubleSerde; Python's float is a double."""
float32_serde: Serde[float] = _number("float32", ">f", "float32_serde", float)
bool_serde: Serde[bool] = Serde("bool", lambda value: b"\1" if value else b"\0", _decode_bool, "bool_serde")
json_serde: AnySerde = Serde("json", msgspec.json.encode, msgspec.json.decode, "json_serde")


def typed_json_serde(kind: type[T]) -> Serde[T]:
    """JSON that is checked against a type when it is read: dataclasses, TypedDicts, msgspec Structs, `list[int]`, ...

    >>> typed_json_serde(list[int]).deserialize(b"[1, 2]")
    [1, 2]
    """
    decoder = msgspec.json.Decoder(kind)
    name = f"json:{getattr(kind, '__name__', kind)}"
    return Serde(name, msgspec.json.encode, decoder.decode, (typed_json_serde, (kind,)))


def _encode_natural(value: object) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, bool):
        return b"\1" if value else b"\0"
    if isinstance(value, int):
        return long_serde.encode(value)
    if isinstance(value, float):
        return float_serde.encode(value)
    if isinstance(value, Windowed):
        return time_windowed_serde(natural_serde).encode(value)
    return msgspec.json.encode(value)


natural_serde: AnySerde = Serde("natural", _encode_natural, _decode_str, "natural_serde")
"""Used where no serde is given: it reads text; it writes text, bytes, long, double or JSON, by the value's type."""


def time_windowed_serde(inner: Serde[K], size_ms: int | None = None) -> Serde[Windowed[K]]:
    """A key and eight bytes of its window's start, as Kafka writes windowed keys.

    >>> serde = time_windowed_serde(str_serde, size_ms=10_000)
    >>> serde.deserialize(serde.serialize(Windowed("a", Window(0, 10_000))))
    Windowed(key='a', window=Window(start=0, end=10000))
    """

    def encode(key: Windowed[K]) -> bytes:
        return (inner.serialize(key.key) or b"") + struct.pack(">q", key.start)

    def decode(data: bytes) -> Windowed[K]:
        (start,) = struct.unpack(">q", data[-8:])
        end = start + size_ms if size_ms is not None else 2**63 - 1
        return Windowed(cast("K", inner.deserialize(data[:-8])), Window(start, end))

    made_by = (time_windowed_serde, (inner, size_ms))
    return Serde(f"time-windowed {inner.name}", encode, decode, made_by)


def session_windowed_serde(inner: Serde[K]) -> Serde[Windowed[K]]:
    """A key, the session's end and its start, eight bytes each, as Kafka writes them.

    >>> serde = session_windowed_serde(str_serde)
    >>> serde.deserialize(serde.serialize(Windowed("a", Window(5, 25))))
    Windowed(key='a', window=Window(start=5, end=25))
    """

    def encode(key: Windowed[K]) -> bytes:
        return (inner.serialize(key.key) or b"") + struct.pack(">qq", key.end, key.start)

    def decode(data: bytes) -> Windowed[K]:
        end, start = struct.unpack(">qq", data[-16:])
        return Windowed(cast("K", inner.deserialize(data[:-16])), Window(start, end))

    return Serde(f"session-windowed {inner.name}", encode, decode, (session_windowed_serde, (inner,)))


_OF_TYPE: dict[object, AnySerde] = {
    str: str_serde,
    bytes: bytes_serde,
    int: long_serde,
    float: float_serde,
    bool: bool_serde,
    dict: json_serde,
    list: json_serde,
}


def as_serde(what: SerdeLike[V]) -> Serde[V] | None:
    """The serde for what a user gave: a Serde, a Python type, a dataclass, or `"json"`.

    >>> as_serde(int)
    Serde(long)
    >>> as_serde("json")
    Serde(json)
    """
    if what is None or isinstance(what, Serde):
        return what
    # A serializer of `ottla.schemas` makes one.
    make: Callable[[], Serde[V]] | None = getattr(what, "streams_serde", None)
    if make is not None:
        return make()
    if what == "json":
        return json_serde
    if what in _OF_TYPE:
        return _OF_TYPE[what]
    if dataclasses.is_dataclass(what) or isinstance(what, type) or hasattr(what, "__origin__"):
        return typed_json_serde(what)
    raise SerializationError(f"{what!r} is not a serde: give a Serde, a type, a dataclass or 'json'")
