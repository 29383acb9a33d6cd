"""Raw reads of ranges: the records that a plain consumer sees, on random logs and while leaders move."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

pytest.importorskip("pyarrow", reason="the pipeline needs Spark's libraries: make setup-spark")

import itertools

from ottla.admin.cluster import Cluster
from ottla.client.cluster_settings import writer_settings
from ottla.errors import ApiException, ErrorCode
from ottla.pipeline.decoding import decode
from ottla.pipeline.fetching import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Fetcher,
    FetchLimits,
    OffsetGone,
    OffsetRange,
    fetch_ranges,
    list_offsets,
)
from ottla.pipeline.writer import Place
from ottla.testing.cluster import Cluster as Nodes

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 3
TIMEOUT_S = 60.0

Row = tuple[int, int, bytes | None, bytes | None, int, Any]


@pytest.fixture(scope="module")
def broker_settings() -> Mapping[str, object]:
    return {"log.cleaner.backoff.ms": 50}


def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def make(bootstrap: str, topic: str, **config: object) -> None:
    wanted = {name.replace("_", "."): str(value) for name, value in config.items()}
    new = NewTopic(topic, PARTITIONS, 1, config={"retention.ms": "-1"} | wanted)
    client = admin(bootstrap)
    client.create_topics([new])[topic].result(TIMEOUT_S)


def plain_read(bootstrap: str, topic: str, isolation: str) -> list[Row]:
    """What librdkafka's consumer finds up to the end of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    rows: list[Row] = []
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        ended: set[int] = set()
        while len(ended) < PARTITIONS:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, f"no end of {topic}"
            if message.error() is None:
                headers: Any = message.headers()
                rows.append(
                    (
                        message.partition(),
                        message.offset(),
                        message.key(),
                        message.value(),
                        message.timestamp()[1],
                        [{"key": key, "value": value} for key, value in headers] if headers else None,
                    )
                )
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ended.add(message.partition())
    finally:
        consumer.close()
    return sorted(rows, key=lambda row: row[:2])


def raw_read(brokers: Cluster, ranges: list[OffsetRange], isolation: int, limits: FetchLimits) -> list[Row]:
    rows: list[Row] = []
    for part in fetch_ranges(brokers, ranges, isolation=isolation, limits=limits):
        for batch in decode(part):
            found = batch.to_pydict()
            times = [int(time.timestamp() * 1000 + 0.5) for time in found["timestamp"]]
            rows += zip(
                found["partition"],
                found["offset"],
                found["key"],
                found["value"],
                times,
                found["headers"],
                strict=True,
            )
    return sorted(rows, key=lambda row: row[:2])


