"""Produce requests that are like the one before: the same bytes come back, and the same records are in the log."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from ottla.api.data import produce
from ottla.errors import ErrorCode
from ottla.log.write_gate import WriteGate
from ottla.metadata.image import AclEntry
from ottla.net.buffers import ReceiveBuffers
from ottla.net.connection import ClientInfo, Connection
from ottla.net.dispatch import Dispatcher
from ottla.records.batch import iter_batches, iter_records
from ottla.records.codecs import Compression
from ottla.security.authorizer import Authorizer
from ottla.security.quotas.managers import ClientQuotas
from ottla.wire.apis import ApiKey
from ottla.wire.codec import decode
from ottla.wire.enums import AclOperation, AclPermissionType, PatternType, ResourceType
from ottla.wire.headers import decode_response_header, encode_request
from ottla.wire.messages import ProduceResponse
from unit.net.net_harness import Transport
from unit.replica.replica_scene import Scene, make_scene
from unit.replica.test_produce_api import request


class Producer:
    """A connection to a broker, fed by hand. With `learns` False, every request is decoded as a whole."""

    def __init__(self, *, learns: bool = True, beside: Producer | None = None) -> None:
        self.learns = learns
        if beside is None:
            self.scene: Scene = make_scene()
            self.scene.ready_at_once = True
            self.scene.clock.advance(1)
            self.scene.broker.quotas = ClientQuotas()
            self.gate = WriteGate(self.scene.clock, None)
            self.dispatcher = Dispatcher(self.scene.broker, {ApiKey.PRODUCE: produce.API}, self.gate)
        else:
            self.scene, self.dispatcher, self.gate = beside.scene, beside.dispatcher, beside.gate
        self.transport = Transport()
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

    def errors(self, version: int) -> list[int]:
        """The error code of each answer."""
        return [each.responses[0].partition_responses[0].error_code for each in self.responses(version)]

    def throttle_times(self, version: int) -> list[int]:
        return [each.throttle_time_ms for each in self.responses(version)]

    def responses(self, version: int) -> list[ProduceResponse]:
        found = []
        written, at = bytes(self.transport.written), 0
        while at < len(written):
            size = int.from_bytes(written[at : at + 4], "big")
            answer = written[at + 4 : at + 4 + size]
            at += 4 + size
            _, offset = decode_response_header(ApiKey.PRODUCE, version, answer)
            found.append(decode(ProduceResponse, version, answer[offset:]))
        return found

    def decoded(self) -> int:
        """Requests that were decoded as a whole: only those pass the place where requests are learnt from."""
        return 64 - self.connection.requests_until_learning


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


def test_quotas_count_alike_and_the_client_above_one_is_muted(pair):
    limits = {"producer_byte_rate": 2_000.0, "request_percentage": 100.0}
    for producer in pair:
        producer.scene.create_topic("t", 1)
        producer.scene.broker.quotas.update({(("client-id", "a client"),): limits})
        for number in range(60):
            producer.produce(b"v" * 1000)
            producer.scene.clock.advance(0.05 if number % 20 else 30)
    repeated, whole = pair
    assert same(pair)
    assert len(repeated.transport.answers()) == 60
    assert repeated.throttle_times(12) == whole.throttle_times(12)
    assert any(repeated.throttle_times(12)) and not all(repeated.throttle_times(12))
    assert repeated.decoded() < 10


def test_a_new_limit_counts_from_the_next_repeated_request_on(pair):
    quotas = pair[0].scene.broker.quotas
    for producer in pair:
        producer.scene.create_topic("t", 1)
    repeated = pair[0]
    quotas.update({(("client-id", "a client"),): {"producer_byte_rate": 1e9}})
    for _ in range(5):
        repeated.produce(b"v" * 1000)
    quotas.update({(("client-id", "a client"),): {"producer_byte_rate": 100.0}})
    repeated.produce(b"v" * 1000)
    repeated.produce(b"v" * 1000)
    *before, after = repeated.throttle_times(12)
    assert before == [0] * 5 and after > 0
    assert repeated.connection.muted


def test_a_right_is_asked_for_once_and_ends_with_its_acl(caplog):
    """Also for requests that are not decoded as a whole, and the audit log gets them all if it wants to."""
    may_write = AclEntry(
        ResourceType.TOPIC,
        "t",
        PatternType.LITERAL,
        "User:ANONYMOUS",
        "*",
        AclOperation.WRITE,
        AclPermissionType.ALLOW,
    )
    authorizer = Authorizer("", allow_everyone_if_no_acl_found=False)
    authorizer.update({b"1": may_write})
    authorizer.complete_loading()
    producers = [Producer()]
    producers += [Producer(beside=producers[0])]
    producers[0].scene.broker.authorizer = authorizer
    topic = producers[0].scene.create_topic("t")
    for number in range(20):
        for producer, version in zip(producers, (12, 13), strict=True):
            producer.produce(b"%d" % number, version=version, topic=topic if version == 13 else "t")
    for producer, version in zip(producers, (12, 13), strict=True):
        assert producer.errors(version) == [0] * 20 and producer.decoded() < 5
    log = producers[0].log()
    decoded = producers[0].decoded()
    with caplog.at_level(logging.DEBUG, "kafka.authorizer.logger"):
        producers[0].produce(b"audited")
    assert len(caplog.records) == 1 and producers[0].decoded() == decoded + 1
    assert len(producers[0].log()) > len(log)
    log = producers[0].log()
    authorizer.update({})
    for producer, version in zip(producers, (12, 13), strict=True):
        producer.produce(b"forbidden", version=version, topic=topic if version == 13 else "t")
        assert producer.errors(version)[-1] == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert producers[0].log() == log
    authorizer.update({b"1": may_write})
    producers[0].produce(b"allowed again")
    assert producers[0].errors(12)[-1] == 0


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


class Crowd:
    """Several producers at one broker whose requests arrive in one turn of the event loop."""

    def __init__(self, count: int, partitions: int = 1, **options: Any) -> None:
        first = Producer()
        self.scene, self.dispatcher = first.scene, first.dispatcher
        self.scene.create_topic("t", partitions, **options)
        self.writes = 0
        self.producers = [first, *(Producer(beside=first) for _ in range(count - 1))]
        for _ in range(2):
            for producer in self.producers:
                producer.produce(b"before")
            self.scene.clock.advance(0)
            for producer in self.producers:
                producer.transport.written.clear()
        self.scene.fs.fault = self._count

    def _count(self, operation: str, path: str) -> None:
        self.writes += operation == "write" and path.endswith(".log")

    def results(self) -> list[tuple[int, int]]:
        """Error code and base offset of each producer's only answer."""
        found = []
        for producer in self.producers:
            written = bytes(producer.transport.written)
            _, offset = decode_response_header(ApiKey.PRODUCE, 12, written, 4)
            answer = decode(ProduceResponse, 12, written[offset:]).responses[0].partition_responses[0]
            found.append((answer.error_code, answer.base_offset))
        return found


