"""A broker's way in and out, against the real controller on a log in memory."""

from __future__ import annotations

from typing import Any

import pytest
from controller_harness import FakeLog, registration

from ottla.clock import VirtualClock
from ottla.controller.controller import Controller
from ottla.controller.lifecycle import BrokerLifecycle, BrokerState
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE
from ottla.wire.messages import BrokerRegistrationResponse, CreateTopicsRequest, UnregisterBrokerRequest


class Node:
    """One node: its controller, and its broker's lifecycle that has applied all that is committed."""

    def __init__(self, controller: Controller, log: FakeLog, clock: VirtualClock) -> None:
        self.controller, self.log, self.clock = controller, log, clock
        self.applied = -1
        self.events: list[str] = []
        self.lifecycle = BrokerLifecycle(
            clock,
            registration=registration(1),
            send=self.send,
            metadata_offset=lambda: self.applied,
            heartbeat_interval_ms=2000,
        )

    def send(self, request: Any, done: Any, failed: Any, *, timeout_s: float) -> None:
        if request.NAME == "BrokerRegistrationRequest":
            self.controller.register_broker(request, done, failed)
        else:
            self.controller.broker_heartbeat(request, done, failed)

    def start(self) -> None:
        self.lifecycle.start(lambda: self.events.append("running"))

    def commit(self) -> None:
        """Commit and apply."""
        self.log.commit()
        self.applied = self.log.log_end_offset - 1
        self.lifecycle.publish(MetadataDelta(EMPTY_IMAGE), self.controller.image)
        self.log.commit()


@pytest.fixture
def node(controller: Controller, metadata_log: FakeLog, clock: VirtualClock) -> Node:
    return Node(controller, metadata_log, clock)


def test_a_broker_registers_and_runs_once_it_is_unfenced(node: Node) -> None:
    node.controller.handle_leader_change(1, 1)
    node.start()
    assert node.lifecycle.state is BrokerState.STARTING
    node.commit()
    assert node.lifecycle.state is BrokerState.RUNNING
    assert node.events == ["running"]
    assert node.lifecycle.broker_epoch == node.controller.image.brokers[1].epoch
    assert not node.controller.image.brokers[1].fenced


def test_it_keeps_trying_until_there_is_a_controller(node: Node) -> None:
    node.start()
    node.clock.advance(1)
    assert node.lifecycle.state is BrokerState.STARTING
    node.controller.handle_leader_change(1, 1)
    node.clock.advance(1)
    node.commit()
    assert node.lifecycle.state is BrokerState.RUNNING


def running(node: Node) -> Node:
    node.controller.handle_leader_change(1, 1)
    node.start()
    node.commit()
    return node


def test_it_leaves_in_order(node: Node) -> None:
    running(node)
    topic = CreateTopicsRequest.CreatableTopic(name="a", num_partitions=1, replication_factor=1)
    node.controller.create_topics(CreateTopicsRequest(topics=[topic]), lambda _: None, pytest.fail)
    node.commit()
    node.lifecycle.begin_controlled_shutdown(lambda: node.events.append("stopped"))
    node.commit()
    assert node.controller.image.topics.by_name["a"].partitions[0].leader == -1
    node.clock.advance(0.1)
    node.commit()
    assert node.events == ["running", "stopped"]
    assert node.lifecycle.state is BrokerState.SHUTTING_DOWN
    assert node.controller.image.brokers[1].fenced


def test_it_leaves_also_when_nobody_answers(node: Node) -> None:
    running(node)
    node.controller.shutdown()
    node.lifecycle.begin_controlled_shutdown(lambda: node.events.append("stopped"))
    assert node.events == ["running", "stopped"]


def test_a_broker_that_was_unregistered_registers_again(node: Node) -> None:
    running(node)
    node.controller.unregister_broker(UnregisterBrokerRequest(broker_id=1), lambda _: None, pytest.fail)
    node.commit()
    assert not node.controller.image.brokers
    node.clock.advance(3)
    node.commit()
    node.commit()
    assert node.lifecycle.state is BrokerState.RUNNING
    assert not node.controller.image.brokers[1].fenced


def test_heartbeats_go_on_after_a_failure(clock: VirtualClock) -> None:
    beats: list[Any] = []

    def send(request: Any, done: Any, failed: Any, *, timeout_s: float) -> None:
        if request.NAME == "BrokerRegistrationRequest":
            done(BrokerRegistrationResponse(broker_epoch=5))
            return
        beats.append(request)
        failed(KafkaError(ErrorCode.NOT_CONTROLLER, "no"))

    lifecycle = BrokerLifecycle(
        clock,
        registration=registration(1),
        send=send,
        metadata_offset=lambda: 7,
        heartbeat_interval_ms=2000,
    )
    lifecycle.start(pytest.fail)
    clock.advance(0.35)
    assert [(beat.broker_epoch, beat.current_metadata_offset) for beat in beats] == [(5, 7)] * 4
    lifecycle.stop()
    clock.advance(10)
    assert len(beats) == 4
