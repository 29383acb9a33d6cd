"""The parts of replication: followers' sessions, requests to the controller, throttles, the choice of a replica."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.config.broker import BrokerConfig
from ottla.errors import ErrorCode
from ottla.replica.alter_partition import AlterPartitionSender
from ottla.replica.isr import InSyncSet
from ottla.replica.selector import nearer_replica
from ottla.replica.throttle import ReplicationThrottle
from ottla.testing.virtual_clock import VirtualClock
from ottla.wire.messages import AlterPartitionResponse as Response
from unit.replica.cluster_scene import ClusterScene


@pytest.fixture
def cluster() -> ClusterScene:
    return ClusterScene()


def sessions(cluster: ClusterScene, node_id: int) -> list[Any]:
    return list(cluster.node[node_id].broker.fetch_sessions._sessions.values())


# -- sessions of followers


def test_a_followers_session_looks_only_at_what_is_new(cluster):
    cluster.create_topic(assignments=[(1, 2, 3)] * 50)
    cluster.produce(b"before", index=7, acks=1)
    cluster.run(2)
    first, second = sessions(cluster, 1)
    assert len(first.partitions) == len(second.partitions) == 50
    assert not first.fresh
    cluster.produce(b"a", index=7, acks=1)
    assert [part.index for part in first.fresh] == [7]
    cluster.run(1)
    assert not first.fresh


def test_partitions_that_come_later_need_not_wait_for_the_fetch_that_waits(cluster):
    cluster.create_topic("one")
    cluster.run(2)
    cluster.create_topic("two")
    produced = cluster.produce(b"a", topic="two")
    cluster.run(0.05)
    assert produced.code is ErrorCode.NONE


def test_a_topic_that_goes_leaves_the_sessions(cluster):
    cluster.create_topic("one")
    cluster.create_topic("two")
    cluster.run(1)
    partition = cluster.node[1].partition("two")
    assert len(partition.log_end_waiters) == 2
    for node in (2, 3):
        cluster.node[node].replicas._fetchers.unfollow(cluster.node[node].partition("two"))
    cluster.run(1)
    assert not partition.log_end_waiters
    assert all(len(session.partitions) == 1 for session in sessions(cluster, 1))


def test_a_session_that_is_dropped_lets_go_of_its_partitions(cluster):
    cluster.create_topic()
    cluster.run(1)
    cache = cluster.node[1].broker.fetch_sessions
    for session in sessions(cluster, 1):
        cache.drop(session.id)
    assert not cluster.node[1].partition().log_end_waiters
    cluster.produce(b"a", acks=1)
    cluster.run(2)
    assert cluster.node[2].values() == cluster.node[3].values() == [b"a"], "they open others"


# -- asking the controller


class FakePartition:
    """As much of a partition as the sender sees."""

    topic = "t"

    def __init__(self, index: int) -> None:
        self.index = index
        self.topic_id = bytes(16)
        self.in_sync = InSyncSet(1, lambda replica, epoch: True, lambda: 1000)
        self.in_sync.assign((1, 2), (1,), 0)
        self.in_sync.followers[2].broker_epoch = 9
        self.results: list[Any] = []

    def confirmed(self, proposal: Any, isr: Any, leader_epoch: int, partition_epoch: int) -> None:
        self.results.append((isr, partition_epoch))
        self.in_sync.confirmed(isr)

    def refused(self, proposal: Any) -> None:
        self.results.append("refused")
        self.in_sync.refused()

    def maybe_expand(self) -> None:
        self.results.append("look again")


class Controller:
    """Takes requests, and responds when the test says so."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.sent: list[Any] = []
        self.sender = AlterPartitionSender(self.clock, 1, lambda: 5, lambda *sent: self.sent.append(sent))

    def propose(self, partition: FakePartition) -> None:
        self.sender.submit(partition, partition.in_sync.propose((1, 2), 3, 4))  # type: ignore[arg-type]

    def answer(self, *codes: ErrorCode, error: ErrorCode = ErrorCode.NONE) -> None:
        request, done, _ = self.sent.pop(0)
        asked = [part for topic in request.topics for part in topic.partitions]
        results = [
            Response.PartitionData(
                partition_index=part.partition_index,
                error_code=code,
                isr=[state.broker_id for state in part.new_isr_with_epochs],
                leader_epoch=part.leader_epoch,
                partition_epoch=part.partition_epoch + 1,
            )
            for part, code in zip(asked if codes else (), codes, strict=True)
        ]
        topics = [Response.TopicData(topic_id=bytes(16), partitions=results)]
        done(Response(error_code=error, topics=topics if codes else []))