def test_requests_of_one_turn_are_written_together_and_answered_after_the_write():
    crowd = Crowd(40, partitions=2)
    starts = [crowd.scene.replicas.find(("t", n)).log.log_end_offset for n in (0, 1)]
    for number, producer in enumerate(crowd.producers):
        producer.produce(b"%d" % number, b"more", index=number % 2)
    # The first one could not know of the others.
    assert [bool(producer.transport.written) for producer in crowd.producers] == [True] + [False] * 39
    crowd.scene.clock.advance(0)
    assert crowd.writes == 3
    assert crowd.results() == [(0, starts[number % 2] + number // 2 * 2) for number in range(40)]
    for index in (0, 1):
        log = crowd.producers[0].log(index)
        values = [
            record.value for at, header in iter_batches(log) for record in iter_records(log[at:], 0, header)
        ]
        assert values[starts[index] :: 2] == [b"%d" % number for number in range(index, 40, 2)]
    counters = crowd.scene.replicas.find(("t", 0)).counters
    assert (counters.produces, counters.messages_in) == (80 + 40, 80 + 80)
    assert crowd.dispatcher.counters(ApiKey.PRODUCE).taken == 120


def test_a_failed_write_acknowledges_none_of_the_turn():
    crowd = Crowd(10)
    crowd.producers[0].produce(b"one")
    before = crowd.producers[0].log()

    def fault(operation: str, path: str) -> None:
        if operation == "write":
            raise OSError(28, "no space left")

    crowd.scene.fs.fault = fault
    for producer in crowd.producers[1:]:
        producer.produce(b"lost")
    crowd.scene.clock.advance(0)
    assert [code for code, _ in crowd.results()[1:]] == [56] * 9
    crowd.scene.fs.fault = None
    assert (
        bytes(crowd.scene.fs.read_bytes(crowd.scene.replicas.find(("t", 0)).log.segments[0].path)) == before
    )


def test_bad_batches_of_a_turn_fail_alone():
    crowd = Crowd(6)
    damaged = bytearray(crowd.scene.batch(b"a"))
    damaged[-1] ^= 1
    for number, producer in enumerate(crowd.producers):
        if number == 3:
            producer.send_batch(bytes(damaged))
        elif number == 4:
            producer.produce(b"a", producer_id=9, producer_epoch=0, base_sequence=0)
        else:
            producer.produce(b"a")
    crowd.scene.clock.advance(0)
    # Whatever needs the whole way comes after the common write.
    assert crowd.results() == [(0, 12), (0, 13), (0, 14), (2, -1), (0, 16), (0, 15)]


def test_a_second_request_of_a_connection_ends_the_turn_and_keeps_the_order():
    crowd = Crowd(3)
    for producer in crowd.producers:
        producer.sent = 0
        producer.produce(b"a")
        producer.produce(b"b")
        producer.produce(b"c", acks=-1)
    crowd.scene.clock.advance(0)
    assert [producer.transport.answers() for producer in crowd.producers] == [[1, 2, 3]] * 3


def test_connections_that_close_or_finish_during_the_turn():
    crowd = Crowd(5)
    for producer in crowd.producers:
        producer.produce(b"a")
    assert [producer.connection.pending for producer in crowd.producers] == [0, 1, 1, 1, 1]
    crowd.producers[2].connection.finish()
    assert not crowd.producers[2].transport.closed
    crowd.producers[3].transport.close()
    crowd.producers[3].connection.connection_lost(None)
    crowd.scene.clock.advance(0)
    assert [len(producer.transport.written) > 0 for producer in crowd.producers] == [
        True,
        True,
        True,
        False,
        True,
    ]
    assert crowd.producers[2].transport.closed
    assert all(producer.connection.pending == 0 for producer in crowd.producers)


def test_a_leader_that_changes_during_the_turn_appends_nothing():
    crowd = Crowd(4, replicas=(1, 2))
    log = crowd.scene.replicas.find(("t", 0)).log
    crowd.producers[0].produce(b"a")
    end = log.log_end_offset
    for producer in crowd.producers[1:]:
        producer.produce(b"a")
    crowd.scene.change_partition("t", 0, leader=2, leader_epoch=3)
    crowd.scene.clock.advance(0)
    assert [code for code, _ in crowd.results()] == [0, 6, 6, 6]
    assert log.log_end_offset == end


def test_a_run_larger_than_a_segment_is_appended_request_by_request():
    crowd = Crowd(8, configs={"internal.segment.bytes": "1024"})
    for producer in crowd.producers:
        producer.produce(b"v" * 300)
    crowd.scene.clock.advance(0)
    assert [code for code, _ in crowd.results()] == [0] * 8
    log = crowd.scene.replicas.find(("t", 0)).log
    assert log.log_end_offset == 24
    assert all(segment.size <= 1024 for segment in log.segments)


def test_a_gate_that_closes_during_the_turn_loses_no_request():
    crowd = Crowd(3)
    damaged = bytearray(crowd.scene.batch(b"a"))
    damaged[-1] ^= 1
    crowd.producers[0].produce(b"a")
    crowd.producers[1].send_batch(bytes(damaged))
    crowd.producers[2].produce(b"a")
    crowd.producers[0].gate.hold()
    crowd.scene.clock.advance(0)
    assert [code for code, _ in crowd.results()] == [0, 2, 0]
    crowd.producers[0].produce(b"b")
    assert len(crowd.producers[0].transport.answers()) == 1
    crowd.producers[0].gate.release()
    crowd.scene.clock.advance(0)
    assert len(crowd.producers[0].transport.answers()) == 2
