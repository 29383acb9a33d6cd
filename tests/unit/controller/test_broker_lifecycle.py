"""A broker's way in and out, against the real controller on a log in memory."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.lifecycle import BrokerLifecycle, BrokerState
from ottla.controller.controller import Controller
from ottla.errors import ApiException, ErrorCode
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE
from ottla.testing.virtual_clock import VirtualClock
from ottla.wire.messages import (
    BrokerHeartbeatResponse,
    BrokerRegistrationChangeRecord,
    BrokerRegistrationResponse,
    CreateTopicsRequest,
    UnregisterBrokerRequest,
)
from unit.controller.controller_harness import FakeLog, image_with_brokers, registration


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
    node.controller.handle(CreateTopicsRequest(topics=[topic]), lambda _: None, pytest.fail)
    node.commit()
    node.lifecycle.begin_controlled_shutdown(lambda: node.events.append("stopped"))
    node.commit()
    assert node.controller.image.topics.by_name["a"].partitions[0].leader == -1
    node.clock.advance(0.1)
    node.commit()
    assert node.events == ["running", "stopped"]
    assert node.lifecycle.state is BrokerState.SHUTTING_DOWN
    assert node.controller.image.brokers[1].fenced


def test_a_broker_that_was_unregistered_leaves_at_once(node: Node) -> None:
    running(node)
    node.controller.handle(UnregisterBrokerRequest(broker_id=1), lambda _: None, pytest.fail)
    node.commit()
    node.lifecycle.begin_controlled_shutdown(lambda: node.events.append("stopped"))
    node.commit()
    assert node.events == ["running", "stopped"]


def test_a_broker_that_was_unregistered_registers_again(node: Node) -> None:
    running(node)
    node.controller.handle(UnregisterBrokerRequest(broker_id=1), lambda _: None, pytest.fail)
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
        failed(ApiException(ErrorCode.NOT_CONTROLLER, "no"))

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


def test_a_registration_that_is_refused_again_and_again_is_one_line(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    sent: list[Any] = []

    def send(request: Any, done: Any, failed: Any, *, timeout_s: float) -> None:
        sent.append(request)
        code = ErrorCode.DUPLICATE_BROKER_REGISTRATION if len(sent) < 5 else ErrorCode.NOT_CONTROLLER
        failed(ApiException(code, code.name))

    lifecycle = BrokerLifecycle(
        clock,
        registration=registration(1),
        send=send,
        metadata_offset=lambda: 7,
        heartbeat_interval_ms=2000,
    )
    lifecycle.start(pytest.fail)
    clock.advance(1)
    lifecycle.stop()
    assert len(sent) > 5
    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [line.rpartition(" ")[2] for line in lines] == ["DUPLICATE_BROKER_REGISTRATION", "NOT_CONTROLLER"]


class Recorder:
    """A channel to the controller that the test answers for."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.sent: list[tuple[Any, Any, Any]] = []
        self.offset = 3
        self.cordoned: list[bytes] | None = None
        self.lifecycle = BrokerLifecycle(
            clock,
            registration=registration(1),
            send=self.send,
            metadata_offset=lambda: self.offset,
            heartbeat_interval_ms=2000,
            cordoned_directories=lambda: self.cordoned,
        )

    def send(self, request: Any, done: Any, failed: Any, *, timeout_s: float) -> None:
        assert timeout_s == 4
        self.sent.append((request, done, failed))

    def answer(self, **fields: Any) -> Any:
        """Answer the last request; gives it."""
        request, done, _ = self.sent[-1]
        if request.NAME == "BrokerRegistrationRequest":
            done(BrokerRegistrationResponse(**fields))
        else:
            done(BrokerHeartbeatResponse(**fields))
        return request

    def fail(self, error: ApiException) -> None:
        """Fail the last request."""
        self.sent[-1][2](error)


@pytest.fixture
def recorder(clock: VirtualClock) -> Recorder:
    made = Recorder(clock)
    made.lifecycle.start(lambda: None)
    made.answer(broker_epoch=8)
    made.answer(is_caught_up=True, is_fenced=False)
    assert made.lifecycle.state is BrokerState.RUNNING
    return made


