"""Producers at a closed gate: their connection keeps their requests, in order, and all others are served."""

from __future__ import annotations

import pytest

from ottla.log.write_gate import LOOK_EACH_S, WriteGate
from ottla.net.buffers import FIRST_GROWTH_BYTES, ReceiveBuffers
from ottla.testing.virtual_clock import VirtualClock
from unit.net.net_harness import API_VERSIONS, Client, Service, frame, produce


class Scene:
    """Clients of one broker whose page cache is as full as the test says."""

    def __init__(self, clock: VirtualClock, service: Service) -> None:
        self.full = 1.0
        self.clock = clock
        self.buffers = ReceiveBuffers()
        self.gate = WriteGate(clock, lambda: self.full)
        self.service = service

    def client(self) -> Client:
        return Client(self.clock, self.buffers, self.service.apis, limit=8 << 20, gate=self.gate)

    def open(self, *clients: Client) -> None:
        self.full = 0.0
        self.clock.advance(LOOK_EACH_S)
        for client in clients:
            while client.turns:
                client.turn()


@pytest.fixture
def scene(clock: VirtualClock, service: Service) -> Scene:
    return Scene(clock, service)


def test_a_producer_waits_and_everybody_else_is_served(scene: Scene, service: Service) -> None:
    producer, other = scene.client(), scene.client()
    producer.send(frame(API_VERSIONS, 0, 1) + produce(2, b"first") + produce(3, b"second"))
    other.send(frame(API_VERSIONS, 0, 9))
    assert producer.transport.answers() == [1]
    assert not producer.transport.reading
    assert other.transport.answers() == [9]
    assert service.bodies == []
    scene.open(producer)
    assert producer.transport.answers() == [1, 2, 3]
    assert producer.transport.reading
    assert service.bodies == [b"first", b"second"]
    assert scene.buffers.held_bytes == 0


def test_what_comes_after_a_waiting_request_waits_too(scene: Scene, service: Service) -> None:
    client = scene.client()
    client.send(produce(1, b"records") + frame(API_VERSIONS, 0, 2))
    assert service.seen == []
    scene.open(client)
    assert service.seen == [1, 2]


def test_one_that_closes_again_keeps_the_rest(scene: Scene, service: Service) -> None:
    client = scene.client()
    scene.full = 0.0
    large = bytes(5 << 20)
    client.send(produce(1, large))
    scene.full = 1.0
    client.send(produce(2, large))
    client.turn()
    assert service.seen == [1]
    scene.open(client)
    assert service.seen == [1, 2]
    assert service.bodies == [large, large]


def test_a_whole_large_request_waits_where_it_is(scene: Scene, service: Service) -> None:
    client = scene.client()
    client.send(produce(1, bytes(5 << 20)))
    held = scene.buffers.held_bytes
    assert service.seen == []
    assert held <= (5 << 20) + FIRST_GROWTH_BYTES
    scene.open(client)
    assert service.seen == [1]
    assert scene.buffers.held_bytes == 0


def test_a_client_that_goes_is_forgotten_with_its_request(scene: Scene, service: Service) -> None:
    client = scene.client()
    client.send(produce(1, b"records"))
    assert scene.gate.waiting == 1
    client.connection.connection_lost(None)
    assert scene.gate.waiting == 0
    assert scene.buffers.held_bytes == 0
    scene.open(client)
    assert service.seen == []


def test_a_broker_that_stops_does_not_take_what_waits(scene: Scene, service: Service) -> None:
    client = scene.client()
    client.send(produce(1, b"records"))
    client.connection.finish()
    assert client.transport.closed
    scene.open(client)
    assert service.seen == []
