"""Kafka's file of offsets in standalone mode: a serialized Java HashMap of byte arrays, read and written as Java does.

Only the two classes of that map are read: anything else in a file is refused, and nothing is ever executed.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ottla.connect.failures import ConnectError
from ottla.connect.whole_files import write_whole

_START: Final = bytes.fromhex("aced0005")
_MAP: Final = (
    b"sr\0\x11java.util.HashMap"
    + bytes.fromhex("0507dac1c31660d1")
    + b"\x03\0\x02F\0\x0aloadFactorI\0\x09thresholdxp"
)
_ARRAY_CLASS: Final = b"r\0\x02[B" + bytes.fromhex("acf317f8060854e0") + b"\x02\0\0xp"
_ARRAY_REFERENCE: Final = b"q\0\x7e\0\x02"
_LARGEST_FILE: Final = 256 << 20


def read_offset_file(path: Path) -> dict[bytes, bytes | None]:
    """The entries of a file; none if the file is missing or empty."""
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise ConnectError(f"{path} has more than {_LARGEST_FILE} bytes: it is no file of offsets")
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConnectError(f"the file of offsets {path} cannot be read: {error.strerror}") from None
    if not data:
        return {}
    try:
        return _parse(data)
    except (IndexError, struct.error, ValueError):
        raise ConnectError(
            f"{path} is not a file of offsets that Kafka Connect wrote, or it is damaged: move it away to begin "
            f"without offsets"
        ) from None


def _parse(data: bytes) -> dict[bytes, bytes | None]:
    head = _START + _MAP
    if not data.startswith(head):
        raise ValueError
    at = len(head) + 8
    if data[at : at + 2] != b"\x77\x08":
        raise ValueError
    count = struct.unpack_from(">i", data, at + 6)[0]
    at += 10
    entries: dict[bytes, bytes | None] = {}
    for _ in range(count):
        key, at = _array(data, at)
        value, at = _array(data, at)
        if key is None:
            raise ValueError
        entries[key] = value
    if data[at] != 0x78:
        raise ValueError
    return entries


def _array(data: bytes, at: int) -> tuple[bytes | None, int]:
    if data[at] == 0x70:
        return None, at + 1
    if data[at] != 0x75:
        raise ValueError
    at += 1
    for known in (_ARRAY_CLASS, _ARRAY_REFERENCE):
        if data.startswith(known, at):
            at += len(known)
            break
    else:
        raise ValueError
    size = struct.unpack_from(">i", data, at)[0]
    if size < 0 or at + 4 + size > len(data):
        raise ValueError
    return data[at + 4 : at + 4 + size], at + 4 + size


def write_offset_file(path: Path, entries: Mapping[bytes, bytes | None]) -> None:
    """Replaces the file; a crash leaves the old one or the new one."""
    slots = 16
    while len(entries) > slots * 3 // 4:
        slots *= 2
    parts = [_START, _MAP, struct.pack(">fi", 0.75, slots * 3 // 4)]
    parts.append(b"\x77\x08" + struct.pack(">ii", slots, len(entries)))
    known = False
    for one in (part for entry in entries.items() for part in entry):
        if one is None:
            parts.append(b"p")
            continue
        parts += [b"u", _ARRAY_REFERENCE if known else _ARRAY_CLASS, struct.pack(">i", len(one)), one]
        known = True
    parts.append(b"x")
    try:
        write_whole(path, b"".join(parts))
    except OSError as error:
        raise ConnectError(f"the file of offsets {path} cannot be written: {error.strerror}") from None
