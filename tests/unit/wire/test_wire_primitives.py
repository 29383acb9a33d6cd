from __future__ import annotations

import pytest

from ottla.wire import DecodeError, EncodeError
from ottla.wire.primitives import read_uvarint, uvarint
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


@pytest.mark.parametrize("data", ["", "80", "ffff", "ffffffff10", "808080808000", "ffffffffff01"])
def test_a_varint_that_ends_early_or_never_is_refused(data: str):
    with pytest.raises(DecodeError):
        read_uvarint(bytes.fromhex(data), 0)


def test_a_negative_number_is_no_unsigned_varint():
    with pytest.raises(EncodeError):
        uvarint(-1)


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
