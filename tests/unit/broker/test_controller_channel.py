"""A node's way to the active controller, as leaders come and go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.broker.controller_channel import ControllerChannel
from ottla.errors import ApiException, ErrorCode
from ottla.peers import Endpoint, PeerFailure
from ottla.testing.virtual_clock import VirtualClock
from ottla.wire.messages import CreateTopicsRequest, CreateTopicsResponse

ONE, TWO = Endpoint(1, "a", 9093), Endpoint(2, "b", 9093)


class Quorum:
    def __init__(self) -> None:
        self.is_leader = False
        self.leader_endpoint: Endpoint | None = None
        self._callbacks: list[Callable[[int | None, int], object]] = []

    def on_leader_change(self, callback: Callable[[int | None, int], object]) -> None:
        self._callbacks.append(callback)

    def led_by(self, endpoint: Endpoint | None) -> None:
        self.leader_endpoint = endpoint
        for callback in self._callbacks:
            callback(None if endpoint is None else endpoint.node_id, 1)


class FakePeer:
    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.asked: list[tuple[Any, Callable[[Any], object], Callable[[PeerFailure], object]]] = []

    def send(self, request: Any, done: Any, failed: Any, *, timeout_s: float) -> None:
        self.asked.append((request, done, failed))

    def answer(self, response: Any) -> None:
        self.asked.pop(0)[1](response)

    def fail(self, failure: PeerFailure) -> None:
        self.asked.pop(0)[2](failure)

    def close(self) -> None:
        while self.asked:
            self.fail(PeerFailure.CLOSED)


class FakePeers:
    def __init__(self) -> None:
        self.opened: list[FakePeer] = []

    def open(self, endpoint: Endpoint, purpose: str) -> FakePeer:
        self.opened.append(FakePeer(endpoint))
        return self.opened[-1]


class Rig:
    def __init__(self) -> None:
        self.clock, self.quorum, self.peers = VirtualClock(), Quorum(), FakePeers()
        self.local: list[Callable[[Any], object]] = []
        self.outcomes: list[Any] = []
        self.channel = ControllerChannel(
            self.quorum,
            self.peers,  # type: ignore[arg-type]
            self.clock,
            lambda request, done: self.local.append(done),
        )

    def ask(self, timeout_s: float = 30.0) -> None:
        self.channel.send(
            CreateTopicsRequest(), self.outcomes.append, self.outcomes.append, timeout_s=timeout_s
        )

    @property
    def peer(self) -> FakePeer:
        return self.peers.opened[-1]


@pytest.fixture
def rig() -> Rig:
    return Rig()


def created(code: ErrorCode = ErrorCode.NONE) -> Any:
    return CreateTopicsResponse(topics=[CreateTopicsResponse.CreatableTopicResult(name="t", error_code=code)])


def test_the_leader_is_asked_over_one_connection(rig: Rig) -> None:
    rig.quorum.led_by(ONE)
    rig.ask()
    rig.ask()
    assert [peer.endpoint for peer in rig.peers.opened] == [ONE]
    rig.peer.answer(created())
    assert rig.outcomes == [created()]


def test_the_leaders_own_node_asks_itself(rig: Rig) -> None:
    rig.quorum.is_leader = True
    rig.ask()
    rig.local.pop()(created())
    assert rig.outcomes == [created()]
    assert not rig.peers.opened


def test_without_a_leader_requests_wait_for_one(rig: Rig) -> None:
    rig.ask()
    rig.clock.advance(1)
    assert not rig.peers.opened
    rig.quorum.led_by(TWO)
    rig.clock.advance(0)
    rig.peer.answer(created())
    assert rig.outcomes == [created()]


def test_a_node_that_is_not_the_controller_any_more_is_not_believed(rig: Rig) -> None:
    rig.quorum.led_by(ONE)
    rig.ask()
    rig.peer.answer(created(ErrorCode.NOT_CONTROLLER))
    assert rig.outcomes == []
    rig.quorum.led_by(TWO)
    rig.clock.advance(0)
    assert rig.peer.endpoint == TWO
    rig.peer.answer(created())
    assert rig.outcomes == [created()]


def test_what_an_old_leader_has_not_answered_is_asked_of_the_new_one(rig: Rig) -> None:
    rig.quorum.led_by(ONE)
    rig.ask()
    rig.quorum.led_by(TWO)
    rig.clock.advance(0.1)
    assert rig.peer.endpoint == TWO
    assert len(rig.peer.asked) == 1
    assert rig.outcomes == []


@pytest.mark.parametrize(
    "failure", [PeerFailure.REFUSED, PeerFailure.DISCONNECTED, PeerFailure.UNREACHABLE, PeerFailure.TIMED_OUT]
)
def test_a_lost_connection_is_tried_again_until_the_time_is_up(rig: Rig, failure: PeerFailure) -> None:
    rig.quorum.led_by(ONE)
    rig.ask(timeout_s=1.0)
    attempts = 0
    while not rig.outcomes:
        attempts += 1
        rig.peer.fail(failure)
        rig.clock.advance(0.1)
    assert attempts >= 5
    assert isinstance(rig.outcomes[0], ApiException)
    assert rig.outcomes[0].code is ErrorCode.REQUEST_TIMED_OUT


def test_a_controller_that_does_not_know_the_request_is_not_asked_again(rig: Rig) -> None:
    rig.quorum.led_by(ONE)
    rig.ask()
    rig.peer.fail(PeerFailure.UNSUPPORTED_VERSION)
    assert rig.outcomes[0].code is ErrorCode.UNSUPPORTED_VERSION


def test_closing_fails_what_waits(rig: Rig) -> None:
    rig.ask()
    rig.channel.close()
    rig.ask()
    assert [error.code for error in rig.outcomes] == [ErrorCode.NOT_CONTROLLER] * 2
