"""Caps on connections and on how fast they come."""

from __future__ import annotations

import pytest

from ottla.net.admission import Admission, Limits, ListenerLimits, Verdict, parse_overrides
from ottla.net.buffers import ReceiveBuffers
from ottla.net.idle import IdleReaper
from ottla.testing.virtual_clock import VirtualClock
from unit.net.net_harness import API_VERSIONS, Client, Service, frame, heartbeat, produce


def admission(limits: Limits, listener: ListenerLimits | None = None) -> Admission:
    found = Admission(limits, 0.0)
    found.add_listener("PLAINTEXT", listener or ListenerLimits(), 0.0)
    found.add_listener("OTHER", ListenerLimits(), 0.0)
    return found


def test_a_full_broker_takes_nobody_until_one_leaves() -> None:
    door = admission(Limits(max_connections=2))
    assert door.admit("PLAINTEXT", "a") is Verdict.ACCEPT
    assert door.admit("OTHER", "b") is Verdict.ACCEPT
    assert door.full("PLAINTEXT") and door.full("OTHER")
    door.release("OTHER", "b")
    assert not door.full("PLAINTEXT")
    assert door.total == 1


def test_a_full_listener_leaves_the_others_open() -> None:
    door = admission(Limits(), ListenerLimits(max_connections=1))
    door.admit("PLAINTEXT", "a")
    assert door.full("PLAINTEXT") and not door.full("OTHER")


def test_an_address_has_its_own_cap_and_an_override() -> None:
    door = admission(Limits(max_per_ip=1, per_ip_overrides={"vip": 2, "banned": 0}))
    assert [door.admit("PLAINTEXT", ip) for ip in ("a", "a", "b", "vip", "vip", "vip", "banned")] == [
        Verdict.ACCEPT,
        Verdict.REFUSE,
        Verdict.ACCEPT,
        Verdict.ACCEPT,
        Verdict.ACCEPT,
        Verdict.REFUSE,
        Verdict.REFUSE,
    ]
    door.release("PLAINTEXT", "a")
    assert door.admit("PLAINTEXT", "a") is Verdict.ACCEPT


def test_connections_that_come_too_fast_wait() -> None:
    door = admission(Limits(max_rate_per_s=10))
    for _ in range(10):
        assert door.delay("PLAINTEXT", 0.0) == 0
        door.admit("PLAINTEXT", "a")
    assert door.delay("PLAINTEXT", 0.0) == pytest.approx(0.1)
    assert door.delay("PLAINTEXT", 0.1) == pytest.approx(0, abs=1e-9)


def test_a_listener_has_a_rate_of_its_own() -> None:
    door = admission(Limits(), ListenerLimits(max_rate_per_s=1))
    door.admit("PLAINTEXT", "a")
    assert door.delay("PLAINTEXT", 0.5) == pytest.approx(0.5)
    assert door.delay("OTHER", 0.5) == 0


def test_changed_limits_count_at_once() -> None:
    door = admission(Limits(max_connections=1))
    door.admit("PLAINTEXT", "a")
    assert door.full("PLAINTEXT")
    door.update(Limits(max_connections=2), 0.0)
    assert not door.full("PLAINTEXT")


def test_overrides_are_written_as_in_kafka() -> None:
    assert parse_overrides("") == {}
    assert parse_overrides("10.0.0.1:5, ::1:7 ,host:0") == {"10.0.0.1": 5, "::1": 7, "host": 0}


def test_idle_connections_are_closed(clock: VirtualClock, service: Service) -> None:
    buffers = ReceiveBuffers()
    idle, busy, waiting, deaf = (Client(clock, buffers, service.apis, 1 << 20) for _ in range(4))
    reaper = IdleReaper(clock, 600_000, lambda: [c.connection for c in (idle, busy, waiting, deaf)])
    reaper.start()
    waiting.send(heartbeat(1))
    deaf.send(heartbeat(1))
    deaf.connection.pause_writing()
    clock.advance(500)
    busy.send(frame(API_VERSIONS, 0, 1))
    clock.advance(120)
    assert idle.transport.closed
    assert not busy.transport.closed
    assert not waiting.transport.closed, "who waits for an answer is not idle"
    assert deaf.transport.aborted, "who does not read its answers is"
    clock.advance(600)
    assert busy.transport.closed
    reaper.stop()


def test_who_sends_a_request_byte_by_byte_is_idle(clock: VirtualClock, service: Service) -> None:
    buffers = ReceiveBuffers()
    trickling, uploading, streaming = (Client(clock, buffers, service.apis, 1 << 20) for _ in range(3))
    reaper = IdleReaper(clock, 60_000, lambda: [c.connection for c in (trickling, uploading, streaming)])
    reaper.start()
    uploading.send(frame(API_VERSIONS, 0, 1, bytes(200_000))[:100])
    piece = frame(API_VERSIONS, 0, 1, bytes(50))
    streaming.send(piece[:20])
    trickling.send(piece[:8])
    for _ in range(9):
        clock.advance(9)
        # Its requests are cut anywhere, but they do get whole.
        streaming.send(piece[20:] + piece[:20])
        uploading.send(bytes(5_000))
        if not trickling.transport.closed:
            trickling.send(piece[8:9])
    assert trickling.transport.closed
    assert not streaming.transport.closed
    assert not uploading.transport.closed
    reaper.stop()


def test_who_never_reads_cannot_put_off_its_end(clock: VirtualClock, service: Service) -> None:
    client = Client(clock, ReceiveBuffers(), service.apis, 1 << 20)
    reaper = IdleReaper(clock, 60_000, lambda: [client.connection])
    reaper.start()
    client.send(frame(API_VERSIONS, 0, 1))
    clock.advance(61)
    assert client.transport.closed and not client.transport.aborted
    clock.advance(6)
    assert client.transport.aborted
    reaper.stop()


def test_a_negative_idle_time_means_never(clock: VirtualClock, client: Client) -> None:
    IdleReaper(clock, -1, lambda: [client.connection]).start()
    clock.advance(10_000_000)
    assert not client.transport.closed


def test_unfinished_requests_share_a_bounded_memory(clock: VirtualClock, service: Service) -> None:
    buffers = ReceiveBuffers(max_bytes=1 << 20)
    first, second = (Client(clock, buffers, service.apis, 1 << 20) for _ in range(2))
    request = produce(1, bytes(900_000))
    first.send(request[:600_000])
    second.send(request[:500_000])
    assert first.transport.reading and not second.transport.reading
    first.send(request[600_000:])
    assert first.transport.answers() == [1]
    second.turn()
    assert second.transport.reading
    second.send(request[500_000:])
    assert second.transport.answers() == [1]
    assert buffers.held_bytes == 0
