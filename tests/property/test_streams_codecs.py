"""Keys, serdes and orders of the streams, at random."""

from __future__ import annotations

import heapq
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.streams.errors import SerializationError
from ottla.streams.graph.java_order import TreeSet
from ottla.streams.interpreter.keys import decode_key, encode_key
from ottla.streams.planner.rows import Tasks, arrival_order, spark_hash
from ottla.streams.records import Window, Windowed
from ottla.streams.serdes import (
    as_serde,
    float_serde,
    int32_serde,
    json_serde,
    long_serde,
    session_windowed_serde,
    str_serde,
    time_windowed_serde,
)

longs = st.integers(-(1 << 63), (1 << 63) - 1)
times = st.integers(0, 1 << 50)
simple = st.one_of(st.text(), st.binary(), longs, st.booleans(), st.floats(allow_nan=False), st.integers())
keys = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.tuples(inner, inner),
        st.builds(lambda key, start, size: Windowed(key, Window(start, start + size)), inner, times, times),
    ),
    max_leaves=6,
)


@given(keys)
def test_a_key_comes_back_from_its_bytes(key: Any) -> None:
    back = decode_key(encode_key(key))
    assert back == key
    assert type(back) is type(key)


@given(keys, keys)
def test_different_keys_have_different_bytes(one: Any, other: Any) -> None:
    same = encode_key(one) == encode_key(other)
    assert same == (one == other and type(one) is type(other)) or (same is False and one == other)


@given(st.text(), longs, st.floats(allow_nan=False), times, times)
def test_what_a_serde_writes_it_reads(text: str, number: int, real: float, start: int, size: int) -> None:
    assert str_serde.decode(str_serde.encode(text)) == text
    assert long_serde.decode(long_serde.encode(number)) == number
    assert long_serde.encode(number) == number.to_bytes(8, "big", signed=True)
    assert math.copysign(1, float_serde.decode(float_serde.encode(real))) == math.copysign(1, real)
    key = Windowed(text, Window(start, start + size))
    assert time_windowed_serde(str_serde, size).decode(time_windowed_serde(str_serde).encode(key)) == key
    assert session_windowed_serde(str_serde).decode(session_windowed_serde(str_serde).encode(key)) == key


def test_numbers_are_as_java_writes_them() -> None:
    assert int32_serde.encode(-2) == b"\xff\xff\xff\xfe"
    assert float_serde.encode(1.5) == bytes.fromhex("3ff8000000000000")
    assert json_serde.decode(json_serde.encode({"a": [1, None]})) == {"a": [1, None]}
    with pytest.raises(SerializationError, match="int32 cannot write"):
        int32_serde.serialize(1 << 40)
    with pytest.raises(SerializationError, match="8 bytes are expected, not 3"):
        long_serde.deserialize(b"abc")
    with pytest.raises(SerializationError, match="not a serde"):
        as_serde("yaml")


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30)), max_size=60))
def test_records_arrive_as_a_merge_of_their_partitions(rows: list[tuple[int, int]]) -> None:
    lanes = np.array([lane for lane, _ in rows], np.int64)
    stamps = np.array([time for _, time in rows], np.int64)
    places = np.arange(len(rows), dtype=np.int64)
    order = arrival_order(lanes, places, np.zeros(len(rows), np.int64), stamps).tolist()

    queues = {lane: [at for at, (one, _) in enumerate(rows) if one == lane] for lane, _ in rows}
    heads = [(rows[queue[0]][1], lane) for lane, queue in queues.items()]
    heapq.heapify(heads)
    merged = []
    while heads:
        reached, lane = heapq.heappop(heads)
        merged.append(queues[lane].pop(0))
        if queues[lane]:
            heapq.heappush(heads, (max(reached, rows[queues[lane][0]][1]), lane))
    assert order == merged


@given(st.integers(1, 40), st.integers(1, 12))
def test_tasks_are_spread_evenly_over_spark(count: int, shuffles: int) -> None:
    tasks = Tasks.spread(count, shuffles)
    assert len(set(tasks.groups)) == count
    loads = [0] * shuffles
    for group in tasks.groups:
        loads[spark_hash(group) % shuffles] += 1
    assert max(loads) - min(loads) <= 1


@given(st.lists(st.integers(), unique=True))
def test_a_tree_hands_its_members_out_in_order(members: list[int]) -> None:
    tree: TreeSet[list[int]] = TreeSet(lambda one, other: one < other)
    for member in members:
        tree.add([member])
    assert [member for (member,) in tree] == sorted(members)
