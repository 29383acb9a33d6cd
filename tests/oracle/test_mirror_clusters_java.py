"""`make test-mirror-clusters`: mirrors between clusters of Apache Kafka and of Ottla, and between two of Apache Kafka.

Transactions, compaction, all codecs, leaders that are lost, a topic that is deleted and made again, and an unclean
election at the source. `make test` has the same on single nodes and on Ottla's clusters.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from integration.mirror_stories import Nodes, elect_uncleanly, failures_of, lose_leaders
from integration.mirror_world import (
    assert_same_records,
    commit,
    committed,
    connect,
    copy_once,
    keys,
    make_as,
    next_record,
    produce,
    records,
    transactions,
    wait_for,
)
from ottla.admin.configs import alter_configs
from ottla.admin.topics import NewTopic, delete_all_of
from ottla.pipeline.writer import Place
from ottla.testing.apache_cluster import ApacheCluster
from ottla.testing.cluster import Cluster
from ottla.wire.enums import ConfigResourceType

pytestmark = [
    pytest.mark.java,
    pytest.mark.timeout(1800),
    pytest.mark.skipif("OTTLA_MIRROR_CLUSTERS" not in os.environ, reason="long: make test-mirror-clusters"),
]

_SETTINGS = {
    "log.cleaner.backoff.ms": 500,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "group.initial.rebalance.delay.ms": 0,
    "broker.session.timeout.ms": 4000,
    "broker.heartbeat.interval.ms": 1000,
}
_THREE = {
    "replication__factor": "3",
    "offset__storage__replication__factor": "3",
    "sync__topic__configs__enabled": "false",
}
_GROUPS = 10


_PAIRS = (("apache", "ottla"), ("ottla", "apache"), ("apache", "apache"))


@contextmanager
def three_nodes(system: str, folder: Path) -> Iterator[Nodes]:
    if system == "ottla":
        with Cluster(folder, 3, settings=_SETTINGS) as ottla:
            yield ottla
        return
    apache = ApacheCluster(folder, 3, _SETTINGS)
    apache.format()
    try:
        apache.start()
        yield apache
    finally:
        apache.kill()


@pytest.fixture(params=_PAIRS, ids=" to ".join)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Nodes, Nodes]]:
    begin, end = request.param
    with three_nodes(begin, tmp_path / "source") as source, three_nodes(end, tmp_path / "target") as target:
        yield source, target


def compacted(bootstrap: str, topic: str) -> None:
    """A topic with holes, which its cleaner does not touch any more."""
    configs = {
        "cleanup.policy": "compact",
        "internal.segment.bytes": "20000",
        "min.cleanable.dirty.ratio": "0.01",
    }
    make_as(bootstrap, NewTopic(topic, 1, 3, topic_configs=configs))
    producer = Producer(
        {"bootstrap.servers": bootstrap, "compression.type": "lz4", "batch.num.messages": 100}
    )
    for number in range(3000):
        key = b"key-%d" % (number % 700 if number % 3 else 5000 + number)
        producer.produce(topic, key=key, value=b"v%d" % number * 10)
    assert producer.flush(60) == 0
    wait_for(lambda: 0 < len(records(bootstrap, topic)[0]) < 2600)
    cluster = connect(bootstrap)
    alter_configs(cluster, ConfigResourceType.TOPIC, topic, added={"min.compaction.lag.ms": str(10**15)})
    cluster.close()
    before: list[object] = []

    def settled() -> bool:
        before.append(records(bootstrap, topic))
        return len(before) > 20 and all(one == before[-1] for one in before[-20:])

    wait_for(settled)


def assert_same_places(source: str, topic: str, target: str, remote: str) -> None:
    """The next record of every group is the same at both sides."""
    theirs, ours = records(source, topic), records(target, remote)
    for number in range(_GROUPS):
        before, after = committed(source, f"group-{number}"), committed(target, f"group-{number}")
        for partition, found in theirs.items():
            position, translated = before[Place(topic, partition)], after[Place(remote, partition)]
            assert next_record(ours[partition], translated) == next_record(found, position), (
                number,
                partition,
            )


def commit_all_over(bootstrap: str, *topics: str) -> None:
    ends = {
        Place(topic, number): part[-1][0] + 1
        for topic in topics
        for number, part in records(bootstrap, topic).items()
    }
    for number in range(_GROUPS):
        commit(
            bootstrap,
            f"group-{number}",
            {place: end * number // (_GROUPS - 1) for place, end in ends.items()},
        )


def test_clusters_of_three(pair: tuple[Nodes, Nodes]) -> None:
    source, target = pair
    make_as(source.bootstrap, NewTopic("orders", 2, 3))
    compacted(source.bootstrap, "state")
    given = keys(source.bootstrap, target.bootstrap, topics="orders,state,again,loose", **_THREE)
    lose_leaders(source, target, given)
    transactions(source.bootstrap, "orders", 6, size=5)
    commit_all_over(source.bootstrap, "orders", "state")
    copy_once(given)
    for topic in ("orders", "state"):
        assert_same_records(source.bootstrap, topic, target.bootstrap, f"A.{topic}")
        assert_same_places(source.bootstrap, topic, target.bootstrap, f"A.{topic}")
    _make_again(source, target, given)
    elect_uncleanly(source, target, given, "loose")
    for topic in ("orders", "state", "again"):
        assert_same_records(source.bootstrap, topic, target.bootstrap, f"A.{topic}")


def _make_again(source: Nodes, target: Nodes, given: dict[str, str]) -> None:
    """A topic that is deleted and made again stops alone, until its copy is deleted."""
    make_as(source.bootstrap, NewTopic("again", 1, 3))
    produce(source.bootstrap, "again", 50)
    copy_once(given)
    cluster = connect(source.bootstrap)
    delete_all_of(cluster, ["again"])
    cluster.close()
    make_as(source.bootstrap, NewTopic("again", 1, 3))
    produce(source.bootstrap, "again", 20, start=500)
    produce(source.bootstrap, "orders", 20, start=9000)
    (said,) = failures_of(given)
    assert "again-0" in said and "deleted and created again at the source" in said
    assert_same_records(source.bootstrap, "orders", target.bootstrap, "A.orders")
    cluster = connect(target.bootstrap)
    delete_all_of(cluster, ["A.again"])
    cluster.close()
    copy_once(given)
    assert records(source.bootstrap, "again") == records(target.bootstrap, "A.again")