def write_random_log(bootstrap: str, topic: str, rng: random.Random) -> list[Producer]:
    """Committed, aborted and open transactions and plain records, in all codecs; returns what must stay open."""
    writers = []
    for codec in CODECS:
        base = {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "linger.ms": 5,
            "batch.num.messages": rng.choice([1, 7, 30]),
        }
        plain = Producer({**base, "enable.idempotence": rng.random() < 0.5})
        transactional = Producer({**base, "transactional.id": f"{topic}-{codec}"})
        transactional.init_transactions(TIMEOUT_S)
        writers.append((plain, transactional))

    def write(producer: Producer, count: int) -> None:
        for _ in range(count):
            headers = [(f"h{number}", rng.randbytes(3)) for number in range(rng.choice([0, 0, 0, 1, 3]))]
            producer.produce(
                topic,
                None if rng.random() < 0.1 else rng.randbytes(rng.choice([0, 5, 80, 400])),
                key=b"key-%d" % rng.randrange(30),
                partition=rng.randrange(PARTITIONS),
                timestamp=1_600_000_000_000 + rng.randrange(10**9),
                headers=headers,
            )

    def begin(producer: Producer) -> None:
        producer.begin_transaction()
        write(producer, rng.randrange(1, 60))

    opened: list[Producer] = []
    for _ in range(40):
        plain, transactional = rng.choice(writers)
        write(plain, rng.randrange(20))
        if transactional in opened:
            opened.remove(transactional)
        else:
            begin(transactional)
        if rng.random() < 0.3:
            transactional.flush(TIMEOUT_S)
            opened.append(transactional)
        elif rng.random() < 0.5:
            transactional.commit_transaction(TIMEOUT_S)
        else:
            transactional.flush(TIMEOUT_S)
            transactional.abort_transaction(TIMEOUT_S)
    for plain, _ in writers:
        assert plain.flush(TIMEOUT_S) == 0
    return [transactional for _, transactional in writers if transactional in opened]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_ranges_hold_what_a_consumer_reads(broker, topic, seed: int) -> None:
    rng = random.Random(seed)
    compacted = seed % 2 == 0
    policy = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0.01} if compacted else {}
    make(broker.bootstrap, topic, internal_segment_bytes=20_000, **policy)
    opened = write_random_log(broker.bootstrap, topic, rng)
    if compacted:
        for producer in opened:
            producer.abort_transaction(TIMEOUT_S)
        opened = []
        wait_for_gaps(broker.bootstrap, topic)
    brokers = Cluster(writer_settings(broker.bootstrap))
    try:
        places = [Place(topic, number) for number in range(PARTITIONS)]
        for name, isolation in (("read_committed", READ_COMMITTED), ("read_uncommitted", READ_UNCOMMITTED)):
            whole = plain_read(broker.bootstrap, topic, name)
            starts = list_offsets(brokers, dict.fromkeys(places, EARLIEST), isolation=isolation)
            ends = list_offsets(brokers, dict.fromkeys(places, LATEST), isolation=isolation)
            for limits in (FetchLimits(), FetchLimits(max_bytes=9_000, partition_max_bytes=2_000)):
                ranges = [OffsetRange(topic, place.partition, starts[place], ends[place]) for place in places]
                assert raw_read(brokers, ranges, isolation, limits) == whole
            for _ in range(10):
                ranges = []
                for place in places:
                    start = rng.randint(starts[place], ends[place])
                    ranges.append(OffsetRange(topic, place.partition, start, rng.randint(start, ends[place])))
                within = {one.partition: range(one.start, one.end) for one in ranges}
                assert raw_read(brokers, ranges, isolation, FetchLimits()) == [
                    row for row in whole if row[1] in within[row[0]]
                ]
    finally:
        brokers.close()
        for producer in opened:
            producer.abort_transaction(TIMEOUT_S)


def wait_for_gaps(bootstrap: str, topic: str) -> None:
    """Waits until the cleaner has removed records, then ends its work, so that two reads see the same log."""
    while True:
        offsets = [row[:2] for row in plain_read(bootstrap, topic, "read_committed")]
        gaps = sum(b[1] - a[1] > 5 for a, b in itertools.pairwise(offsets) if a[0] == b[0])
        if gaps > 10:
            break
    entry = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    client = admin(bootstrap)
    for done in client.incremental_alter_configs([resource]).values():
        done.result(TIMEOUT_S)
    before = None
    while before != (before := plain_read(bootstrap, topic, "read_uncommitted")):
        continue


def fill(bootstrap: str, topic: str, count: int, size: int = 100) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 5, "queue.buffering.max.messages": 1_000_000}
    )
    for number in range(count):
        producer.produce(topic, b"%08d" % number + bytes(size), partition=number % PARTITIONS)
    assert producer.flush(TIMEOUT_S) == 0


def test_a_poll_gives_what_is_there_and_follows_positions(broker, topic) -> None:
    make(broker.bootstrap, topic)
    brokers = Cluster(writer_settings(broker.bootstrap))
    fetcher = Fetcher(brokers)
    positions = {Place(topic, number): 0 for number in range(PARTITIONS)}
    assert fetcher.poll(positions, 0) == []
    fill(broker.bootstrap, topic, 3_000)
    found: list[bytes] = []
    while len(found) < 3_000:
        for part in fetcher.poll(positions, 1_000):
            positions[Place(part.topic, part.partition)] = part.next_offset
            for batch in decode(part, ("value",)):
                found += batch.column(0).to_pylist()
    assert sorted(int(value[:8]) for value in found) == list(range(3_000))
    assert set(positions.values()) == {1_000}
    brokers.close()


def test_an_offset_beyond_the_log_is_named(broker, topic) -> None:
    make(broker.bootstrap, topic)
    brokers = Cluster(writer_settings(broker.bootstrap))
    with pytest.raises(OffsetGone, match=f"{topic}-1 does not hold offset 7: retention deleted it"):
        list(fetch_ranges(brokers, [OffsetRange(topic, 1, 7, 9)]))
    with pytest.raises(ApiException, match=f"topic {topic} has no partition 9") as refused:
        list(fetch_ranges(brokers, [OffsetRange(topic, 9, 0, 1)]))
    assert refused.value.code == ErrorCode.INVALID_PARTITIONS
    brokers.close()


