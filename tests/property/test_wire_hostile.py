"""Any bytes at all give a message or a DecodeError, never another exception and never much memory."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from ottla.limits import DECODE_AMPLIFICATION, DECODE_FLOOR_BYTES
from ottla.testing.messages import random_message
from ottla.wire import DecodeError, cost, decode, encode, messages
from ottla.wire.classes import WireMessage, struct_classes
from ottla.wire.headers import decode_request_header
from ottla.wire.messages import all_messages
from ottla.wire.schema import Field, Struct

SOME = settings(max_examples=examples(25), derandomize=True, deadline=None, database=None)


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


@settings(max_examples=examples(300), derandomize=True, deadline=None, database=None)
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


def swollen(cls: type[WireMessage], path: list[Field], count: int) -> bytes:
    """A frame with as many of the smallest elements in one array of the message as are asked for."""
    classes = struct_classes(cls.NAME)
    *outer, array = path
    element = classes[array.type]() if array.struct is not None else SMALLEST.get(array.type, 77)
    values: dict[str, Any] = {array.name: [element] * count}
    for field in reversed(outer):
        struct = classes[field.type](**values)
        values = {field.name: [struct] if field.is_array else struct}
    return encode(cls(**values), cls.MAX_VERSION)


SMALLEST = {"string": "ab", "uuid": bytes(range(16))}


def arrays_of(cls: type[WireMessage], struct: Struct, path: list[Field]) -> Iterator[list[Field]]:
    for field in struct.fields:
        if cls.MAX_VERSION in field.versions:
            here = [*path, field]
            if field.is_array:
                yield here
            if field.struct is not None:
                yield from arrays_of(cls, field.struct, here)


def hungriest_arrays() -> list[tuple[type[WireMessage], list[Field]]]:
    """The arrays whose elements take the most memory for the fewest bytes, one of each kind."""
    kinds: dict[tuple[int, int], tuple[type[WireMessage], list[Field]]] = {}
    for cls in all_messages():
        # tracemalloc looks up the line of each allocation, which takes long in the decoders of large messages.
        if len(cls.MESSAGE.structs) > 3:
            continue
        for path in arrays_of(cls, cls.SCHEMA, []):
            taken = cost.element_cost(path[-1], cls.MAX_VERSION)
            kinds.setdefault(
                (taken, cost.min_element_size(path[-1], cls.MESSAGE, cls.MAX_VERSION)), (cls, path)
            )
    return [kinds[kind] for kind in sorted(kinds, key=lambda kind: kind[1] / kind[0])[:8]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cls", "path"), hungriest_arrays(), ids=lambda one: one.NAME if hasattr(one, "NAME") else one[-1].name
)
def test_many_small_elements_stay_within_the_bound(cls, path):
    size = cost.min_element_size(path[-1], cls.MESSAGE, cls.MAX_VERSION)
    unchecked = cls.DECODERS[cls.MAX_VERSION].unchecked_size // size - 20
    for count in (unchecked, 2 * unchecked, 10 * unchecked):
        data = swollen(cls, path, count)
        bound = max(DECODE_FLOOR_BYTES, DECODE_AMPLIFICATION * len(data))
        assert peak_of_decoding(cls, cls.MAX_VERSION, data) <= bound


@pytest.mark.parametrize("count", [30_000, pytest.param(200_000, marks=pytest.mark.slow)])
def test_many_unknown_tags_stay_within_the_bound(count: int):
    cls = messages.ApiVersionsRequest
    tags = [(tag, b"") for tag in range(count)]
    data = encode(cls(unknown_tagged_fields=tags), 4)  # type: ignore[call-arg]
    bound = max(DECODE_FLOOR_BYTES, DECODE_AMPLIFICATION * len(data))
    assert peak_of_decoding(cls, 4, data) <= bound


def test_strings_that_widen_stay_within_the_bound():
    cls = messages.MetadataRequest
    topic = cls.MetadataRequestTopic(name="a" * 30_000 + "😀")
    data = encode(cls(topics=[topic] * 700), 9)
    assert len(data) > DECODE_FLOOR_BYTES
    bound = DECODE_AMPLIFICATION * len(data)
    assert peak_of_decoding(cls, 9, data) <= bound + 200_000
