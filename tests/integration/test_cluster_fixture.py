"""What other projects' tests get: a cluster from a fixture, or from a `with` block."""

from __future__ import annotations

import pytest

from ottla import KafkaConsumer, KafkaProducer
from ottla.errors import ErrorCode
from ottla.testing import Cluster, running_cluster
from ottla.wire.messages import MetadataRequest

pytestmark = pytest.mark.slow


def test_a_cluster_of_the_tests_own(ottla_cluster: Cluster) -> None:
    ottla_cluster.create_topic("orders", partitions=3)
    leader = ottla_cluster.leader_of("orders")
    assert leader is not None
    with KafkaProducer(bootstrap_servers=ottla_cluster.bootstrap, acks="all") as producer:
        assert producer.send("orders", b"before", partition=0).get(60).offset == 0
        ottla_cluster.kill(leader)
        assert producer.send("orders", b"after", partition=0).get(60).offset == 1
    consumer = KafkaConsumer(
        "orders",
        bootstrap_servers=ottla_cluster.bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=60_000,
    )
    with consumer:
        assert [next(consumer).value for _ in range(2)] == [b"before", b"after"]

    def is_missed() -> bool:
        found = ottla_cluster.partition("orders")
        return found is not None and found.offline_replicas == [leader] and leader not in found.isr_nodes

    # Any broker may be asked, and hears of it in its own time.
    ottla_cluster.wait_for(is_missed)


def test_a_cluster_for_as_long_as_a_block() -> None:
    with running_cluster(1) as cluster:
        cluster.create_topic("alone", replication_factor=1)
        request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="alone")])
        assert cluster.ask(request, 12).topics[0].error_code == ErrorCode.NONE
        data = cluster.data
    assert not data.exists()
