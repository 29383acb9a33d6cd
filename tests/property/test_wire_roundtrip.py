"""Every message in every version comes back as it went."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from ottla.testing.messages import random_message
from ottla.wire import decode, decode_prefix, encode
from ottla.wire.classes import WireMessage
from ottla.wire.codec import encode_into
from ottla.wire.messages import all_messages
from ottla.wire.primitives import Buffer, read_uvarint, uvarint

FEW = settings(max_examples=4, derandomize=True, deadline=None, database=None)
seeds = st.integers(min_value=0, max_value=2**64 - 1)


def encode_buffers(message: WireMessage, version: int) -> list[Buffer]:
    buffers: list[Buffer] = []
    buffers.append(encode_into(message, version, bytearray(), buffers))
    return buffers


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


@settings(FEW, max_examples=examples(200))
@given(st.integers(min_value=0, max_value=2**32 - 1))
def test_varints_come_back(value: int):
    data = uvarint(value)
    assert read_uvarint(b"x" + data, 1) == (value, 1 + len(data))
