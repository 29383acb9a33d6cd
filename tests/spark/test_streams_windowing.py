"""Windowed counts that are added up where records are read equal those of the interpreter."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from ottla.streams import StreamsBuilder, StreamsError, TopologyTestDriver, hopping, tumbling
from ottla.streams.planner.count_patterns import windowed_counts_by_topic
from ottla.streams.planner.plan import Strategy
from ottla.streams.planner.query import needs_headers, plan_for_spark
from ottla.streams.planner.rows import Tasks
from ottla.streams.windows import TimeWindows
from spark.streams_batches import Arrived, Output, run_batches, write_batches
from spark.streams_fakes import FakeSpark

WINDOWS = [tumbling(10), tumbling(10, grace=15), hopping(10, 4, grace=3), hopping(9, 4)]
PARTITIONS = 3


def counting(windows: TimeWindows, on_error: str = "fail") -> StreamsBuilder:
    b = StreamsBuilder()
    counts = b.stream("in", on_error=on_error).group_by_key().windowed_by(windows).count(store="counts")
    counts.to_stream().to("out")
    return b


def batches(seed: int, *, broken: float = 0.0) -> list[list[Arrived]]:
    rng = random.Random(seed)
    offsets = [0] * PARTITIONS
    made, now = [], 0
    for _ in range(4):
        batch = []
        for _ in range(300):
            now += rng.random() < 0.2
            number = rng.randrange(6)
            partition = number % PARTITIONS
            key = None if rng.random() < 0.04 else b"k%d" % number
            value = None if rng.random() < 0.05 else b"v"
            if rng.random() < broken:
                key, value = rng.choice([(key, b"\xff"), (b"\xfe", value)])
            late = rng.choice([0, 0, 0, 5, 14, 40])
            batch.append(Arrived("in", partition, offsets[partition], key, value, max(0, now - late)))
            offsets[partition] += 1
        now += rng.choice([0, 12])
        made.append(batch)
    return made


def last_of(output: list[Output]) -> dict[Any, Output]:
    return {one.key: one for one in output}


def interpreted(builder: StreamsBuilder, given: list[list[Arrived]]) -> list[dict[Any, Output]]:
    """The last record of each window and batch; each partition has a time of its own."""
    found: list[dict[Any, Output]] = [{} for _ in given]
    for partition in range(PARTITIONS):
        with TopologyTestDriver(builder) as driver:
            for batch, output in zip(given, found, strict=True):
                for one in batch:
                    if one.partition == partition:
                        driver.pipe_input("in", one.value, one.key, timestamp=one.time)
                records = driver.read_all("out", key_serde=bytes, value_serde=bytes)
                output.update(last_of([Output("out", one.key, one.value, one.timestamp) for one in records]))
    return found


@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("seed", range(4))
def test_counts_in_windows_are_those_of_the_interpreter(windows: TimeWindows, seed: int) -> None:
    plan = plan_for_spark(counting(windows).build())
    assert plan.strategy is Strategy.WINDOWED_COUNTS and not needs_headers(plan)
    given = batches(seed)
    stages = FakeSpark(plan, Tasks.spread(PARTITIONS, 2), forgetful=seed % 2 == 0)
    on_spark = [stages.run(batch) for batch in given]
    assert [last_of(output) for output in on_spark] == interpreted(counting(windows), given)
    assert all(len(last_of(output)) == len(output) for output in on_spark)


def test_records_that_cannot_be_read_are_left_out_or_told() -> None:
    given = batches(7, broken=0.05)
    skipping = counting(tumbling(10, grace=5), "skip")
    stages = FakeSpark(plan_for_spark(skipping.build()), Tasks.spread(PARTITIONS, 2))
    assert [last_of(stages.run(batch)) for batch in given] == interpreted(skipping, given)
    failing = FakeSpark(plan_for_spark(counting(tumbling(10)).build()), Tasks.spread(1, 2))
    with pytest.raises(StreamsError, match=r"cannot read these 1 bytes"):
        failing.run([Arrived("in", 0, 0, b"k", b"a", 5), Arrived("in", 0, 1, b"k", b"\xff", 5)])


def test_what_is_more_than_a_windowed_count_is_left_alone() -> None:
    both = counting(tumbling(10))
    both.stream("in").filter(lambda value: "a" in value).to("loud")
    assert not windowed_counts_by_topic(both.build())
    joined = counting(tumbling(10))
    joined.table("other").to_stream().to("copy")
    assert not windowed_counts_by_topic(joined.build())
    closing = StreamsBuilder()
    grouped = closing.stream("in").group_by_key().windowed_by(tumbling(10)).emit_on_window_close()
    grouped.count().to_stream().to("out")
    assert not windowed_counts_by_topic(closing.build())


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.timeout(600)
def test_spark_counts_in_windows(spark: Any, tmp_path: Path) -> None:
    given = [[one for one in batch if one.partition == 0] for batch in batches(11)]
    write_batches(tmp_path / "in", given)
    built = counting(hopping(10, 4, grace=3))
    output = run_batches(spark, built.build(), tmp_path / "in", tmp_path / "checkpoint", tasks=1)
    assert [last_of(one) for one in output] == interpreted(built, given)
