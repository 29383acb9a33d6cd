"""Every message in every version comes back as it went."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.testing.messages import random_message
from ottla.wire import decode, decode_prefix, encode, encode_buffers
from ottla.wire.messages import all_messages
from ottla.wire.primitives import (
    read_uvarint,
    read_uvarlong,
    read_varint,
    read_varlong,
    size_of_uvarint,
    size_of_varint,
    uvarint,
    varint,
    write_uvarint,
    write_varint,
)

FEW = settings(max_examples=4, derandomize=True, deadline=None, database=None)
MANY = settings(max_examples=200, derandomize=True, deadline=None, database=None)
seeds = st.integers(min_value=0, max_value=2**64 - 1)


@pytest.mark.parametrize("cls", all_messages(), ids=lambda cls: cls.NAME)
def test_a_message_comes_back_as_it_went(cls):
    @FEW
    @given(seed=seeds)
    def round_trips(seed: int) -> None:
        rng = random.Random(seed)
        for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1):
            message = random_message(cls, version, rng, unknown_tags=True)
            data = encode(message, version)
            assert decode(cls, version, data) == message
            assert decode(cls, version, memoryview(bytearray(data))) == message
            assert b"".join(encode_buffers(message, version)) == data
            framed = b"before" + data + b"after"
            assert decode_prefix(cls, version, framed, 6) == (message, 6 + len(data))

    round_trips()


@MANY
@given(st.integers(min_value=0, max_value=2**64 - 1))
def test_unsigned_varints_come_back(value: int):
    data = uvarint(value)
    out = bytearray()
    write_uvarint(out, value)
    assert data == out and len(data) == size_of_uvarint(value)
    assert read_uvarlong(b"x" + data, 1) == (value, 1 + len(data))
    assert value >= 1 << 32 or read_uvarint(data, 0) == (value, len(data))


@MANY
@given(st.integers(min_value=-(2**63), max_value=2**63 - 1))
def test_signed_varints_come_back(value: int):
    data = varint(value)
    out = bytearray()
    write_varint(out, value)
    assert data == out and len(data) == size_of_varint(value)
    assert read_varlong(data, 0) == (value, len(data))
    assert not -(1 << 31) <= value < 1 << 31 or read_varint(data, 0) == (value, len(data))
