"""Produce requests that are like the one before: the same bytes come back, and the same records are in the log."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.api.data import produce
from ottla.net.buffers import ReceiveBuffers
from ottla.net.connection import ClientInfo, Connection
from ottla.net.dispatch import Dispatcher
from ottla.records.codecs import Compression
from ottla.security.quotas.managers import ClientQuotas
from ottla.wire.apis import ApiKey
from ottla.wire.headers import encode_request
from unit.net.net_harness import Transport
from unit.replica.replica_scene import Scene, make_scene
from unit.replica.test_produce_api import request


class Producer:
    """A connection to a broker, fed by hand. With `learns` False, every request is decoded as a whole."""

    def __init__(self, *, learns: bool = True) -> None:
        self.learns = learns
        self.scene: Scene = make_scene()
        self.scene.ready_at_once = True
        self.scene.clock.advance(1)
        self.scene.broker.quotas = ClientQuotas()
        self.transport = Transport()
        self.dispatcher = Dispatcher(self.scene.broker, {ApiKey.PRODUCE: produce.API})
        self.connection = Connection(
            self.dispatcher,
            ReceiveBuffers(),
            self.scene.clock,
            call_soon=lambda callback: self.scene.clock.call_later(0, callback),
            max_request_bytes=1 << 20,
            client=ClientInfo("c-1", "10.0.0.2", "10.0.0.1", 9092, "PLAINTEXT", False),
            on_lost=lambda lost: None,
        )
        self.connection.connection_made(self.transport)
        self.sent = 0

    def send(self, frame: bytes) -> None:
        if not self.learns:
            self.connection.repeated_produce = None
        self.connection.get_buffer(-1)[: len(frame)] = frame
        self.connection.buffer_updated(len(frame))

    def produce(
        self,
        *values: bytes,
        topic: Any = "t",
        index: int = 0,
        version: int = 12,
        acks: int = 1,
        **options: Any,
    ) -> None:
        """Send one batch."""
        self.sent += 1
        batch = self.scene.batch(*values, **options)
        self.send_batch(batch, topic=topic, index=index, version=version, acks=acks)

    def send_batch(
        self, batch: bytes, *, topic: Any = "t", index: int = 0, version: int = 12, acks: int = 1
    ) -> None:
        wanted = request((topic, index, batch), acks=acks)
        self.send(b"".join(encode_request(self.sent, "a client", wanted, version)))

    def log(self, index: int = 0) -> bytes:
        log = self.scene.replicas.find(("t", index)).local_log()
        return bytes(log.read(0, 1 << 20).records)

    def decoded(self) -> int:
        """Requests that were decoded as a whole: only those pass the place where requests are learnt from."""
        return 64 - self.connection.produces_until_learning


@pytest.fixture
def pair() -> tuple[Producer, Producer]:
    return Producer(), Producer(learns=False)


def same(pair: tuple[Producer, Producer]) -> bool:
    repeated, whole = pair
    assert repeated.connection.repeated_produce is not None
    return repeated.transport.written == whole.transport.written and repeated.log() == whole.log()


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", range(3, 14))
def test_every_version_answers_with_the_same_bytes(pair, version, acks):
    for producer in pair:
        topic = producer.scene.create_topic("t", 2)
        for number in range(200):
            producer.produce(
                b"v" * (number * 97 % 1500),
                topic=topic if version == 13 else "t",
                index=number // 3 % 2,
                version=version,
                acks=acks,
            )
    repeated, whole = pair
    assert len(repeated.transport.answers()) == 200
    assert repeated.transport.written == whole.transport.written
    assert [repeated.log(n) for n in (0, 1)] == [whole.log(n) for n in (0, 1)]
    counted = [each.dispatcher.counters(ApiKey.PRODUCE) for each in pair]
    assert [each.taken for each in counted] == [each.versions[version] for each in counted] == [200, 200]
    assert [each.local.count for each in counted] == [4, 4]
    if version >= 9:
        # The first two, and those whose parts are timed.
        assert repeated.decoded() < 10


def test_records_larger_than_any_length_of_two_bytes(pair):
    for producer in pair:
        producer.scene.create_topic("t")
        for size in (10, 10, 100, 5000, 16_300, 16_400, 31_000, 40_000, 10):
            producer.produce(b"v" * size)
    assert same(pair)


def test_all_that_a_whole_request_refuses_is_refused_alike(pair):
    for producer in pair:
        scene = producer.scene
        scene.create_topic("t")
        scene.create_topic("__consumer_offsets")
        for _ in range(3):
            producer.produce(b"a")
        damaged = bytearray(scene.batch(b"a"))
        damaged[-1] ^= 1
        producer.send_batch(bytes(damaged))
        producer.send_batch(scene.batch(b"a") * 2)
        producer.send_batch(b"")
        producer.send_batch(bytes(61))
        producer.produce(b"a", index=7)
        producer.produce(b"a", topic="unknown")
        producer.produce(b"a", topic="__consumer_offsets")
        producer.produce(b"a", acks=2)
        producer.produce(b"a", is_transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
        producer.produce(b"a", producer_id=1, producer_epoch=0, base_sequence=4)
        producer.produce(b"a")
        producer.scene.delete_topic("t")
        producer.produce(b"a")
        scene.create_topic("t")
        producer.produce(b"after")
    assert same(pair)
    counted = [each.dispatcher.counters(ApiKey.PRODUCE).errors for each in pair]
    assert counted[0] == counted[1] and sum(counted[0].values()) == 10


def test_repeated_batches_of_idempotent_producers_are_found(pair):
    for producer in pair:
        producer.scene.create_topic("t")
        for sequence in (0, 1, 2, 2, 3, 3, 4):
            producer.produce(b"a", producer_id=7, producer_epoch=0, base_sequence=sequence)
    assert same(pair)
    assert pair[0].scene.replicas.find(("t", 0)).log.log_end_offset == 5


def test_internal_topics_are_not_for_clients_by_id_either(pair):
    for producer in pair:
        topic_id = producer.scene.create_topic("__consumer_offsets")
        producer.scene.create_topic("t")
        for _ in range(4):
            producer.produce(b"a", topic=topic_id, version=13)
    assert same(pair)
    assert pair[0].dispatcher.counters(ApiKey.PRODUCE).errors == {17: 4}


@pytest.mark.parametrize(
    "configs",
    [
        {"flush.messages": "1"},
        {"compression.type": "gzip"},
        {"cleanup.policy": "compact"},
        {"message.timestamp.type": "LogAppendTime"},
        {"max.message.bytes": "80"},
    ],
)
def test_settings_of_the_topic_count(pair, configs):
    for producer in pair:
        producer.scene.create_topic("t")
        for _ in range(3):
            producer.produce(b"a", key=b"k")
        producer.scene.set_topic_config("t", configs)
        for codec in (Compression.NONE, Compression.GZIP):
            producer.produce(b"a" * 50, key=b"k", compression=codec)
            producer.scene.executor.run()
            producer.scene.clock.advance(0)
            producer.produce(b"a", b"b", compression=codec)
            producer.scene.executor.run()
            producer.scene.clock.advance(0)
    assert same(pair)
    assert len(pair[0].transport.answers()) == 7


def test_acks_all_waits_for_replicas_and_later_requests_wait_behind_it(pair):
    for producer in pair:
        producer.scene.create_topic("t", replicas=(1, 2))
        for _ in range(3):
            producer.produce(b"a")
        producer.produce(b"b", acks=-1)
        producer.produce(b"c")
        assert len(producer.transport.answers()) == 3
        partition = producer.scene.replicas.find(("t", 0))
        partition.follower_fetched(partition.log, 2, 5, start_offset=0, broker_epoch=1)
        producer.scene.turn()
    assert same(pair)
    assert pair[0].transport.answers() == [1, 2, 3, 4, 5]


def test_another_request_of_the_same_connection_is_not_mistaken(pair):
    for producer in pair:
        producer.scene.create_topic("t")
        for _ in range(3):
            producer.produce(b"a")
        wanted = request(("t", 0, producer.scene.batch(b"b")), acks=1)
        for version in (9, 10, 12):
            producer.send(b"".join(encode_request(77, "a client", wanted, version)))
        producer.send(b"".join(encode_request(78, "another client", wanted, 12)))
        producer.send(b"".join(encode_request(79, None, wanted, 12)))
        two = request(("t", 0, producer.scene.batch(b"c")), ("t", 0, producer.scene.batch(b"d")), acks=1)
        producer.send(b"".join(encode_request(80, "a client", two, 12)))
        trailing = bytearray(b"".join(encode_request(81, "a client", wanted, 12)) + b"...")
        trailing[:4] = (len(trailing) - 4).to_bytes(4, "big")
        producer.send(bytes(trailing))
        producer.produce(b"e")
    assert same(pair)


def test_a_write_that_fails_is_answered_and_nothing_is_acknowledged_after_it(pair):
    def fault(operation: str, path: str) -> None:
        if operation == "write":
            raise OSError(28, "no space left")

    for producer in pair:
        producer.scene.create_topic("t")
        for _ in range(3):
            producer.produce(b"a")
        producer.scene.fs.fault = fault
        producer.produce(b"b")
        producer.produce(b"c")
    assert pair[0].transport.written == pair[1].transport.written
    assert pair[0].dispatcher.counters(ApiKey.PRODUCE).errors == {56: 2}