def test_a_read_that_is_left_leaves_no_response_behind(broker, topic) -> None:
    make(broker.bootstrap, topic)
    fill(broker.bootstrap, topic, 3_000)
    brokers = Cluster(writer_settings(broker.bootstrap))
    limits = FetchLimits(partition_max_bytes=10_000, max_bytes=10_000)
    ranges = [OffsetRange(topic, number, 0, 1_000) for number in range(PARTITIONS)]
    reading = fetch_ranges(brokers, ranges, limits=limits)
    next(reading)
    reading.close()
    places = [Place(topic, number) for number in range(PARTITIONS)]
    assert list_offsets(brokers, dict.fromkeys(places, LATEST)) == dict.fromkeys(places, 1_000)
    brokers.close()


def write_one(bootstrap: str, topic: str, partition: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"new", partition=partition)
    assert producer.flush(TIMEOUT_S) == 0


@pytest.mark.slow
def test_a_leader_with_nothing_new_keeps_no_other_waiting(cluster: Nodes) -> None:
    cluster.create_topic("uneven", partitions=PARTITIONS)
    leaders = {number: cluster.leader_of("uneven", number) for number in range(PARTITIONS)}
    busy, silent = next(
        (one, two) for one, two in itertools.combinations(leaders, 2) if leaders[one] != leaders[two]
    )
    brokers = Cluster(writer_settings(cluster.bootstrap))
    fetcher = Fetcher(brokers)
    positions = {Place("uneven", number): 0 for number in (busy, silent)}
    write_one(cluster.bootstrap, "uneven", busy)
    (first,) = fetcher.poll_any(positions, 20_000)
    assert (first.partition, first.next_offset) == (busy, 1)
    assert fetcher.in_flight, "the silent leader still has its request"
    positions[Place("uneven", busy)] = first.next_offset
    write_one(cluster.bootstrap, "uneven", busy)
    (second,) = fetcher.poll_any(positions, 20_000)
    assert (second.partition, second.next_offset) == (busy, 2)
    write_one(cluster.bootstrap, "uneven", silent)
    (third,) = fetcher.poll_any({})
    assert (third.partition, third.next_offset) == (silent, 1)
    assert not fetcher.in_flight
    # Nothing is left on the connections that a later request could take for its response.
    found = list_offsets(brokers, dict.fromkeys(positions, LATEST))
    assert found == {Place("uneven", busy): 2, Place("uneven", silent): 1}
    brokers.close()


@pytest.mark.slow
def test_a_request_in_flight_survives_others_on_its_connection(cluster: Nodes) -> None:
    cluster.create_topic("shared", partitions=1)
    brokers = Cluster(writer_settings(cluster.bootstrap))
    fetcher = Fetcher(brokers)
    here = Place("shared", 0)
    write_one(cluster.bootstrap, "shared", 0)
    (found,) = fetcher.poll_any({here: 0}, 20_000)
    fetcher._send_free({here: found.next_offset}, fetcher._polled, 1_000)
    assert list_offsets(brokers, {here: LATEST}) == {here: 1}, "asked behind the Fetch request"
    assert fetcher.poll_any({here: 1}, 20_000) == []
    brokers.drop(brokers.leader(*here))
    write_one(cluster.bootstrap, "shared", 0)
    (found,) = fetcher.poll_any({here: 1}, 20_000)
    assert found.next_offset == 2
    brokers.close()


@pytest.mark.slow
def test_a_read_goes_on_while_leaders_die(cluster: Nodes) -> None:
    cluster.create_topic("moving", partitions=PARTITIONS)
    fill(cluster.bootstrap, "moving", 30_000)
    brokers = Cluster(writer_settings(cluster.bootstrap))
    limits = FetchLimits(partition_max_bytes=50_000, max_bytes=50_000)
    ranges = [OffsetRange("moving", number, 0, 10_000) for number in range(PARTITIONS)]
    found: list[int] = []
    killed = None
    for part in fetch_ranges(brokers, ranges, limits=limits):
        for batch in decode(part, ("value",)):
            found += [int(value[:8]) for value in batch.column(0).to_pylist()]
        if killed is None and len(found) > 5_000:
            killed = cluster.leader_of("moving", part.partition)
            assert killed is not None
            cluster.kill(killed)
    brokers.close()
    assert killed is not None
    cluster.start_node(killed)
    cluster.wait_all_in_sync()
    assert sorted(found) == list(range(30_000))
