"""Any bytes at all give a message or a DecodeError, never another exception and never much memory."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.limits import DECODE_AMPLIFICATION, DECODE_FLOOR_BYTES
from ottla.testing.messages import random_message
from ottla.wire import DecodeError, decode, encode, messages
from ottla.wire.classes import WireMessage, WireStruct, struct_classes
from ottla.wire.headers import decode_request_header
from ottla.wire.messages import all_messages
from ottla.wire.schema import Field, Struct

SOME = settings(max_examples=25, derandomize=True, deadline=None, database=None)


def decodes_or_refuses(cls: type[WireMessage], version: int, data: bytes) -> None:
    try:
        message = decode(cls, version, data)
    except DecodeError as error:
        assert error.message
    else:
        assert isinstance(message, cls)


@pytest.mark.parametrize("cls", all_messages(), ids=lambda cls: cls.NAME)
def test_bytes_that_were_damaged_or_made_up(cls):
    @SOME
    @given(data=st.binary(max_size=80), seed=st.integers(min_value=0, max_value=2**32))
    def holds(data: bytes, seed: int) -> None:
        rng = random.Random(seed)
        version = rng.randint(cls.MIN_VERSION, cls.MAX_VERSION)
        decodes_or_refuses(cls, version, data)
        good = bytearray(encode(random_message(cls, version, rng, unknown_tags=True), version))
        for _ in range(rng.randint(1, 4)):
            if good:
                good[rng.randrange(len(good))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        decodes_or_refuses(cls, version, bytes(good))
        decodes_or_refuses(cls, version, bytes(good[: rng.randint(0, len(good))]))

    if cls.MIN_VERSION <= cls.MAX_VERSION:
        holds()


@settings(max_examples=300, derandomize=True, deadline=None, database=None)
@given(st.binary(max_size=40))
def test_any_bytes_as_a_request_header(data: bytes):
    try:
        header, offset = decode_request_header(data)
    except DecodeError:
        return
    assert 0 <= header.request_api_key <= 92 and offset <= len(data)


def peak_of_decoding(cls: Any, version: int, data: bytes) -> int:
    decode(cls, version, encode(cls(), version))  # compiles the codec, which is not what is measured
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        decodes_or_refuses(cls, version, data)
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def swollen(cls: type[WireMessage], version: int, count: int) -> list[bytes]:
    """Frames that hold as many of the smallest elements as they can, one frame for each array of the message."""
    frames: list[bytes] = []

    def visit(struct: Struct, build: Callable[[dict[str, Any]], Any]) -> None:
        for field in struct.fields:
            if version not in field.versions:
                continue
            inner = struct_classes(cls.NAME).get(field.type)
            if inner is not None and field.struct is not None:
                visit(field.struct, nested(build, inner, field))
            if field.is_array:
                element = inner() if inner is not None else SMALLEST.get(field.type, 77)
                frames.append(encode(build({field.name: [element] * count}), version))

    visit(cls.SCHEMA, lambda values: cls(**values))
    return frames


SMALLEST = {"string": "ab", "uuid": bytes(range(16))}


def nested(
    build: Callable[[dict[str, Any]], Any], inner: type[WireStruct], field: Field
) -> Callable[[dict[str, Any]], Any]:
    """Builds a message around the values of a struct deep inside of it."""

    def with_values(values: dict[str, Any]) -> Any:
        struct = inner(**values)
        return build({field.name: [struct] if field.is_array else struct})

    return with_values


HUNGRY = [
    "ProduceRequest",
    "FetchRequest",
    "MetadataResponse",
    "CreateTopicsRequest",
    "DescribeConfigsRequest",
]
OTHERS = [cls.NAME for cls in all_messages() if cls.NAME not in HUNGRY and cls.MIN_VERSION <= cls.MAX_VERSION]


@pytest.mark.parametrize("name", [*HUNGRY, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)])
def test_many_small_elements_stay_within_the_bound(name: str):
    cls = getattr(messages, name)
    version = cls.MAX_VERSION
    for count in (15_000, 150_000):
        for data in swollen(cls, version, count):
            bound = max(DECODE_FLOOR_BYTES, DECODE_AMPLIFICATION * len(data))
            assert peak_of_decoding(cls, version, data) <= bound, (name, count, len(data))


def test_many_unknown_tags_stay_within_the_bound():
    cls = messages.ApiVersionsRequest
    for count in (40_000, 400_000):
        tags = [(tag, b"") for tag in range(count)]
        data = encode(cls(unknown_tagged_fields=tags), 4)
        bound = max(DECODE_FLOOR_BYTES, DECODE_AMPLIFICATION * len(data))
        assert peak_of_decoding(cls, 4, data) <= bound, count


def test_strings_that_widen_stay_within_the_bound():
    cls = messages.MetadataRequest
    topic = cls.MetadataRequestTopic(name="a" * 30_000 + "😀")
    data = encode(cls(topics=[topic] * 700), 9)
    assert len(data) > DECODE_FLOOR_BYTES
    bound = DECODE_AMPLIFICATION * len(data)
    assert peak_of_decoding(cls, 9, data) <= bound + 200_000
