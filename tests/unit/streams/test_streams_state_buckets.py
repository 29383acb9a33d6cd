"""Entries in buckets of Spark's state: the same as in a dictionary, with far fewer calls."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from typing import Any
from zlib import crc32

from ottla.streams.planner import state
from ottla.streams.planner.state import (
    BUCKET_BYTES,
    Extent,
    Known,
    SparkMap,
    bucket_of,
    possible_buckets,
    recall,
    remember,
)


class CountedState:
    """Spark's map state as a dictionary that counts the calls."""

    def __init__(self) -> None:
        self.held: dict[tuple[int], tuple[bytes]] = {}
        self.calls = 0

    def getValue(self, key: tuple[int]) -> tuple[bytes] | None:
        self.calls += 1
        return self.held.get(key)

    def updateValue(self, key: tuple[int], value: tuple[bytes]) -> None:
        self.calls += 1
        self.held[key] = value

    def removeKey(self, key: tuple[int]) -> None:
        self.calls += 1
        self.held.pop(key, None)

    def iterator(self) -> Iterator[tuple[tuple[int], tuple[bytes]]]:
        self.calls += 1
        return iter(list(self.held.items()))


def test_a_store_is_the_dictionary_it_stands_for_in_every_batch() -> None:
    chance = random.Random(4)
    spark, extent = CountedState(), Extent()
    model: dict[bytes, Any] = {}
    known = Known()
    for batch in range(60):
        if batch % 3 == 0:
            # Another worker, which remembers nothing; facts travel as bytes.
            known, extent = Known(), pickle.loads(pickle.dumps(extent))
        entries = SparkMap(spark, known, extent)
        for _ in range(chance.choice((1, 40, 400))):
            key = b"k%d" % chance.randrange(3_000)
            assert entries.get(key) == model.get(key)
            if chance.random() < 0.2:
                entries.delete(key)
                model.pop(key, None)
            else:
                value = model[key] = {"count": chance.randrange(1_000), "text": "x" * chance.randrange(80)}
                entries.put(key, value)
        if batch % 7 == 0:
            assert dict(entries.items()) == model
        entries.write_back()
    assert dict(SparkMap(spark, Known(), extent).items()) == model
    assert extent.buckets > 10
    assert extent.held_bytes == sum(
        len(key) + len(value)
        for held in spark.held.values()
        for key, value in state.read_bucket(held[0]).items()
    )


def test_many_new_keys_are_few_calls_and_a_single_one_needs_one_bucket() -> None:
    spark, extent = CountedState(), Extent()
    first = SparkMap(spark, Known(), extent)
    for number in range(5_000):
        key = b"user%d" % number
        assert first.get(key) is None
        first.put(key, number)
    first.write_back()
    assert spark.calls < 100
    assert max(len(held[0]) for held in spark.held.values()) < 4 * BUCKET_BYTES
    spark.calls = 0
    second = SparkMap(spark, Known(), extent)
    assert second.get(b"user77") == 77
    second.put(b"user77", 78)
    second.write_back()
    assert spark.calls == 2


def test_large_values_have_buckets_of_their_own() -> None:
    spark, extent = CountedState(), Extent()
    entries = SparkMap(spark, Known(), extent)
    for number in range(64):
        entries.put(b"%d" % number, bytes(10 * BUCKET_BYTES))
    entries.write_back()
    assert extent.buckets > 64 * 9


def test_what_was_deleted_leaves_no_bucket_behind() -> None:
    spark, extent = CountedState(), Extent()
    entries = SparkMap(spark, Known(), extent)
    for number in range(3_000):
        entries.put(b"%d" % number, number)
    entries.write_back()
    for number in range(3_000):
        entries.delete(b"%d" % number)
    entries.write_back()
    assert spark.held == {}
    assert extent.held_bytes == 0


def test_a_key_is_among_its_possible_buckets_however_many_there_are() -> None:
    chance = random.Random(5)
    for count in (1, 2, 3, 4, 5, 7, 8, 9, 1_000, 1_024, 1_025, 123_456):
        for _ in range(50):
            key = chance.randbytes(8)
            place = bucket_of(crc32(key), count)
            assert 0 <= place < count
            assert place in possible_buckets(key)


def test_a_worker_remembers_buckets_only_for_their_token() -> None:
    known = {"counts": Known({0: {b"a": b"1"}}, {b"a": 1})}
    remember("run", 1, 2, b"token", known)
    assert recall("run", 1, 2, b"another") == {}
    remember("run", 1, 2, b"token", known)
    assert recall("run", 1, 2, b"token") is known
