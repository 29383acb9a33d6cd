"""The interpreter and Spark give the same results: every operator, random records, batch by batch."""

from __future__ import annotations

import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.cloudpickle import register_pickle_by_value

from oracle import streams_topologies
from oracle.streams_topologies import TOPOLOGIES
from ottla.streams import StreamsBuilder, Topology, TopologyTestDriver
from ottla.streams.dsl.wiring import Wiring
from ottla.streams.graph.operators import Sink, Source
from ottla.streams.interpreter.record_cache import only_last_change_matters
from ottla.streams.interpreter.task import is_global
from ottla.streams.planner.rows import Tasks
from ottla.streams.planner.stages import make_plan
from spark.streams_batches import Arrived, Output, run_batches, write_batches
from spark.streams_fakes import FakeSpark

BY_THE_CLOCK = {"processor"}
"""Topologies whose results depend on the wall clock, which a test on Spark cannot stop."""

ONLY_LAST = {"foreign-keys"}
"""The states of a foreign key join within one batch may differ."""

NEVER_NULL = {"wordcount-a", "cogroup-b"}
BATCHES = 3
RECORDS = 600


class PrefixedWiring(Wiring):
    """All topologies in one: each with topics of its own."""

    prefix = ""

    def add(self, name: str, operator: Any, *parents: str, stores: tuple[str, ...] = ()) -> str:
        outside = isinstance(operator, (Sink, Source)) and not operator.internal
        if outside and isinstance(operator, Sink) and isinstance(operator.topic, str):
            operator.topic = self.prefix + operator.topic
        if outside and isinstance(operator, Source):
            operator.topics = tuple(self.prefix + topic for topic in operator.topics)
        return super().add(name, operator, *parents, stores=stores)


class ManyBuilder(StreamsBuilder):
    def __init__(self) -> None:
        super().__init__()
        self._wiring = self._prefixed = PrefixedWiring()

    def _same_source(self, wanted: Source) -> str | None:
        prefix = self._prefixed.prefix
        topics = tuple(prefix + topic for topic in wanted.topics)
        for node in self._wiring.topology.sources:
            if isinstance(node.operator, Source) and node.operator.topics == topics:
                return node.name
        return None

    def add_all(self) -> None:
        for name, (_, build) in TOPOLOGIES.items():
            if name not in BY_THE_CLOCK:
                self._prefixed.prefix = f"{name}-"
                build(self)


def everything() -> Topology:
    register_pickle_by_value(streams_topologies)
    builder = ManyBuilder()
    builder.add_all()
    return builder.build()


def random_batches(topology: Topology, seed: int) -> list[list[Arrived]]:
    rng = random.Random(seed)
    topics = topology.source_topics()
    offsets = Counter[str]()
    now = 0
    batches = []
    for _ in range(BATCHES):
        batch = []
        for _ in range(RECORDS):
            now += rng.random() < 0.08
            topic = rng.choice(topics)
            key = None if rng.random() < 0.03 else rng.choice([b"x", b"y", b"w"])
            value: bytes | None = rng.choice([b"a", b"b", b"c", b"m", b"n", b"z"])
            if rng.random() < 0.1 and topic not in NEVER_NULL:
                value = None
            late = rng.choice([3, 12, 30]) if rng.random() < 0.2 else 0
            batch.append(Arrived(topic, 0, offsets[topic], key, value, max(0, now - late)))
            offsets[topic] += 1
        now += rng.choice([2, 50])
        batches.append(batch)
    return batches


def in_order_of_arrival(topology: Topology, batch: list[Arrived]) -> list[Arrived]:
    """Global tables first; then always the topic whose next record is the earliest."""
    everywhere = {
        topic
        for node in topology.sources
        if is_global(node) and isinstance(node.operator, Source)
        for topic in node.operator.topics
    }
    lanes = {topic: [one for one in batch if one.topic == topic] for topic in topology.source_topics()}
    order = [one for topic in everywhere for one in lanes.pop(topic)]
    heads = dict.fromkeys(lanes, 0)
    while any(lanes.values()):
        for topic, waiting in lanes.items():
            if waiting:
                heads[topic] = max(heads[topic], waiting[0].time)
        topic = min((topic for topic in lanes if lanes[topic]), key=lambda topic: heads[topic])
        order.append(lanes[topic].pop(0))
    return order


def one_partition_after_the_other(topology: Topology, batch: list[Arrived]) -> list[Arrived]:
    """A key has one partition, and the others do not affect it."""
    partitions = sorted({one.partition for one in batch})
    parts = [[one for one in batch if one.partition == partition] for partition in partitions]
    return [one for part in parts for one in in_order_of_arrival(topology, part)]


def interpreted(topology: Topology, batches: list[list[Arrived]]) -> list[list[Output]]:
    output = []
    with TopologyTestDriver(topology) as driver:
        for batch in batches:
            for one in one_partition_after_the_other(topology, batch):
                driver.pipe_input(one.topic, one.value, one.key, timestamp=one.time)
            output.append(
                [
                    Output(topic, record.key, record.value, record.timestamp)
                    for topic in driver.output_topics()
                    for record in driver.read_all(topic, key_serde=bytes, value_serde=bytes)
                ]
            )
    return output


