"""Bytes of keys and values as text, guessed or chosen. The browser gets only text; numbers keep all their digits."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from ottla.console.reader import cbor
from ottla.errors import ApiException

MAX_DECODED: Final = 1 << 20
"""A decoder looks at no more; longer bytes are shown as they are."""
LIST_CHARS: Final = 400
WHOLE_CHARS: Final = 256 << 10
_INDENT: Final = "  "
_TOKENS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_MAX_DEPTH: Final = 200
_HEX_ROW: Final = 16

FORMATS: Final = ("auto", "json", "text", "hex", "number", "msgpack", "cbor", "kafka")

_COORDINATORS: Final = {
    "__consumer_offsets": "kafka-group-coordinator",
    "__transaction_state": "kafka-transaction-coordinator",
    "__share_group_state": "kafka-share-coordinator",
}


@dataclass(frozen=True, slots=True)
class Shown:
    """Bytes as text, and how they were read."""

    kind: str
    text: str
    schema: int | None = None
    """The id of a registry's schema that the bytes name."""

    @property
    def line(self) -> str:
        """One line for lists."""
        flat = " ".join(self.text.split()) if self.kind == "json" else self.text
        return flat if len(flat) <= LIST_CHARS else flat[:LIST_CHARS] + " ..."


NULL: Final = Shown("null", "")


def show(data: bytes | None, how: str = "auto") -> Shown:
    """Bytes in a format; what does not fit is shown as text or hexadecimal numbers."""
    if data is None:
        return NULL
    if not data:
        return Shown("empty", "")
    if len(data) > MAX_DECODED or how == "hex":
        return Shown("hex", hex_dump(data))
    for name in (
        (how, "text", "hex")
        if how != "auto"
        else ("json", "schema", "text", "number", "msgpack", "cbor", "hex")
    ):
        found = _READERS[name](data)
        if found is not None:
            return found
    return Shown("hex", hex_dump(data))


def _json(data: bytes) -> Shown | None:
    if data[:1] not in b'{["-0123456789tfn \t\r\n' or not data.strip():
        return None
    try:
        text = data.decode()
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    if data[:1] not in b"{[":
        return Shown("text", text)
    return Shown("json", text)


def _text(data: bytes) -> Shown | None:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    odd = sum(not sign.isprintable() and sign not in "\r\n\t" for sign in text)
    return Shown("text", text) if odd * 10 <= len(text) else None


def _number(data: bytes) -> Shown | None:
    if len(data) in (4, 8):
        return Shown("number", str(struct.unpack(">i" if len(data) == 4 else ">q", data)[0]))
    return None


def _schema(data: bytes) -> Shown | None:
    """A registry's frame: a zero, an id of four bytes, and what only the schema can read."""
    if len(data) > 5 and data[0] == 0 and _text(data) is None:
        return Shown("schema", hex_dump(data[5:]), struct.unpack_from(">i", data, 1)[0])
    return None


def _msgpack(data: bytes) -> Shown | None:
    try:
        document = msgspec.msgpack.decode(data)
        if not isinstance(document, dict | list):
            return None
        return Shown("json", msgspec.json.encode(document).decode())
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
        return None


def _cbor(data: bytes) -> Shown | None:
    try:
        document = cbor.decode(data)
        if not isinstance(document, dict | list):
            return None
        return Shown("json", json.dumps(document, ensure_ascii=False))
    except (cbor.NotCbor, ValueError):
        return None


def _hex(data: bytes) -> Shown:
    return Shown("hex", hex_dump(data))


_READERS: Final = {
    "json": _json,
    "text": _text,
    "number": _number,
    "schema": _schema,
    "msgpack": _msgpack,
    "cbor": _cbor,
    "hex": _hex,
    "kafka": _text,
}


def show_record(topic: str, key: bytes | None, value: bytes | None, how: str = "auto") -> tuple[Shown, Shown]:
    """Key and value. Kafka's own topics have their own records."""
    module = _COORDINATORS.get(topic)
    if module is not None and key is not None and how in ("auto", "kafka"):
        from ottla.cli.tools.decoders import read_coordinator_record
        from ottla.cli.tools.message_json import as_text

        try:
            found = read_coordinator_record(module, key, value)
        except ApiException:
            found = None
        if found is not None:
            shown = NULL if found.value is None else Shown("json", as_text(found.value))
            return Shown("json", as_text({"type": found.kind, **found.key})), shown
    return show(key, "auto" if how == "kafka" else how), show(value, how)


def hex_dump(data: bytes, limit: int = 4096) -> str:
    """Rows of sixteen bytes with their place and their printable letters."""
    rows = []
    for start in range(0, min(len(data), limit), _HEX_ROW):
        part = data[start : start + _HEX_ROW]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        rows.append(f"{start:06x}  {part.hex(' '):<47}  {letters}")
    if len(data) > limit:
        rows.append(f"... {len(data) - limit:,} more bytes")
    return "\n".join(rows)


def pretty(shown: Shown) -> str:
    """JSON over several lines, every number and text exactly as it was written; other kinds as they are."""
    if shown.kind != "json" or len(shown.text) > WHOLE_CHARS:
        return shown.text[:WHOLE_CHARS]
    return "".join(_indented(shown.text))


def _indented(text: str) -> Iterator[str]:
    depth = 0
    tokens = _TOKENS.findall(text)
    for index, token in enumerate(tokens):
        following = tokens[index + 1] if index + 1 < len(tokens) else ""
        if token in "{[":
            depth += 1
            yield token
            if following not in ("}", "]"):
                yield "\n" + _INDENT * min(depth, _MAX_DEPTH)
        elif token in "}]":
            depth -= 1
            if index and tokens[index - 1] not in ("{", "["):
                yield "\n" + _INDENT * min(depth, _MAX_DEPTH)
            yield token
        elif token == ",":
            yield ",\n" + _INDENT * min(depth, _MAX_DEPTH)
        elif token == ":":
            yield ": "
        else:
            yield token
