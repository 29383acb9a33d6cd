"""Connections of clients above a quota: what they are answered, and how long nothing more is read from them."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from ottla.api.base import NO_RESPONSE, Api
from ottla.net.buffers import ReceiveBuffers
from ottla.net.idle import IdleReaper
from ottla.testing.virtual_clock import VirtualClock
from ottla.wire import messages
from unit.net.net_harness import HEARTBEAT, PRODUCE, Client, Service, frame, heartbeat, produce

ANONYMOUS = (("user", "ANONYMOUS"),)


class Limited:
    """A client with a quota, and the answers that it gets."""

    def __init__(self, quotas: dict[str, float]) -> None:
        self.clock = VirtualClock()
        self.service = Service()
        self.client = Client(self.clock, ReceiveBuffers(), self.service.apis, 1 << 20)
        self.client.quotas.update({ANONYMOUS: quotas} if quotas else {})

    @property
    def reading(self) -> bool:
        self.client.turn()
        return self.client.transport.reading


def throttle_times(client: Client) -> list[int]:
    """`throttle_time_ms` of the answers to Heartbeat 1 and Produce 3 without topics."""
    found, at, written = [], 0, bytes(client.transport.written)
    while at < len(written):
        (size,) = struct.unpack_from(">i", written, at)
        body = written[at + 8 : at + 4 + size]
        found.append(struct.unpack_from(">i", body, 4 if len(body) == 8 else 0)[0])
        at += 4 + size
    return found


def heartbeat_1(correlation_id: int) -> bytes:
    body = struct.pack(">h", 1) + b"g" + struct.pack(">i", 0) + struct.pack(">h", 1) + b"m"
    return frame(HEARTBEAT, 1, correlation_id, body)


def test_a_producer_above_its_rate_is_answered_at_once_and_then_muted() -> None:
    limited = Limited({"producer_byte_rate": 1000.0})
    size = len(produce(1, bytes(10_000))) - 4
    limited.client.send(produce(1, bytes(10_000)))
    over_ms = round((size / 10 - 1000) / 1000 * 10_000)
    assert throttle_times(limited.client) == [over_ms]
    assert not limited.reading
    limited.clock.advance((over_ms - 1) / 1000)
    assert not limited.reading
    limited.clock.advance(0.002)
    assert limited.reading
    assert len(limited.service.bodies) == 1


def test_without_a_quota_nothing_is_measured_and_nothing_is_said() -> None:
    limited = Limited({})
    for number in range(5):
        limited.client.send(produce(number, bytes(100_000)))
    assert throttle_times(limited.client) == [0] * 5
    assert limited.reading and len(limited.client.quotas) == 0


def test_frames_behind_the_one_too_many_wait_in_the_buffer() -> None:
    limited = Limited({"producer_byte_rate": 1000.0})
    limited.client.send(produce(1, bytes(20_000)) + produce(2, b"a") + produce(3, b"b"))
    assert limited.service.seen == [1]
    limited.clock.advance(60)
    assert limited.reading
    assert limited.service.seen == [1, 2, 3]


@pytest.mark.parametrize("limit", [50_000.0, 200_000.0])
def test_a_producer_that_never_stops_is_held_to_its_rate(limit: float) -> None:
    limited = Limited({"producer_byte_rate": limit})
    message = produce(1, bytes(10_000))
    sent = 0
    began = limited.clock.monotonic()
    # At first what ten windows allow may be used at once: the burst is paid back before it is measured.
    while (now_s := limited.clock.monotonic() - began) < 55:
        if limited.reading:
            limited.client.send(message)
            sent += len(message) if now_s >= 22 else 0
        else:
            limited.clock.advance(0.005)
    assert sent == pytest.approx(limit * 33, rel=0.05)


def test_acks_0_is_muted_without_an_answer() -> None:
    limited = Limited({"producer_byte_rate": 1000.0})

    def silent(broker: Any, ctx: Any, request: Any) -> Any:
        return NO_RESPONSE

    limited.service.apis[PRODUCE] = Api(PRODUCE, silent)
    limited.client.send(produce(1, bytes(20_000)))
    assert not limited.client.transport.written
    assert not limited.reading
    limited.clock.advance(60)
    assert limited.reading


def test_time_on_the_loop_counts_in_percent_and_waits_for_one_window_at_most() -> None:
    limited = Limited({"request_percentage": 1.0})
    original = limited.service.apis[HEARTBEAT].handle

    def slow(broker: Any, ctx: Any, request: Any) -> Any:
        limited.clock.advance(3)
        return original(broker, ctx, request)

    limited.service.apis[HEARTBEAT] = Api(HEARTBEAT, slow)
    limited.client.send(heartbeat_1(1))
    # Waiting does not count: only the three seconds before do.
    limited.clock.advance(100)
    limited.service.parked[0].respond(messages.HeartbeatResponse())
    assert throttle_times(limited.client) == [1000]
    assert not limited.reading
    limited.clock.advance(1.01)
    assert limited.reading


def test_a_muted_connection_is_not_idle() -> None:
    limited = Limited({"producer_byte_rate": 100.0})
    reaper = IdleReaper(limited.clock, 1000, lambda: [limited.client.connection])
    reaper.start()
    limited.client.send(produce(1, bytes(2_000)))
    muted_s = throttle_times(limited.client)[0] / 1000
    limited.clock.advance(muted_s - 1)
    assert not limited.client.transport.closed
    limited.clock.advance(4)
    assert limited.client.transport.closed


def test_a_muted_connection_can_be_lost() -> None:
    limited = Limited({"producer_byte_rate": 100.0})
    limited.client.send(produce(1, bytes(2_000)) + heartbeat(2))
    limited.client.connection.connection_lost(None)
    limited.clock.advance(600)
    limited.client.turn()
    assert limited.service.seen == [1]


def test_a_new_limit_counts_from_the_next_request_of_a_connection_on() -> None:
    limited = Limited({"producer_byte_rate": 1e9})
    limited.client.send(produce(1, bytes(20_000)))
    limited.client.quotas.update({ANONYMOUS: {"producer_byte_rate": 1000.0}})
    limited.client.send(produce(2, bytes(20_000)))
    first, second = throttle_times(limited.client)
    assert first == 0
    # What was measured before stays: both requests count.
    assert second > 20_000
    limited.clock.advance(60)
    limited.client.quotas.update({})
    limited.client.send(produce(3, bytes(20_000)))
    assert throttle_times(limited.client)[2] == 0


def test_after_another_login_the_quota_of_the_new_user_counts() -> None:
    limited = Limited({"producer_byte_rate": 1e9})
    limited.client.quotas.update(
        {ANONYMOUS: {"producer_byte_rate": 1e9}, (("user", "eve"),): {"producer_byte_rate": 1000.0}}
    )
    limited.client.send(produce(1, bytes(20_000)))
    limited.client.connection.authenticated("User:eve")
    limited.client.send(produce(2, bytes(20_000)))
    first, second = throttle_times(limited.client)
    assert first == 0 and 10_000 < second < 11_000


def test_client_ids_of_one_connection_are_measured_each_by_itself() -> None:
    limited = Limited({})
    limited.client.quotas.update({(("client-id", "greedy"),): {"producer_byte_rate": 1000.0}})
    request = produce(1, bytes(20_000))
    length = struct.unpack_from(">h", request, 12)[0]
    greedy = request[4:12] + struct.pack(">h", 6) + b"greedy" + request[14 + length :]
    limited.client.send(request + struct.pack(">i", len(greedy)) + greedy)
    first, second = throttle_times(limited.client)
    assert first == 0 and 10_000 < second < 11_000


def test_bytes_of_a_fetch_that_has_to_wait_do_not_count_and_its_time_counts_once() -> None:
    limited = Limited({"consumer_byte_rate": 1000.0, "request_percentage": 100.0})
    sizes = [20_000, 9_000, 2_000]

    def fetch(broker: Any, ctx: Any, request: Any) -> messages.HeartbeatResponse:
        assert ctx.metered and ctx.max_fetch_bytes() == 10_000
        limited.clock.advance(0.004)
        throttle_ms = ctx.fetched(sizes.pop(0))
        limited.clock.advance(0.002)
        return messages.HeartbeatResponse(throttle_time_ms=throttle_ms)

    limited.service.apis[HEARTBEAT] = Api(HEARTBEAT, fetch)
    limited.client.send(heartbeat_1(1))
    assert throttle_times(limited.client) == pytest.approx([10_000], abs=10)
    assert not limited.reading
    limited.clock.advance(10.1)
    assert limited.reading
    limited.client.send(heartbeat_1(2))
    assert throttle_times(limited.client)[1:] == [0]
    now_ms = int(limited.clock.monotonic() * 1000)
    used = {key: rate for key, _, rate, _ in limited.client.quotas.rates(now_ms)}
    # Over eleven windows: 9,000 bytes, and 4 + 2 + 4 ms; the last 2 ms count with the next request.
    assert used["consumer_byte_rate"] == pytest.approx(9_000 / 10.1, rel=0.1)
    assert used["request_percentage"] == pytest.approx(1.0 / 10.1, rel=0.1)
    limited.client.send(heartbeat_1(3))
    assert throttle_times(limited.client)[2] > 0
