"""Bytes to values and back. Numbers are big-endian as Kafka's own serializers write them."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from ottla.streams.errors import SerializationError
from ottla.streams.records import Window, Windowed

T = TypeVar("T")


class Serde(Generic[T]):
    """A named pair of functions. `None` never reaches them: Kafka has nulls of its own."""

    __slots__ = ("_made_by", "decode", "encode", "name")

    def __init__(
        self,
        name: str,
        encode: Callable[[T], bytes],
        decode: Callable[[bytes], T],
        made_by: str | tuple[Callable[..., Any], tuple[Any, ...]] | None = None,
    ) -> None:
        self.name = name
        self.encode = encode
        self.decode = decode
        self._made_by = made_by

    def __reduce__(self) -> str | tuple[Any, ...]:
        """On its way to a Spark worker a serde of ours travels as its name, or as how to make it."""
        return self._made_by or (Serde, (self.name, self.encode, self.decode))

    def serialize(self, value: T | None) -> bytes | None:
        if value is None:
            return None
        try:
            return self.encode(value)
        except (struct.error, TypeError, ValueError, AttributeError, msgspec.MsgspecError) as problem:
            raise SerializationError(
                f"the serde {self.name} cannot write a {type(value).__name__}: {problem}"
            ) from problem

    def deserialize(self, data: bytes | None) -> T | None:
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


AnySerde = Serde[Any]
"""A serde of values whose type is not known here."""


def _number(name: str, layout: str, made_by: str) -> Serde[Any]:
    packed = struct.Struct(layout)

    def decode(data: bytes) -> Any:
        if len(data) != packed.size:
            raise ValueError(f"{packed.size} bytes are expected, not {len(data)}")
        return packed.unpack(data)[0]

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
str_serde: Serde[str] = Serde("str", _encode_str, _decode_str, "str_serde")
long_serde: Serde[int] = _number("long", ">q", "long_serde")
"""Eight bytes, as Java's LongSerde."""
int_serde = long_serde
"""Python's int is written as Kafka's long; `int32_serde` is Java's IntegerSerde."""
int32_serde: Serde[int] = _number("int32", ">i", "int32_serde")
short_serde: Serde[int] = _number("short", ">h", "short_serde")
float_serde: Serde[float] = _number("double", ">d", "float_serde")
"""Eight bytes, as Java's DoubleSerde; Python's float is a double."""
float32_serde: Serde[float] = _number("float32", ">f", "float32_serde")
bool_serde: Serde[bool] = Serde("bool", lambda value: b"\1" if value else b"\0", _decode_bool, "bool_serde")
json_serde: Serde[Any] = Serde("json", msgspec.json.encode, msgspec.json.decode, "json_serde")


def typed_json_serde(kind: type[T]) -> Serde[T]:
    """JSON checked against a type on the way in: dataclasses, TypedDicts, msgspec Structs, `list[int]`..."""
    decoder = msgspec.json.Decoder(kind)
    name = f"json:{getattr(kind, '__name__', kind)}"
    return Serde(name, msgspec.json.encode, decoder.decode, (typed_json_serde, (kind,)))


def _encode_natural(value: Any) -> bytes:
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


natural_serde: Serde[Any] = Serde("natural", _encode_natural, _decode_str, "natural_serde")
"""Where no serde is named: text is read; a value decides how it is written (text, bytes, long, double, else JSON)."""


def time_windowed_serde(inner: Serde[Any], size_ms: int | None = None) -> Serde[Windowed]:
    """A key and eight bytes of its window's start, as Kafka writes windowed keys."""

    def encode(key: Windowed) -> bytes:
        return (inner.serialize(key.key) or b"") + struct.pack(">q", key.start)

    def decode(data: bytes) -> Windowed:
        (start,) = struct.unpack(">q", data[-8:])
        end = start + size_ms if size_ms is not None else 2**63 - 1
        return Windowed(inner.deserialize(data[:-8]), Window(start, end))

    made_by = (time_windowed_serde, (inner, size_ms))
    return Serde(f"time-windowed {inner.name}", encode, decode, made_by)


def session_windowed_serde(inner: Serde[Any]) -> Serde[Windowed]:
    """A key, the session's end and its start, eight bytes each, as Kafka writes them."""

    def encode(key: Windowed) -> bytes:
        return (inner.serialize(key.key) or b"") + struct.pack(">qq", key.end, key.start)

    def decode(data: bytes) -> Windowed:
        end, start = struct.unpack(">qq", data[-16:])
        return Windowed(inner.deserialize(data[:-16]), Window(start, end))

    return Serde(f"session-windowed {inner.name}", encode, decode, (session_windowed_serde, (inner,)))


_OF_TYPE: dict[Any, Serde[Any]] = {
    str: str_serde,
    bytes: bytes_serde,
    int: long_serde,
    float: float_serde,
    bool: bool_serde,
    dict: json_serde,
    list: json_serde,
}


def as_serde(what: Any) -> Serde[Any] | None:
    """A serde as users write it: a Serde, a Python type, a dataclass, or `"json"`."""
    if what is None or isinstance(what, Serde):
        return what
    if what == "json":
        return json_serde
    if what in _OF_TYPE:
        return _OF_TYPE[what]
    if dataclasses.is_dataclass(what) or isinstance(what, type) or hasattr(what, "__origin__"):
        return typed_json_serde(what)
    raise SerializationError(f"{what!r} is no serde: give a Serde, a type, a dataclass or 'json'")
