"""What a connection promises its client: whole requests, answers in order, and bounds on what it holds."""

from __future__ import annotations

import logging
import struct
from typing import Any

import pytest

from ottla.api.base import Api
from ottla.errors import ApiException, ErrorCode
from ottla.limits import MAX_PIPELINED_REQUESTS, MAX_WRITE_BUFFER_BYTES
from ottla.net.buffers import FIRST_GROWTH_BYTES, SCRATCH_BYTES, ReceiveBuffers
from ottla.testing.virtual_clock import VirtualClock
from ottla.wire import messages
from unit.net.net_harness import API_VERSIONS, METADATA, PRODUCE, Client, Service, frame, heartbeat, produce

THREE = frame(API_VERSIONS, 0, 1) + produce(2, b"some records") + frame(API_VERSIONS, 0, 3)


@pytest.mark.parametrize("cut", range(len(THREE) + 1))
def test_a_stream_may_be_cut_at_any_byte(client: Client, service: Service, cut: int) -> None:
    client.send(THREE[:cut])
    client.send(THREE[cut:])
    assert client.transport.answers() == [1, 2, 3]
    assert service.bodies == [b"some records"]


def test_a_stream_may_come_byte_by_byte(client: Client, service: Service) -> None:
    for position in range(len(THREE)):
        client.send(THREE[position : position + 1])
    assert client.transport.answers() == [1, 2, 3]


