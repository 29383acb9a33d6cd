"""Two brokers and a mirror between them: writing all kinds of records, and comparing what both sides hold."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO

from confluent_kafka import Producer

from ottla.admin.cluster import Cluster
from ottla.admin.errors import raise_for
from ottla.admin.groups import Committed, alter_offsets, committed_offsets
from ottla.admin.settings import ClusterSettings
from ottla.admin.topics import NewTopic, create_topics
from ottla.client.cluster_settings import writer_settings
from ottla.errors import ApiException
from ottla.mirror.config import MirrorConfig, mirror_config
from ottla.mirror.ledger import Ledger, Note
from ottla.mirror.mirror import Mirror
from ottla.pipeline.fetching import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    FetchLimits,
    OffsetRange,
    fetch_ranges,
    list_offsets,
)
from ottla.pipeline.writer import Place
from ottla.records.batch import iter_records
from ottla.records.record import Record

BEGAN_MS = time.time_ns() // 1_000_000 - 3_600_000
"""Times of records: not so old that retention deletes them while a test runs."""
_PATIENCE_S = 120.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def keys(source: str, target: str, **more: str) -> dict[str, str]:
    """A file with one flow A->B, with short cycles."""
    given = {
        "clusters": "A, B",
        "A.bootstrap.servers": source,
        "B.bootstrap.servers": target,
        "A->B.enabled": "true",
        "emit.heartbeats.enabled": "false",
        "replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "mirror.cycle.ms": "300",
    }
    return given | {key.replace("__", "."): value for key, value in more.items()}


def write_file(path: Path, given: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{key} = {value}\n" for key, value in given.items()))
    return path


def copy_once(config: MirrorConfig | Mapping[str, str]) -> Mirror:
    """Runs a mirror to the ends of the source, inside this process."""
    work = Mirror(config if isinstance(config, MirrorConfig) else mirror_config(config), once=True)
    work.start()
    assert work.wait(120), "the mirror did not end"
    assert not work.failures, work.failures
    return work


def connect(bootstrap: str) -> Cluster:
    return Cluster(writer_settings(bootstrap))


def settings_of(bootstrap: str) -> ClusterSettings:
    return writer_settings(bootstrap)


def make_topic(bootstrap: str, name: str, partitions: int = 1, **configs: str) -> None:
    cluster = connect(bootstrap)
    named = {key.replace("_", "."): value for key, value in configs.items()}
    result = create_topics(cluster, [NewTopic(name, partitions, 1, topic_configs=named)]).topics[0]
    assert not result.error_code, result.error_message
    cluster.retrying(lambda: cluster.leaders(name))
    cluster.close()


def produce(
    bootstrap: str, topic: str, count: int, *, codec: str = "none", start: int = 0, **more: object
) -> None:
    """Records with keys, values, headers and times of their own, over all partitions."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "linger.ms": 5,
            "batch.num.messages": 50,
            **more,
        }
    )
    for number in range(start, start + count):
        producer.produce(
            topic,
            key=None if number % 7 == 3 else b"key-%d" % (number % 50),
            value=None if number % 11 == 5 else b"value %d " % number * 5,
            headers=[("n", b"%d" % number)] if number % 3 == 0 else [],
            timestamp=BEGAN_MS + number,
        )
        producer.poll(0)
    assert producer.flush(60) == 0


def transactions(bootstrap: str, topic: str, count: int, *, size: int = 20) -> None:
    """Transactions of which every third is aborted."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": "orders",
            "compression.type": "lz4",
            "linger.ms": 5,
        }
    )
    producer.init_transactions(60)
    for number in range(count):
        producer.begin_transaction()
        for each in range(size):
            producer.produce(topic, key=b"t", value=b"transaction %d record %d" % (number, each))
        producer.flush(60)
        if number % 3 == 1:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)


Content = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]


def content(record: Record) -> Content:
    return record.key, record.value, tuple(record.headers), record.timestamp


def records(
    bootstrap: str, topic: str, isolation: int = READ_COMMITTED
) -> dict[int, list[tuple[int, Content]]]:
    """All records by partition, with their offsets; committed ones by default."""
    cluster = connect(bootstrap)
    try:
        places = [Place(topic, one) for one in cluster.retrying(lambda: cluster.leaders(topic))]
        starts = list_offsets(cluster, dict.fromkeys(places, EARLIEST), isolation=READ_UNCOMMITTED)
        ends = list_offsets(cluster, dict.fromkeys(places, LATEST), isolation=READ_COMMITTED)
        wanted = [OffsetRange(*place, starts[place], ends[place]) for place in places]
        found: dict[int, list[tuple[int, Content]]] = {place.partition: [] for place in places}
        for part in fetch_ranges(cluster, wanted, isolation=isolation, limits=FetchLimits(stall_s=30)):
            for at, header in part.batches:
                found[part.partition] += [
                    (one.offset, content(one))
                    for one in iter_records(part.data, at, header)
                    if one.offset >= part.start
                ]
        return found
    finally:
        cluster.close()


def assert_same_records(source: str, topic: str, target: str, remote: str) -> int:
    """Both sides hold the same records in the same order; their number."""
    theirs, ours = records(source, topic), records(target, remote)
    assert sorted(theirs) == sorted(ours)
    for partition, expected in theirs.items():
        assert [one for _, one in ours[partition]] == [one for _, one in expected], f"{topic}-{partition}"
    return sum(map(len, theirs.values()))


def commit(bootstrap: str, group: str, offsets: Mapping[Place, int]) -> None:
    cluster = connect(bootstrap)
    new = {(place.topic, place.partition): Committed(offset, None, "m") for place, offset in offsets.items()}

    def altered() -> None:
        for code in alter_offsets(cluster, group, new).values():
            raise_for(code, None, f"positions of {group}")

    cluster.retrying(altered, _PATIENCE_S)
    cluster.close()


def committed(bootstrap: str, group: str) -> dict[Place, int]:
    cluster = connect(bootstrap)
    try:
        found = cluster.retrying(lambda: committed_offsets(cluster, group), _PATIENCE_S)
        return {Place(*place): one.offset for place, one in found.items()}
    finally:
        cluster.close()


def mark_as_copied(given: Mapping[str, str], place: Place, last: int) -> None:
    """A note as MirrorMaker 2 writes it: up to which offset the source's partition is copied."""
    ledger = Ledger(mirror_config(given).flow("A", "B"))
    ledger.open()
    ledger.write({place: Note(last)})
    ledger.close()


def next_record(held: Iterable[tuple[int, Content]], offset: int) -> Content | None:
    """What a consumer at an offset reads next."""
    return next((one for at, one in held if at >= offset), None)


def mirror_process(file: Path, log: IO[bytes], *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "ottla", "mirror", "run", str(file), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
    )


def make_as(bootstrap: str, topic: NewTopic) -> None:
    """A topic with settings or replicas of its own."""
    cluster = connect(bootstrap)
    (result,) = create_topics(cluster, [topic]).topics
    assert not result.error_code, result.error_message
    cluster.retrying(lambda: cluster.leaders(topic.name))
    cluster.close()


def leader_of(bootstrap: str, topic: str, partition: int = 0) -> int:
    cluster = connect(bootstrap)
    try:
        return cluster.retrying(lambda: cluster.leaders(topic))[partition]
    finally:
        cluster.close()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.05)


def held(bootstrap: str, *places: Place) -> int:
    cluster = connect(bootstrap)
    try:
        return sum(list_offsets(cluster, dict.fromkeys(places, LATEST), isolation=READ_COMMITTED).values())
    except ApiException:
        return -1
    finally:
        cluster.close()