def test_cordoned_directories_are_told_as_soon_as_they_are_known(clock: VirtualClock) -> None:
    recorder = Recorder(clock)
    recorder.cordoned = [b"\1" * 16]
    recorder.lifecycle.start(lambda: None, on_caught_up=lambda: None)
    recorder.answer(broker_epoch=8)
    # Its own configs may still be unread.
    assert recorder.answer(is_caught_up=True, is_fenced=True).cordoned_log_dirs is None
    recorder.lifecycle.ready()
    assert recorder.answer(is_caught_up=True, is_fenced=False).cordoned_log_dirs == [b"\1" * 16]
    recorder.cordoned = []
    recorder.lifecycle.configs_changed()
    assert recorder.answer(is_caught_up=True, is_fenced=False).cordoned_log_dirs == []


def test_a_broker_stays_fenced_until_it_is_ready(clock: VirtualClock) -> None:
    recorder = Recorder(clock)
    events: list[str] = []
    recorder.lifecycle.start(
        lambda: events.append("running"), on_caught_up=lambda: events.append("caught up")
    )
    recorder.answer(broker_epoch=8)
    assert recorder.answer(is_caught_up=False, is_fenced=True).want_fence
    clock.advance(0.011)
    assert recorder.answer(is_caught_up=True, is_fenced=True).want_fence
    assert events == ["caught up"]
    # Loading takes its time; heartbeats go on as usual.
    clock.advance(2)
    assert recorder.answer(is_caught_up=True, is_fenced=True).want_fence
    recorder.lifecycle.ready()
    assert not recorder.answer(is_caught_up=True, is_fenced=False).want_fence
    assert events == ["caught up", "running"]


def test_a_new_controller_hears_of_the_broker_at_once(recorder: Recorder) -> None:
    before = len(recorder.sent)
    recorder.lifecycle.controller_changed()
    assert len(recorder.sent) == before + 1
    # While one is under way the next one waits for its answer.
    recorder.lifecycle.controller_changed()
    assert len(recorder.sent) == before + 1
    recorder.answer(is_caught_up=True, is_fenced=False)
    assert len(recorder.sent) == before + 2


def test_the_controller_hears_at_once_that_we_know_of_anothers_shutdown(recorder: Recorder) -> None:
    before = len(recorder.sent)
    image = image_with_brokers(1, 2)
    delta = MetadataDelta(image)
    delta.replay(BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=102, in_controlled_shutdown=1))
    recorder.offset = 99
    recorder.lifecycle.publish(delta, delta.apply(99, 1))
    assert len(recorder.sent) == before + 1
    assert recorder.sent[-1][0].current_metadata_offset == 99
    recorder.answer(is_caught_up=True, is_fenced=False)
    other = MetadataDelta(image)
    other.replay(BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=102, fenced=1))
    recorder.lifecycle.publish(other, other.apply(100, 1))
    assert len(recorder.sent) == before + 1


def test_failed_directories_are_told_until_the_controller_knows(
    recorder: Recorder, clock: VirtualClock
) -> None:
    too_late: list[str] = []
    recorder.lifecycle.directory_failed(b"d" * 16, 30, lambda: too_late.append("d"))
    assert recorder.sent[-1][0].offline_log_dirs == [b"d" * 16]
    recorder.lifecycle.directory_failed(b"e" * 16, 30, lambda: too_late.append("e"))
    recorder.answer(is_caught_up=True, is_fenced=False)
    assert recorder.sent[-1][0].offline_log_dirs == [b"d" * 16, b"e" * 16]
    clock.advance(31)
    assert too_late == ["e"]


def test_while_it_waits_to_go_it_asks_often(recorder: Recorder, clock: VirtualClock) -> None:
    events: list[str] = []
    recorder.lifecycle.begin_controlled_shutdown(lambda: events.append("stopped"))
    before = len(recorder.sent)
    recorder.answer(is_caught_up=True, is_fenced=False, should_shut_down=False)
    clock.advance(0.02)
    assert len(recorder.sent) == before + 1
    assert recorder.answer(should_shut_down=True).want_shut_down
    assert events == ["stopped"]


def test_a_lost_heartbeat_does_not_end_a_controlled_shutdown(recorder: Recorder, clock: VirtualClock) -> None:
    events: list[str] = []
    recorder.lifecycle.begin_controlled_shutdown(lambda: events.append("stopped"))
    recorder.fail(ApiException(ErrorCode.REQUEST_TIMED_OUT, "No active controller answered in time."))
    assert not events
    clock.advance(0.1)
    assert recorder.answer(should_shut_down=True).want_shut_down
    assert events == ["stopped"]