@pytest.mark.parametrize("size", [SCRATCH_BYTES - 10, FIRST_GROWTH_BYTES, FIRST_GROWTH_BYTES * 2, 5 << 20])
def test_large_requests_arrive_whole(client: Client, service: Service, size: int) -> None:
    records = bytes(range(256)) * (size // 256)
    client.send(produce(1, records) + frame(API_VERSIONS, 0, 2) + produce(3, records))
    assert service.bodies == [records, records]
    assert client.transport.answers() == [1, 2, 3]


def test_memory_is_given_back_after_a_large_request(clock: VirtualClock, service: Service) -> None:
    buffers = ReceiveBuffers()
    client = Client(clock, buffers, service.apis, limit=8 << 20)
    client.send(produce(1, bytes(5 << 20)))
    assert buffers.held_bytes == 0


def test_an_announced_length_is_believed_step_by_step(clock: VirtualClock, service: Service) -> None:
    buffers = ReceiveBuffers()
    client = Client(clock, buffers, service.apis, limit=100 << 20)
    client.send(struct.pack(">i", 90 << 20) + b"x")
    assert buffers.held_bytes <= FIRST_GROWTH_BYTES


def test_many_who_announce_much_hold_little(clock: VirtualClock, service: Service) -> None:
    buffers = ReceiveBuffers()
    clients = [Client(clock, buffers, service.apis, limit=100 << 20) for _ in range(200)]
    for client in clients:
        client.send(struct.pack(">i", 90 << 20) + bytes(3000))
    assert buffers.held_bytes <= 16 * FIRST_GROWTH_BYTES + 200 * 4 * 3004
    for client in clients:
        client.connection.connection_lost(None)
    assert buffers.held_bytes == 0


def test_answers_keep_the_order_of_requests_while_later_ones_are_handled(
    client: Client, service: Service
) -> None:
    client.send(heartbeat(1) + frame(API_VERSIONS, 0, 2) + heartbeat(3) + frame(API_VERSIONS, 0, 4))
    assert service.seen == [1, 2, 3, 4]
    assert client.transport.answers() == []
    service.parked[1].respond(messages.HeartbeatResponse())
    assert client.transport.answers() == []
    service.parked[0].respond(messages.HeartbeatResponse())
    assert client.transport.answers() == [1, 2, 3, 4]


def test_an_answer_counts_once(client: Client, service: Service) -> None:
    client.send(heartbeat(1))
    service.parked[0].respond(messages.HeartbeatResponse())
    service.parked[0].respond(messages.HeartbeatResponse())
    assert client.transport.answers() == [1]


def test_reading_stops_when_too_many_requests_wait_and_goes_on_after_an_answer(
    client: Client, service: Service
) -> None:
    client.send(b"".join(heartbeat(n) for n in range(MAX_PIPELINED_REQUESTS + 5)))
    assert len(service.parked) == MAX_PIPELINED_REQUESTS
    assert not client.transport.reading
    service.parked[0].respond(messages.HeartbeatResponse())
    client.turn()
    assert len(service.parked) == MAX_PIPELINED_REQUESTS + 1
    for ctx in service.parked[1:6]:
        ctx.respond(messages.HeartbeatResponse())
    client.turn()
    assert len(service.parked) == MAX_PIPELINED_REQUESTS + 5
    assert client.transport.reading


def test_a_client_that_does_not_read_gets_no_more_requests_handled(client: Client, service: Service) -> None:
    client.connection.pause_writing()
    assert client.transport.high == MAX_WRITE_BUFFER_BYTES
    assert not client.transport.reading
    client.connection.resume_writing()
    client.turn()
    assert client.transport.reading
    client.send(frame(API_VERSIONS, 0, 1))
    assert client.transport.answers() == [1]


def test_requests_already_received_wait_for_a_slow_reader(client: Client, service: Service) -> None:
    client.send(heartbeat(1)[:10])
    client.connection.pause_writing()
    assert service.seen == []
    client.connection.resume_writing()
    client.turn()
    client.send(heartbeat(1)[10:])
    assert service.seen == [1]


def test_a_client_that_sends_much_lets_the_others_come_first(client: Client, service: Service) -> None:
    requests = [produce(n, bytes(300 << 10)) for n in range(4)]
    for request in requests[:3]:
        client.send(request)
    assert client.transport.reading
    client.send(requests[3])
    assert service.seen == [0, 1, 2, 3]
    assert not client.transport.reading
    client.turn()
    assert client.transport.reading


def test_a_client_whose_requests_take_long_lets_the_others_come_first(
    client: Client, service: Service, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = service.apis[API_VERSIONS]

    def slow(*args: Any) -> Any:
        clock._now_s += 0.004
        return api.handle(*args)

    monkeypatch.setitem(service.apis, API_VERSIONS, Api(API_VERSIONS, slow))
    client.send(b"".join(frame(API_VERSIONS, 0, n) for n in range(8)))
    assert client.transport.answers() == [0, 1, 2]
    assert not client.transport.reading
    client.turn()
    assert client.transport.answers() == list(range(6))
    assert not client.transport.reading
    client.turn()
    assert client.transport.answers() == list(range(8))
    assert client.transport.reading
    client.send(frame(API_VERSIONS, 0, 8))
    assert client.transport.answers() == list(range(9))


def test_large_answers_behind_a_parked_one_are_bounded(client: Client, service: Service) -> None:
    client.send(heartbeat(1) + heartbeat(2))
    big = messages.HeartbeatResponse()
    service.parked[1].size = 0
    service.parked[1].complete([bytes(MAX_WRITE_BUFFER_BYTES + 1)], MAX_WRITE_BUFFER_BYTES + 1)
    client.send(heartbeat(3))
    assert service.seen == [1, 2]
    assert not client.transport.reading
    service.parked[0].respond(big)
    client.turn()
    assert service.seen == [1, 2, 3]
    assert client.transport.reading


@pytest.mark.parametrize("size", [-1, -(2**31), (8 << 20) + 1, 2**31 - 1])
def test_an_impossible_size_closes_the_connection(
    client: Client, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        client.send(struct.pack(">i", size))
    assert client.transport.closed
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.mark.parametrize(
    "garbage",
    [
        struct.pack(">i", 0),
        struct.pack(">i", 3) + b"abc",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        frame(PRODUCE, 3, 1, b"\xff" * 40),
        frame(999, 0, 1),
        frame(-1, 0, 1),
        frame(METADATA, 99, 1),
        frame(METADATA, -1, 1),
    ],
)
def test_garbage_closes_only_this_connection(
    client: Client, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        client.send(garbage)
    assert client.transport.closed
    assert client.transport.answers() == []
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_produce_is_advertised_from_0_but_answered_from_3(client: Client, version: int) -> None:
    client.send(frame(PRODUCE, version, 1, struct.pack(">hii", 1, 1000, 0)))
    assert client.transport.closed


def test_requests_after_a_bad_one_are_not_handled(client: Client, service: Service) -> None:
    client.send(frame(METADATA, 99, 1) + frame(API_VERSIONS, 0, 2))
    assert service.seen == []


@pytest.mark.parametrize("version", [5, 99, -1])
def test_an_unknown_version_of_api_versions_is_answered_in_version_0(client: Client, version: int) -> None:
    request = struct.pack(">hhih", API_VERSIONS, version, 7, 1) + b"c\x00" + b"\x01" * 10
    client.send(struct.pack(">i", len(request)) + request)
    assert client.transport.answers() == [7]
    error_code = struct.unpack_from(">h", client.transport.written, 8)[0]
    assert error_code == ErrorCode.UNSUPPORTED_VERSION
    assert not client.transport.closed


def test_a_refusal_is_told_to_the_client(client: Client, service: Service) -> None:
    service.failure = ApiException(ErrorCode.INVALID_REQUEST, "no")
    client.send(frame(METADATA, 1, 1, struct.pack(">i", -1)))
    assert client.transport.answers() == [1]
    assert struct.unpack_from(">i", client.transport.written, 12)[0] == ErrorCode.INVALID_REQUEST


def test_an_unexpected_error_is_logged_and_answered_and_the_broker_goes_on(
    client: Client, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    service.failure = ZeroDivisionError("boom")
    client.send(frame(METADATA, 1, 1, struct.pack(">i", -1)) + frame(API_VERSIONS, 0, 2))
    assert client.transport.answers() == [1, 2]
    assert struct.unpack_from(">i", client.transport.written, 12)[0] == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "boom" in caplog.text


def test_parked_requests_hear_that_their_client_has_gone(client: Client, service: Service) -> None:
    client.send(heartbeat(1))
    ctx = service.parked[0]
    gone: list[int] = []
    ctx.on_close(lambda: gone.append(1))
    assert not ctx.closed
    client.connection.connection_lost(None)
    assert ctx.closed and gone == [1] and client.lost == [client.connection]
    ctx.respond(messages.HeartbeatResponse())
    assert client.transport.written == b""


def test_who_was_answered_does_not_hear_of_the_end(client: Client, service: Service) -> None:
    client.send(heartbeat(1))
    ctx = service.parked[0]
    gone: list[int] = []
    ctx.on_close(lambda: gone.append(1))
    ctx.respond(messages.HeartbeatResponse())
    client.connection.connection_lost(None)
    assert gone == []


def test_finishing_answers_what_was_taken_and_then_closes(client: Client, service: Service) -> None:
    client.send(heartbeat(1))
    client.connection.finish()
    assert not client.transport.closed and not client.transport.reading
    service.parked[0].respond(messages.HeartbeatResponse())
    assert client.transport.answers() == [1]
    assert client.transport.closed


def test_an_aborted_request_closes_the_connection(client: Client, service: Service) -> None:
    client.send(heartbeat(1))
    service.parked[0].abort()
    assert client.transport.closed


def test_answers_to_a_connection_that_is_being_closed_are_dropped(client: Client, service: Service) -> None:
    client.send(heartbeat(1))
    client.connection.close()
    service.parked[0].respond(messages.HeartbeatResponse())
    assert client.transport.written == b""
