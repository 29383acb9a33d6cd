"""A client's request that one node passes on to another, there and back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.api.base import PARKED
from ottla.api.forwarding import envelope, request_forwarding
from ottla.api.forwarding.local_requests import InnerRequest
from ottla.errors import ApiException, ErrorCode
from ottla.security.quotas.managers import ClientQuotas
from ottla.testing.virtual_clock import VirtualClock
from ottla.wire.codec import decode
from ottla.wire.headers import decode_response_header, encode_request
from ottla.wire.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    EnvelopeRequest,
    EnvelopeResponse,
    MetadataRequest,
)


class Controller:
    """Answers every CreateTopics alike, or says that it is not the controller."""

    def __init__(self) -> None:
        self.code = ErrorCode.NONE
        self.active = True

    def handle(self, request: Any, done: Any, failed: Any, *, version: int, requester: Any) -> None:
        for topic in request.topics:
            requester.charge(topic.num_partitions)
        if not self.active:
            failed(ApiException(ErrorCode.NOT_CONTROLLER, "not me"))
            return
        names = [topic.name for topic in request.topics]
        result = CreateTopicsResponse.CreatableTopicResult
        done(CreateTopicsResponse(topics=[result(name=name, error_code=self.code) for name in names]))


class Channel:
    """To the other node, through its handler."""

    def __init__(self, node: Any) -> None:
        self.node = node
        self.sent: list[Any] = []

    def send(self, request: Any, done: Any, failed: Any, *, timeout_s: float) -> None:
        self.sent.append(request)
        ctx = InnerRequest(done, api_key=58, version=0, received_at=0.0)
        try:
            assert envelope.handle(self.node, ctx, request) is PARKED
        except ApiException as error:
            done(EnvelopeResponse(error_code=error.code))


@pytest.fixture
def controller() -> Controller:
    return Controller()


@pytest.fixture
def channel(controller: Controller) -> Channel:
    return Channel(
        SimpleNamespace(
            controller=controller, authorizer=None, audit=None, quotas=ClientQuotas(), clock=VirtualClock()
        )
    )


def pass_on(channel: Channel, frame: bytes, **who: str) -> Any:
    """The answer's bytes, or the error."""
    node = SimpleNamespace(
        to_controller=channel, authorizer=None, audit=None, config=SimpleNamespace(int=lambda key: 30_000)
    )
    ctx = InnerRequest(print, api_key=19, version=7, received_at=0.0, **who)
    outcome: list[Any] = []
    request_forwarding.forward_request(node, ctx, frame, outcome.append, outcome.append)  # type: ignore[arg-type]
    return outcome[0]


def frame_of(request: Any, version: int) -> bytes:
    return b"".join(encode_request(4711, "the client", request, version))[4:]


def create(name: str = "t") -> bytes:
    return frame_of(CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic(name=name)]), 7)


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS])
def test_the_answer_is_the_clients_own(channel: Channel, controller: Controller, code: ErrorCode) -> None:
    controller.code = code
    answer = pass_on(channel, create(), principal="User:alice", client_host="10.1.2.3")
    header, offset = decode_response_header(19, 7, answer)
    assert header.correlation_id == 4711
    result = decode(CreateTopicsResponse, 7, answer[offset:]).topics[0]
    assert (result.name, result.error_code) == ("t", code)


def test_the_envelope_says_who_asks(channel: Channel) -> None:
    pass_on(channel, create(), principal="User:alice:with:colons", client_host="fe80::1%eth0")
    sent = channel.sent[0]
    assert request_forwarding.decode_principal(sent.request_principal) == ("User:alice:with:colons", False)
    assert request_forwarding.decode_address(sent.client_host_address) == "fe80::1"


def test_the_wrong_controller_says_so_on_the_outside(channel: Channel, controller: Controller) -> None:
    controller.active = False
    answers: list[Any] = []
    channel.send(
        EnvelopeRequest(
            request_data=create(),
            request_principal=request_forwarding._encode_principal("User:alice", False),
            client_host_address=bytes(4),
        ),
        answers.append,
        print,
        timeout_s=1,
    )
    assert answers[0].error_code == ErrorCode.NOT_CONTROLLER
    assert answers[0].response_data is None


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (frame_of(MetadataRequest(topics=[]), 12), ErrorCode.UNKNOWN_SERVER_ERROR),
        (b"\x00\x13\x00\x07", ErrorCode.UNKNOWN_SERVER_ERROR),
        (b"", ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_what_does_not_belong_into_an_envelope_is_refused(
    channel: Channel, frame: bytes, code: ErrorCode
) -> None:
    assert pass_on(channel, frame).code is code


def pass_on_part(channel: Any) -> Any:
    """The answer to the rest of a request, or the error."""
    node = SimpleNamespace(
        to_controller=channel, authorizer=None, audit=None, config=SimpleNamespace(int=lambda key: 30_000)
    )
    ctx = InnerRequest(print, api_key=19, version=7, received_at=0.0, principal="User:alice")
    request = CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic(name="rest")])
    outcome: list[Any] = []
    request_forwarding.forward_part(node, ctx, request, outcome.append, outcome.append)  # type: ignore[arg-type]
    return outcome[0]


def test_the_rest_of_a_request_is_passed_on_for_its_client(channel: Channel) -> None:
    assert [topic.name for topic in pass_on_part(channel).topics] == ["rest"]
    assert request_forwarding.decode_principal(channel.sent[0].request_principal) == ("User:alice", False)


def test_an_answer_that_cannot_be_read_is_an_error_and_not_silence() -> None:
    class Garbage:
        def send(self, request: Any, done: Any, failed: Any, *, timeout_s: float) -> None:
            done(EnvelopeResponse(response_data=b"\x00"))

    assert pass_on_part(Garbage()).code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_the_controller_measures_the_clients_quota_and_tells_the_time(channel: Channel) -> None:
    channel.node.quotas.update({(("user", "alice"),): {"controller_mutation_rate": 1.0}})
    topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=12)
    frame = frame_of(CreateTopicsRequest(topics=[topic]), 5)
    answer = pass_on(channel, frame, principal="User:bob")
    assert int.from_bytes(answer[5:9], "big") == 0
    answer = pass_on(channel, frame, principal="User:alice")
    # Eleven partitions may be created at once; the twelfth is paid back within a second.
    assert int.from_bytes(answer[5:9], "big") == 1000