def test_changes_go_together_with_the_brokers_epochs():
    controller, partitions = Controller(), [FakePartition(n) for n in range(3)]
    for partition in partitions:
        controller.propose(partition)
    controller.clock.advance(0)
    ((request, _, _),) = controller.sent
    assert request.broker_epoch == 5
    (topic,) = request.topics
    assert [part.partition_index for part in topic.partitions] == [0, 1, 2]
    states = topic.partitions[0].new_isr_with_epochs
    assert [(state.broker_id, state.broker_epoch) for state in states] == [(1, 5), (2, 9)]
    controller.answer(ErrorCode.NONE, ErrorCode.INELIGIBLE_REPLICA, ErrorCode.FENCED_LEADER_EPOCH)
    assert [partition.results for partition in partitions] == [[((1, 2), 5)], ["refused"], []]
    assert partitions[2].in_sync.pending is not None, (
        "what the controller said no to counts until it is known why"
    )
    controller.clock.advance(1)
    assert partitions[1].results == ["refused", "look again"]


def test_one_request_is_in_flight_and_the_next_takes_what_came_meanwhile():
    controller, first, second = Controller(), FakePartition(0), FakePartition(1)
    controller.propose(first)
    controller.clock.advance(0)
    controller.propose(second)
    controller.clock.advance(1)
    assert len(controller.sent) == 1
    controller.answer(ErrorCode.NONE)
    controller.clock.advance(0)
    assert controller.sent[0][0].topics[0].partitions[0].partition_index == 1


@pytest.mark.parametrize("lost", [True, False])
def test_what_was_not_answered_is_sent_again(lost):
    controller, partition = Controller(), FakePartition(0)
    controller.propose(partition)
    controller.clock.advance(0)
    if lost:
        controller.sent.pop(0)[2]("gone")
    else:
        controller.answer(error=ErrorCode.STALE_BROKER_EPOCH)
    assert not controller.sent
    controller.clock.advance(0.1)
    controller.answer(ErrorCode.NONE)
    assert partition.results == [((1, 2), 5)]


def test_what_the_metadata_has_decided_is_not_asked_for_again():
    controller, partition = Controller(), FakePartition(0)
    controller.propose(partition)
    partition.in_sync.assign((1, 2), (1, 2), 0)
    controller.clock.advance(1)
    assert not controller.sent


# -- throttles and the choice of a replica


def throttled(replicas: tuple[str, ...], in_sync: tuple[int, ...] = (1,)) -> Any:
    config = SimpleNamespace(
        leader_replication_throttled_replicas=replicas, follower_replication_throttled_replicas=replicas
    )
    return SimpleNamespace(
        index=3, log=SimpleNamespace(config=config), in_sync=SimpleNamespace(maximal=frozenset(in_sync))
    )


def test_a_throttle_holds_what_is_listed_and_behind_until_its_time():
    clock = VirtualClock()
    config = BrokerConfig.single_node({"leader.replication.throttled.rate": "1000"})
    throttle = ReplicationThrottle("leader", clock, 1, config)
    listed, other = throttled(("3:1",)), throttled(("4:1", "3:2"))
    throttle.record(other, 2, 1 << 30)
    assert not throttle.holds(listed, 2)
    throttle.record(listed, 2, 10_001)
    assert throttle.holds(listed, 2)
    assert throttle.holds(throttled(("*",)), 2)
    assert not throttle.holds(other, 2)
    assert not throttle.holds(throttled(("3:1",), (1, 2)), 2), "it is in sync"
    freed: list[bool] = []
    throttle.when_free(lambda: freed.append(throttle.holds(listed, 2)))
    clock.advance(1)
    assert freed == [True]
    clock.advance(11)
    assert not throttle.holds(listed, 2)


def test_without_a_rate_nothing_is_held():
    throttle = ReplicationThrottle("follower", VirtualClock(), 1, BrokerConfig.single_node({}))
    throttle.record(throttled(("*",)), 2, 1 << 40)
    assert not throttle.holds(throttled(("*",)), 2)


def test_the_nearest_replica_is_in_sync_alive_and_has_the_offset():
    brokers = {
        1: SimpleNamespace(rack="a", fenced=False),
        2: SimpleNamespace(rack="b", fenced=False),
        3: SimpleNamespace(rack="b", fenced=False),
    }
    image: Any = SimpleNamespace(brokers=brokers)
    in_sync = InSyncSet(1, lambda replica, epoch: True, lambda: 1000)
    in_sync.assign((1, 2, 3), (1, 2, 3), 0)
    partition: Any = SimpleNamespace(is_leader=True, leader=1, in_sync=in_sync)
    in_sync.followers[2].fetched(5, 0, 7, 10, 0, None)
    in_sync.followers[3].fetched(8, 2, 7, 10, 0, None)
    assert nearer_replica(partition, image, "b", 4) == 3
    assert nearer_replica(partition, image, "b", 1) == 2
    assert nearer_replica(partition, image, "b", 9) is None
    assert nearer_replica(partition, image, "a", 4) is None
    assert nearer_replica(partition, image, "c", 4) is None
    brokers[3].fenced = True
    assert nearer_replica(partition, image, "b", 4) == 2
    in_sync.confirmed((1, 3))
    assert nearer_replica(partition, image, "b", 4) is None
