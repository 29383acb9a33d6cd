from __future__ import annotations

import pytest

from ottla.wire import DecodeError, EncodeError
from ottla.wire.primitives import (
    read_bytes,
    read_compact_string,
    read_string,
    read_uvarint,
    read_uvarlong,
    uvarint,
    varint,
    write_uvarint,
)
from ottla.wire.uuid import METADATA_TOPIC_ID, ZERO_UUID, uuid_from_str, uuid_to_str


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (300, "ac02"),
        (2**31 - 1, "ffffffff07"),
        (2**32 - 1, "ffffffff0f"),
    ],
)
def test_unsigned_varints(value: int, data: str):
    assert uvarint(value).hex() == data
    assert read_uvarint(bytes.fromhex(data), 0) == (value, len(data) // 2)


@pytest.mark.parametrize(("value", "data"), [(0, "00"), (-1, "01"), (1, "02"), (-64, "7f"), (64, "8001")])
def test_signed_varints(value: int, data: str):
    assert varint(value).hex() == data


@pytest.mark.parametrize("data", ["", "80", "ffff", "ffffffff10", "808080808000", "ffffffffff01"])
def test_a_varint_that_ends_early_or_never_is_refused(data: str):
    with pytest.raises(DecodeError):
        read_uvarint(bytes.fromhex(data), 0)


@pytest.mark.parametrize("data", ["80", "80" * 10 + "00", "ff" * 9 + "02"])
def test_a_varlong_that_ends_early_or_never_is_refused(data: str):
    with pytest.raises(DecodeError):
        read_uvarlong(bytes.fromhex(data), 0)


def test_a_negative_number_is_no_unsigned_varint():
    with pytest.raises(EncodeError):
        uvarint(-1)
    with pytest.raises(EncodeError):
        write_uvarint(bytearray(), -1)


def test_strings_and_bytes_are_checked_against_what_is_there():
    assert read_compact_string(b"\x03ab", 0) == ("ab", 3)
    assert read_compact_string(b"\x00", 0) == (None, 1)
    assert read_bytes(b"abc", 1, 2) == (b"bc", 3)
    for bad in (lambda: read_bytes(b"abc", 1, 3), lambda: read_bytes(b"abc", 1, -1)):
        with pytest.raises(DecodeError):
            bad()
    with pytest.raises(DecodeError, match="UTF-8"):
        read_string(b"\xff\xff", 0, 2)


def test_uuids_as_kafka_prints_them():
    assert uuid_to_str(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert uuid_to_str(METADATA_TOPIC_ID) == "AAAAAAAAAAAAAAAAAAAAAQ"
    raw = bytes(range(240, 256))
    assert uuid_from_str(uuid_to_str(raw)) == raw
    assert uuid_from_str("AAAAAAAAAAAAAAAAAAAAAQ==") == METADATA_TOPIC_ID


@pytest.mark.parametrize("text", ["", "AAAA", "A" * 21, "!" * 22, "+" * 22, "A" * 43, "é" * 22])
def test_what_is_no_uuid_is_refused(text: str):
    with pytest.raises(ValueError, match="UUID"):
        uuid_from_str(text)


def test_a_uuid_has_sixteen_bytes():
    with pytest.raises(ValueError, match="16 bytes"):
        uuid_to_str(b"abc")
