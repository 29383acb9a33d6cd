"""Brokers that fall silent, die, pause and return, seen by the controller's clock and its probes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.controller.controller import Controller
from ottla.errors import ErrorCode
from ottla.metadata.bootstrap import bootstrap_records
from ottla.metadata.image import NO_LEADER, PartitionRegistration
from ottla.peers import Endpoint, PeerFailure
from ottla.testing.virtual_clock import VirtualClock
from ottla.wire.messages import (
    AlterPartitionRequest,
    BrokerHeartbeatRequest,
    CreateTopicsRequest,
    UnregisterBrokerRequest,
)
from unit.controller.controller_harness import Answers, FakeLog, registration, settings_with


class ProbedPeers:
    """`Peers` whose probes find what the test says."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.found: dict[int, PeerFailure | None] = {}
        self.probes: list[tuple[float, Endpoint]] = []

    def open(self, endpoint: Endpoint, purpose: str) -> Any:
        raise AssertionError("the controller sends no requests")

    def probe(self, endpoint: Endpoint, done: Callable[[Any], object], *, timeout_s: float) -> None:
        self.probes.append((self.clock.monotonic(), endpoint))
        self.clock.call_later(0.001, lambda: done(self.found.get(endpoint.node_id)))


class Cluster:
    """A controller on node 9, which is not a broker, and brokers that the test drives."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.log = FakeLog()
        self.peers = ProbedPeers(self.clock)
        self.controller = Controller(
            self.log,
            self.clock,
            settings_with(node_id="9"),
            peers=self.peers,
            bootstrap_records=bootstrap_records(),
        )
        self.log.listener = self.controller
        self.epochs: dict[int, int] = {}
        self.controller.handle_leader_change(9, 1)
        self.log.commit()

    def register(self, broker_id: int, **fields: Any) -> Answers:
        answers = Answers()
        self.controller.register_broker(registration(broker_id, **fields), answers.done, answers.failed)
        self.log.commit()
        if answers.responses:
            self.epochs[broker_id] = answers.responses[0].broker_epoch
        return answers

    def beat(self, broker_id: int, connection: str | None = None, **wishes: Any) -> Any:
        answers = Answers()
        wishes.setdefault("current_metadata_offset", self.log.log_end_offset - 1)
        request = BrokerHeartbeatRequest(broker_id=broker_id, broker_epoch=self.epochs[broker_id], **wishes)
        self.controller.broker_heartbeat(
            request, answers.done, answers.failed, connection=connection or f"c{broker_id}"
        )
        self.log.commit()
        return answers.errors[0] if answers.errors else answers.responses[0]

    def join(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.register(broker_id)
            assert not self.beat(broker_id).is_fenced

    def topic(self, name: str = "t") -> None:
        topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=3, replication_factor=3)
        self.controller.handle(
            CreateTopicsRequest(topics=[topic], timeout_ms=1000), lambda _: None, pytest.fail
        )
        self.log.commit()

    @property
    def partitions(self) -> list[PartitionRegistration]:
        return list(self.controller.image.topics.by_name["t"].partitions.values())

    def is_fenced(self, broker_id: int) -> bool:
        return self.controller.image.brokers[broker_id].fenced

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.log.commit()


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.join(1, 2, 3)
    made.topic()
    return made


def test_a_broker_that_is_silent_is_fenced_when_its_session_is_over(cluster: Cluster) -> None:
    for _ in range(4):
        cluster.advance(2)
        cluster.beat(1)
        cluster.beat(2)
    assert not cluster.is_fenced(3)
    cluster.advance(1.1)
    assert [cluster.is_fenced(broker) for broker in (1, 2, 3)] == [False, False, True]
    assert all(3 not in p.isr and p.leader in (1, 2) for p in cluster.partitions)
    # It was one decision and one batch.
    fencing = [
        records for _, records in cluster.log.batches if records[-1].NAME == "BrokerRegistrationChangeRecord"
    ]
    assert len(fencing[-1]) == 4


def test_a_heartbeat_of_a_fenced_broker_lets_it_in_again(cluster: Cluster) -> None:
    for _ in range(5):
        cluster.advance(2)
        cluster.beat(1)
        cluster.beat(2)
    assert cluster.is_fenced(3)
    assert not cluster.beat(3).is_fenced
    assert not cluster.is_fenced(3)


def test_a_process_that_is_gone_is_fenced_at_once(cluster: Cluster) -> None:
    cluster.peers.found[2] = PeerFailure.REFUSED
    cluster.controller.broker_disconnected(2, cluster.epochs[2], "c2")
    cluster.advance(0.01)
    assert not cluster.is_fenced(2)
    cluster.advance(0.1)
    assert cluster.is_fenced(2)
    assert all(2 not in p.isr and p.leader in (1, 3) for p in cluster.partitions)
    assert [endpoint.node_id for _, endpoint in cluster.peers.probes] == [2, 2]


@pytest.mark.parametrize(
    "found", [None, PeerFailure.TIMED_OUT, PeerFailure.UNREACHABLE, PeerFailure.DISCONNECTED]
)
def test_nothing_but_a_refusal_shortens_a_session(cluster: Cluster, found: PeerFailure | None) -> None:
    cluster.peers.found[2] = found
    cluster.controller.broker_disconnected(2, cluster.epochs[2], "c2")
    for _ in range(8):
        cluster.advance(1)
        cluster.beat(1)
        cluster.beat(3)
    assert not cluster.is_fenced(2)
    cluster.advance(1.1)
    assert cluster.is_fenced(2)


def test_a_listener_that_closes_a_little_later_is_found_out_too(cluster: Cluster) -> None:
    cluster.controller.broker_disconnected(2, cluster.epochs[2], "c2")
    cluster.advance(0.02)
    cluster.peers.found[2] = PeerFailure.REFUSED
    cluster.advance(0.3)
    assert cluster.is_fenced(2)


def test_one_refusal_is_not_enough(cluster: Cluster) -> None:
    cluster.peers.found[2] = PeerFailure.REFUSED
    cluster.controller.broker_disconnected(2, cluster.epochs[2], "c2")
    cluster.advance(0.02)
    cluster.peers.found[2] = None
    cluster.advance(0.06)
    cluster.beat(2)
    cluster.advance(1)
    assert not cluster.is_fenced(2)
    assert len(cluster.peers.probes) == 2


def test_a_broker_that_was_unregistered_is_not_looked_for(cluster: Cluster) -> None:
    cluster.peers.found[2] = PeerFailure.TIMED_OUT
    cluster.controller.broker_disconnected(2, cluster.epochs[2], "c2")
    cluster.controller.handle(UnregisterBrokerRequest(broker_id=2), lambda _: None, pytest.fail)
    cluster.advance(0.1)
    probes = len(cluster.peers.probes)
    cluster.advance(5)
    assert len(cluster.peers.probes) == probes


def test_a_connection_that_was_replaced_means_nothing(cluster: Cluster) -> None:
    cluster.peers.found[2] = PeerFailure.REFUSED
    cluster.beat(2, connection="another")
    cluster.controller.broker_disconnected(2, cluster.epochs[2], "c2")
    cluster.controller.broker_disconnected(2, 12345, "another")
    cluster.advance(1)
    assert not cluster.peers.probes


def test_a_new_controller_gives_everyone_a_fresh_session_and_looks_who_is_there(cluster: Cluster) -> None:
    cluster.advance(8)
    cluster.controller.handle_leader_change(None, 2)
    cluster.peers.found[3] = PeerFailure.REFUSED
    cluster.log.leader_epoch = 3
    cluster.controller.handle_leader_change(9, 3)
    cluster.log.commit()
    # Registered with an earlier leader: known all the same.
    assert not cluster.beat(1).is_fenced
    cluster.advance(0.2)
    assert [cluster.is_fenced(broker) for broker in (1, 2, 3)] == [False, False, True]
    for _ in range(4):
        cluster.advance(2)
        cluster.beat(1)
    assert not cluster.is_fenced(2)
    cluster.advance(1)
    assert cluster.is_fenced(2)


def test_a_controller_that_does_not_lead_fences_nobody(cluster: Cluster) -> None:
    cluster.controller.handle_leader_change(8, 2)
    cluster.controller.broker_disconnected(2, cluster.epochs[2], "c2")
    batches = len(cluster.log.batches)
    cluster.clock.advance(100)
    assert len(cluster.log.batches) == batches
    assert not cluster.peers.probes


def test_a_controller_that_stood_still_blames_nobody(cluster: Cluster) -> None:
    # The timers run late: time has passed for the clock, but not for the loop.
    cluster.clock._now_s += 60
    cluster.advance(0.1)
    assert not any(cluster.is_fenced(broker) for broker in (1, 2, 3))
    cluster.advance(9)
    assert all(cluster.is_fenced(broker) for broker in (1, 2, 3))


def test_a_living_brokers_id_cannot_be_taken(cluster: Cluster) -> None:
    answers = cluster.register(2, incarnation=50)
    assert [error.code for error in answers.errors] == [ErrorCode.DUPLICATE_BROKER_REGISTRATION]


def test_a_broker_that_was_killed_comes_back_without_waiting(cluster: Cluster) -> None:
    cluster.controller.broker_disconnected(2, cluster.epochs[2], "c2")
    # It was restarted before a probe found nobody there; it has the same directory.
    answers = cluster.register(2, incarnation=50)
    assert answers.responses[0].broker_epoch > cluster.controller.image.brokers[1].epoch
    assert all(2 not in p.isr for p in cluster.partitions)
    assert not cluster.beat(2).is_fenced


def test_another_machine_has_to_wait_for_the_session(cluster: Cluster) -> None:
    cluster.controller.broker_disconnected(2, cluster.epochs[2], "c2")
    request = registration(2, incarnation=50)
    request.log_dirs = [bytes(15) + b"\xee"]
    answers = Answers()
    cluster.controller.register_broker(request, answers.done, answers.failed)
    assert [error.code for error in answers.errors] == [ErrorCode.DUPLICATE_BROKER_REGISTRATION]


def test_a_planned_stop_hands_over_first_and_goes_when_the_others_know(cluster: Cluster) -> None:
    assert any(p.leader == 2 for p in cluster.partitions)
    before = cluster.log.log_end_offset
    answer = cluster.beat(2, want_shut_down=True)
    assert not answer.should_shut_down
    assert all(2 not in p.isr and p.leader in (1, 3) for p in cluster.partitions)
    assert not cluster.is_fenced(2)
    # One batch did it.
    assert len([base for base, _ in cluster.log.batches if base >= before]) == 1
    assert not cluster.beat(2, want_shut_down=True).should_shut_down
    cluster.beat(1)
    assert not cluster.beat(2, want_shut_down=True).should_shut_down
    cluster.beat(3)
    assert cluster.beat(2, want_shut_down=True).should_shut_down
    assert cluster.is_fenced(2)
    # And it may come back at once.
    assert cluster.register(2, incarnation=50, previous_epoch=cluster.epochs[2]).responses


def test_a_shutdown_begun_with_another_controller_is_granted(cluster: Cluster) -> None:
    cluster.beat(2, want_shut_down=True)
    cluster.controller.handle_leader_change(None, 2)
    cluster.log.leader_epoch = 3
    cluster.controller.handle_leader_change(9, 3)
    assert cluster.beat(2, want_shut_down=True).should_shut_down


def test_the_log_is_not_silent_while_others_follow_it(cluster: Cluster) -> None:
    cluster.advance(1.2)
    written = [record.NAME for record in cluster.log.records]
    assert written[-1] == "NoOpRecord"
    count = written.count("NoOpRecord")
    cluster.advance(2)
    assert [record.NAME for record in cluster.log.records].count("NoOpRecord") == count + 4


def test_leaders_go_back_to_preferred_replicas_by_the_clock(cluster: Cluster) -> None:
    cluster.peers.found[2] = PeerFailure.REFUSED
    cluster.controller.broker_disconnected(2, cluster.epochs[2], "c2")
    cluster.advance(0.2)
    cluster.register(2, incarnation=60)
    cluster.beat(2)
    image = cluster.controller.image
    topic = image.topics.by_name["t"]
    for index, partition in topic.partitions.items():
        data = AlterPartitionRequest.PartitionData(
            partition_index=index,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            new_isr_with_epochs=[
                AlterPartitionRequest.BrokerState(broker_id=b, broker_epoch=cluster.epochs[b])
                for b in (1, 2, 3)
            ],
        )
        request = AlterPartitionRequest(
            broker_id=partition.leader,
            broker_epoch=cluster.epochs[partition.leader],
            topics=[AlterPartitionRequest.TopicData(topic_id=topic.id, partitions=[data])],
        )
        cluster.controller.handle(request, lambda _: None, pytest.fail)
    cluster.log.commit()
    assert any(p.leader != p.replicas[0] for p in cluster.partitions)
    for _ in range(61):
        cluster.advance(5)
        for broker in (1, 2, 3):
            cluster.beat(broker)
    assert all(p.leader == p.replicas[0] != NO_LEADER for p in cluster.partitions)
