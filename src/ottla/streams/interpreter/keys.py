"""Keys as bytes: under these a store keeps its entries. Equal keys have equal bytes, and the bytes yield the key."""

from __future__ import annotations

import pickle
import struct

import msgspec

from ottla.streams.records import Window, Windowed
from ottla.streams.serdes import AnySerde
from ottla.streams.type_variables import Unknown

_LONG = struct.Struct(">q")
_DOUBLE = struct.Struct(">d")
_WINDOW = struct.Struct(">qq")


def encode_key(key: Unknown) -> bytes:
    """One letter for the type, then its bytes; anything beyond the simple types is pickled."""
    kind = type(key)
    if kind is str:
        return b"s" + key.encode()  # type: ignore[no-any-return]
    if kind is bytes:
        return b"b" + key  # type: ignore[no-any-return]
    if kind is int and -(1 << 63) <= key < 1 << 63:
        return b"i" + _LONG.pack(key)
    if kind is float:
        return b"f" + _DOUBLE.pack(key)
    if kind is bool:
        return b"1" if key else b"0"
    if kind is Windowed:
        return b"w" + _WINDOW.pack(key.start, key.end) + encode_key(key.key)
    if kind is tuple:
        parts = [encode_key(part) for part in key]
        return b"t" + b"".join(_LONG.pack(len(part)) + part for part in parts)
    if kind in (dict, list):
        return b"j" + msgspec.json.encode(key, order="deterministic")
    return b"p" + pickle.dumps(key, 5)


def decode_key(data: bytes) -> Unknown:
    """The key of some bytes."""
    kind, rest = data[:1], data[1:]
    if kind == b"s":
        return str(rest, "utf-8")
    if kind == b"b":
        return bytes(rest)
    if kind == b"i":
        return _LONG.unpack(rest)[0]
    if kind == b"f":
        return _DOUBLE.unpack(rest)[0]
    if kind in b"01":
        return kind == b"1"
    if kind == b"w":
        start, end = _WINDOW.unpack(rest[:16])
        return Windowed(decode_key(rest[16:]), Window(start, end))
    if kind == b"t":
        parts = []
        while rest:
            (length,) = _LONG.unpack(rest[:8])
            parts.append(decode_key(rest[8 : 8 + length]))
            rest = rest[8 + length :]
        return tuple(parts)
    if kind == b"j":
        return msgspec.json.decode(rest)
    return pickle.loads(rest)


class KeyCodec:
    """Writes and reads the keys of a store, with its serde if it has one."""

    __slots__ = ("decode", "encode")

    def __init__(self, serde: AnySerde | None) -> None:
        self.encode = encode_key if serde is None else serde.encode
        self.decode = decode_key if serde is None else serde.decode
