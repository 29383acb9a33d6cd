"""Applications that only count: Spark's own aggregation has the counts of the interpreter."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.streams import StreamsBuilder, StreamsError, TopologyTestDriver, col
from ottla.streams.planner.count_patterns import has_only_plain_counts
from ottla.streams.planner.plan import Strategy
from ottla.streams.planner.query import plan_for_spark
from ottla.streams.planner.rows import Tasks
from spark.streams_batches import Arrived, Output, run_batches, write_batches
from spark.streams_fakes import FakeCounts


def words() -> StreamsBuilder:
    b = StreamsBuilder()
    lines = b.stream("in").flat_map_values(lambda line: line.lower().split())
    lines.group_by(lambda _, word: word).count(store="words").to_stream().to("out")
    return b


def by_key() -> StreamsBuilder:
    b = StreamsBuilder()
    b.stream("in").group_by_key().count(store="keys").to_stream().map_values(str).to("out")
    return b


def every_step() -> StreamsBuilder:
    b = StreamsBuilder()
    (
        b.stream("in")
        .filter(col("value").length() > 2)
        .filter_not(lambda key, value: value.startswith("b") and key == "k1")
        .map(lambda key, value: (value[:1], f"{key} {value}"))
        .flat_map(lambda key, value: [(key, word) for word in value.split()])
        .map_values(lambda value: None if value == "c" else value)
        .select_key(lambda _, value: (len(value or ""), value) if value != "k2" else 7)
        .group_by_key()
        .count(store="steps")
        .to_stream()
        .to("out", key_serde="json")
    )
    return b


def two_ways() -> StreamsBuilder:
    """Two counts of one stream, one of them behind a branch: there is no loop for that."""
    b = StreamsBuilder()
    stream = b.stream("in")
    stream.group_by(lambda value: value[:1]).count(store="letters").to_stream().to("out")
    stream.filter(lambda value: "a" in value).group_by_key().count(store="some").to_stream().to("other")
    return b


def skipping() -> StreamsBuilder:
    b = StreamsBuilder()
    b.stream("in", on_error="skip").flat_map_values(lambda line: [line, 1 // line.count("a")]).group_by(
        lambda value: str(value)
    ).count(store="skips").to_stream().to("out")
    return b


COUNTING = [words, by_key, every_step, two_ways, skipping]


def batches(seed: int, partitions: int = 3) -> list[list[Arrived]]:
    rng = random.Random(seed)
    offsets = [0] * partitions
    made, now = [], 1_000
    for _ in range(3):
        batch = []
        for _ in range(200):
            now += rng.randrange(3)
            partition = rng.randrange(partitions)
            text = " ".join(rng.choices(["a", "b", "Abc", "bcd", "ca", "é"], k=rng.randrange(1, 5)))
            key = None if rng.random() < 0.05 else b"k%d" % rng.randrange(4)
            late = rng.choice([0, 0, 0, 7])
            batch.append(Arrived("in", partition, offsets[partition], key, text.encode(), max(0, now - late)))
            offsets[partition] += 1
        made.append(batch)
    return made


def last_of(output: list[Output]) -> dict[tuple[str, bytes | None], Output]:
    return {(one.topic, one.key): one for one in output}


def interpreted(make: Callable[[], StreamsBuilder], given: list[list[Arrived]]) -> list[Any]:
    """The last record of each key and batch."""
    found = []
    with TopologyTestDriver(make()) as driver:
        for batch in given:
            for one in batch:
                driver.pipe_input("in", one.value, one.key, timestamp=one.time)
            output = [
                Output(topic, record.key, record.value, record.timestamp)
                for topic in ("out", "other")
                for record in driver.read_all(topic, key_serde=bytes, value_serde=bytes)
            ]
            found.append(last_of(output))
    return found


@pytest.mark.parametrize("make", COUNTING)
def test_counts_are_those_of_the_interpreter(make: Callable[[], StreamsBuilder]) -> None:
    plan = plan_for_spark(make().build())
    assert plan.strategy is Strategy.COUNTS
    for seed in range(5):
        given = batches(seed, partitions=1)
        counted = FakeCounts(plan, Tasks.spread(1, 2))
        on_spark = [counted.run(batch) for batch in given]
        assert [last_of(output) for output in on_spark] == interpreted(make, given)
        assert all(len(last_of(output)) == len(output) for output in on_spark)


def test_nulls_and_bytes_that_are_no_text_are_counted_as_by_the_interpreter() -> None:
    def make() -> StreamsBuilder:
        b = StreamsBuilder()
        b.stream("in", on_error="skip").group_by_key().count(store="keys").to_stream().map_values(str).to(
            "out"
        )
        return b

    plain = [(b"k", b"v"), (b"k", None), (None, b"v"), (b"l", None), ("é".encode(), b"v"), (b"k", b"w")]
    broken = [*plain, (b"\xff", b"v"), (b"k", b"\xff"), (b"k", b"x")]
    given = [
        [Arrived("in", 0, at, key, value, 90 - at) for at, (key, value) in enumerate(records)]
        for records in (plain, broken, plain)
    ]
    counted = FakeCounts(plan_for_spark(make().build()), Tasks.spread(1, 2))
    assert [last_of(counted.run(batch)) for batch in given] == interpreted(make, given)


def test_a_key_in_two_partitions_is_counted_in_each_unless_the_stream_is_regrouped() -> None:
    given = batches(seed=1)
    alone = FakeCounts(plan_for_spark(by_key().build()), Tasks.spread(3, 2))
    alone.run(given[0])
    expected = {(one.partition, one.key) for one in given[0] if one.key is not None}
    assert {(task, name[1:]) for _, task, name in alone.held} == expected
    together = FakeCounts(plan_for_spark(words().build()), Tasks.spread(3, 2))
    output = together.run(given[0])
    with TopologyTestDriver(words()) as driver:
        for one in given[0]:
            driver.pipe_input("in", one.value, one.key, timestamp=one.time)
        expected_words = {record.key: record.value for record in driver.read_all("out", value_serde=int)}
    assert {(one.key or b"").decode(): int.from_bytes(one.value or b"", "big") for one in output} == (
        expected_words
    )


def test_a_function_that_fails_is_told_with_its_record() -> None:
    b = StreamsBuilder()
    b.stream("in").group_by(lambda value: 1 // value.count("a")).count(store="c").to_stream().to("out")
    counted = FakeCounts(plan_for_spark(b.build()), Tasks.spread(1, 2))
    with pytest.raises(StreamsError, match=r"in-0 at offset 1 failed: ZeroDivisionError"):
        counted.run([Arrived("in", 0, 0, None, b"a", 5), Arrived("in", 0, 1, None, b"b", 5)])


def test_who_needs_more_than_counts_is_left_alone() -> None:
    both = words()
    both.stream("in").filter(lambda value: "a" in value).to("loud")
    assert not has_only_plain_counts(both.build())
    summed = StreamsBuilder()
    summed.stream("in").group_by_key().reduce(lambda a, b: a + b).to_stream().to("out")
    assert not has_only_plain_counts(summed.build())
    letters = StreamsBuilder()
    letters.stream("in", on_error="dead-letter", dead_letter_topic="dead").group_by(
        lambda value: value
    ).count().to_stream().to("out")
    assert not has_only_plain_counts(letters.build())
    twice = StreamsBuilder()
    first = twice.stream("in").group_by(lambda value: value).count().to_stream()
    first.group_by(lambda _, count: count).count().to_stream().to("out")
    assert not has_only_plain_counts(twice.build())


@pytest.mark.timeout(600)
def test_spark_keeps_the_counts(spark: Any, tmp_path: Path) -> None:
    given = batches(seed=9, partitions=1)
    write_batches(tmp_path / "in", given)
    output = run_batches(spark, two_ways().build(), tmp_path / "in", tmp_path / "checkpoint", tasks=1)
    assert [last_of(one) for one in output if one] == interpreted(two_ways, given)