def last_values(output: list[Output]) -> dict[tuple[str, bytes | None], tuple[bytes | None, int]]:
    return {(one.topic, one.key): (one.value, one.time) for one in output}


def table(batches: list[list[Output]], topic: str) -> dict[bytes | None, bytes]:
    """The rows of a table after some batches of changes."""
    last = {one.key: one.value for batch in batches for one in batch if one.topic == topic}
    return {key: value for key, value in last.items() if value is not None}


def gathered_topics(topology: Topology) -> set[str]:
    """Output topics for which only the last value of a batch is promised."""
    found = set()
    for node in topology.nodes.values():
        if node.stores and only_last_change_matters(node):
            for later in topology.walk(node):
                if isinstance(later.operator, Sink) and isinstance(later.operator.topic, str):
                    found.add(later.operator.topic)
    return found


def test_all_operators_have_a_place_on_spark() -> None:
    plan = make_plan_of_everything()
    assert len(plan.stages) == 4
    assert not plan.stages[0].stores


def make_plan_of_everything() -> Any:
    from ottla.streams.planner.foreign_key_replicas import resolved_tables, with_replicas

    topology = everything()
    return make_plan(with_replicas(topology, resolved_tables(topology)))


def agree(topology: Topology, on_spark: list[list[Output]], in_python: list[list[Output]]) -> None:
    """Tables by their last value of each batch, streams record by record."""
    assert len(on_spark) == len(in_python)
    gathered = gathered_topics(topology)
    for number, (theirs, ours) in enumerate(zip(on_spark, in_python, strict=True)):
        differences = {
            place: (last_values(theirs).get(place), last_values(ours).get(place))
            for place in {*last_values(theirs), *last_values(ours)}
            if place[0] in gathered and last_values(theirs).get(place) != last_values(ours).get(place)
        }
        assert differences == {}, f"batch {number}"
        for topic in {one.topic for one in (*theirs, *ours)} - gathered:
            if topic.rsplit("-", 1)[0] in ONLY_LAST:
                assert table(on_spark[: number + 1], topic) == table(in_python[: number + 1], topic)
            else:
                mine_all = Counter(one for one in ours if one.topic == topic)
                spark_all = Counter(one for one in theirs if one.topic == topic)
                assert spark_all == mine_all, f"batch {number}, {topic}"


@pytest.mark.parametrize("seed", range(6))
def test_the_stages_agree_with_the_interpreter(seed: int) -> None:
    topology = everything()
    batches = random_batches(topology, seed)
    stages = FakeSpark(make_plan_of_everything(), Tasks.spread(1, 2), forgetful=seed % 2 == 0)
    agree(topology, [stages.run(batch) for batch in batches], interpreted(topology, batches))


@pytest.mark.timeout(600)
def test_spark_and_the_interpreter_agree(spark: Any, tmp_path: Path) -> None:
    topology = everything()
    batches = random_batches(topology, seed=9)
    write_batches(tmp_path / "in", batches)
    on_spark = run_batches(spark, topology, tmp_path / "in", tmp_path / "checkpoint", tasks=1)
    agree(topology, on_spark, interpreted(topology, batches))


def mixed() -> StreamsBuilder:
    """A stream that is used before and behind a shuffle, and counted by old and new keys."""
    b = StreamsBuilder()
    loud = b.stream("a").filter(lambda _, v: v is not None).map_values(str.upper)
    loud.to("loud")
    loud.group_by_key().count(store="by-key").to_stream().to("by-key")
    by_value = loud.group_by(lambda _, v: v).count(store="by-value")
    by_value.to_stream().group_by(lambda _, count: str(count)).reduce(max, store="top").to_stream().to("top")
    loud.join(b.table("b"), lambda x, y: x + y).to("joined")
    return b


def test_tasks_of_several_partitions_add_up_to_the_same() -> None:
    from ottla.client.partitioners import murmur2

    register_pickle_by_value(sys.modules[__name__])
    topology = mixed().build()
    batches = []
    for batch in random_batches(topology, seed=5):
        offsets = Counter[tuple[str, int]]()
        spread = []
        for one in batch:
            partition = 0 if one.key is None else (murmur2(one.key) & 0x7FFFFFFF) % 3
            place = (one.topic, partition)
            spread.append(one._replace(partition=partition, offset=len(batches) * RECORDS + offsets[place]))
            offsets[place] += 1
        batches.append(spread)
    stages = FakeSpark(make_plan(topology), Tasks.spread(3, 2))
    on_spark = [stages.run(batch) for batch in batches]
    in_python = interpreted(topology, batches)
    for topic in ("loud", "joined", "by-key"):
        for theirs, ours in zip(on_spark, in_python, strict=True):
            if topic == "by-key":
                mine = {one.key: one.value for one in ours if one.topic == topic}
                assert {one.key: one.value for one in theirs if one.topic == topic} == mine
            else:
                found = Counter(one.value for one in theirs if one.topic == topic)
                assert found == Counter(one.value for one in ours if one.topic == topic)
    assert any(one.topic == "top" for one in on_spark[-1])
