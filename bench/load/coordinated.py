"""Commits and transactions on plain sockets: cheap enough that the broker is the limit, not the client.

Ten clients with librdkafka take a core by themselves. These take a tenth of it: what a request needs is encoded once,
and each client changes the few bytes that differ. What is answered is compared with the first answer, byte by byte.
"""

from __future__ import annotations

import heapq
import itertools
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from bench.load import Load
from bench.load.sockets import connect
from ottla.errors import ErrorCode
from ottla.ids import GroupId, ProducerId, TopicName, TransactionalId
from ottla.records.batch import build_batch
from ottla.records.record import Record
from ottla.testing.raw_client import RawClient
from ottla.wire.classes import WireRequest, WireResponse
from ottla.wire.codec import decode
from ottla.wire.enums import CoordinatorType
from ottla.wire.headers import decode_response_header, encode_request
from ottla.wire.messages import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    OffsetCommitRequest,
    ProduceRequest,
    response_class,
)

_COMMIT_VERSION: Final = 8
_ADD_VERSION: Final = 3
_PRODUCE_VERSION: Final = 9
_END_VERSION: Final = 3
_INIT_VERSION: Final = 4

_MARK: Final = 0x1122334455667788
"""Stands in an encoded request where a number changes each time."""
_BACKOFF_S: Final = 0.02
"""How long both usual clients wait when the transaction before is still being completed."""
_WARM: Final = 5
_READY_S: Final = 60.0
_NOT_YET: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)

Frame = bytes | bytearray


def _encoded(request: WireRequest[WireResponse], version: int) -> bytes:
    return b"".join(encode_request(1, "bench", request, version))


def _until(done: Callable[[], int]) -> None:
    """Ask again while the coordinator of a new broker is on its way."""
    end = time.monotonic() + _READY_S
    while code := done():
        assert code in _NOT_YET, f"error {ErrorCode(code).name}"
        assert time.monotonic() < end, f"still {ErrorCode(code).name} after {_READY_S:.0f} s"
        time.sleep(0.05)


def _coordinator(load: Load, key: str, kind: CoordinatorType) -> str:
    """The address of the coordinator of a group or a transactional id."""
    host, _, port = load.bootstrap.rpartition(":")
    found = []
    with RawClient(host, int(port)) as client:

        def ask() -> int:
            answer = client.ask(
                FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), 4
            ).coordinators[0]
            found.append(f"{answer.host}:{answer.port}")
            return answer.error_code

        _until(ask)
    return found[-1]


class _Step:
    """A request that is sent again and again, and how its answer begins where all is well."""

    __slots__ = ("_good", "_key", "_version", "frame")

    def __init__(self, request: WireRequest[WireResponse], version: int) -> None:
        self.frame = bytearray(_encoded(request, version))
        self._key, self._version = request.API_KEY, version
        self._good = b""

    def error(self, answer: bytes, codes: Callable[[Any], int]) -> int:
        """The error code of an answer. Answers that are equal to a good one are not decoded."""
        if answer == self._good:
            return 0
        _, offset = decode_response_header(self._key, self._version, answer[4:])
        code = codes(decode(response_class(self._key), self._version, answer[4 + offset :]))
        if not code:
            self._good = answer
        return code


class _Committer:
    """A group of its own, which commits one offset after the other."""

    def __init__(self, load: Load, number: int) -> None:
        group = f"{load.topic}-bare-commits-{number}"
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=_MARK
        )
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(
            name=TopicName(load.topic), partitions=[partition]
        )
        request = OffsetCommitRequest(
            group_id=GroupId(group), generation_id_or_member_epoch=-1, topics=[topic], retention_time_ms=-1
        )
        self._step = _Step(request, _COMMIT_VERSION)
        self._at = self._step.frame.index(struct.pack(">q", _MARK))
        self._offsets = itertools.count()
        self.socket = connect(_coordinator(load, group, CoordinatorType.GROUP))
        self.done = 0
        _until(self._once)

    def next(self) -> Frame:
        struct.pack_into(">q", self._step.frame, self._at, next(self._offsets))
        return self._step.frame

    def take(self, answer: bytes) -> float:
        """Count an answer. Returns the seconds to wait before the next request."""
        code = self._step.error(answer, lambda found: found.topics[0].partitions[0].error_code)
        assert not code, f"a commit ended with error {ErrorCode(code).name}"
        self.done += 1
        return 0.0

    def _once(self) -> int:
        self.socket.sendall(self.next())
        return self._step.error(_receive(self.socket), lambda found: found.topics[0].partitions[0].error_code)


class _Transactor:
    """A producer whose transactions hold one record: AddPartitionsToTxn, Produce, EndTxn."""

    def __init__(self, load: Load, number: int) -> None:
        self._load = load
        self._transactional_id = transactional_id = TransactionalId(f"{load.topic}-bare-{number}")
        self.socket = connect(_coordinator(load, transactional_id, CoordinatorType.TRANSACTION))
        self.done = 0
        self._id, self._epoch = self._init()
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=TopicName(load.topic), partitions=[0])
        self._add = _Step(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=transactional_id,
                v3_and_below_producer_id=self._id,
                v3_and_below_producer_epoch=self._epoch,
                v3_and_below_topics=[topic],
            ),
            _ADD_VERSION,
        )
        self._produce = _Step(self._produce_request(b"?"), _PRODUCE_VERSION)
        self._end = _Step(
            EndTxnRequest(
                transactional_id=transactional_id,
                producer_id=self._id,
                producer_epoch=self._epoch,
                committed=True,
            ),
            _END_VERSION,
        )
        self._sequence = itertools.count()
        self._steps = self._transactions()
        self._frame = next(self._steps)

    def next(self) -> Frame:
        return self._frame

    def take(self, answer: bytes) -> float:
        wait_s = self._check(answer)
        if not wait_s:
            self._frame = next(self._steps)
        return wait_s

    def _transactions(self) -> Iterator[Frame]:
        while True:
            self._check = self._check_add
            yield self._add.frame
            batch = build_batch(
                [Record(0, int(time.time() * 1000), None, b"x" * self._load.size, ())],
                producer_id=self._id,
                producer_epoch=self._epoch,
                base_sequence=next(self._sequence),
                is_transactional=True,
            )
            self._check = self._check_produce
            yield _encoded(self._produce_request(batch), _PRODUCE_VERSION)
            self._check = self._check_end
            yield self._end.frame
            self.done += 1

    def _produce_request(self, batch: bytes) -> ProduceRequest:
        data = ProduceRequest.PartitionProduceData(index=0, records=batch)
        topic = ProduceRequest.TopicProduceData(name=TopicName(self._load.topic), partition_data=[data])
        return ProduceRequest(
            transactional_id=self._transactional_id, acks=-1, timeout_ms=30_000, topic_data=[topic]
        )

    def _check_add(self, answer: bytes) -> float:
        code = self._add.error(
            answer,
            lambda found: found.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
        )
        if code == ErrorCode.CONCURRENT_TRANSACTIONS:
            return _BACKOFF_S
        assert not code, f"AddPartitionsToTxn ended with error {ErrorCode(code).name}"
        return 0.0

    def _check_produce(self, answer: bytes) -> float:
        code = self._produce.error(answer, lambda found: found.responses[0].partition_responses[0].error_code)
        assert not code, f"Produce ended with error {ErrorCode(code).name}"
        return 0.0

    def _check_end(self, answer: bytes) -> float:
        code = self._end.error(answer, lambda found: found.error_code)
        assert not code, f"EndTxn ended with error {ErrorCode(code).name}"
        return 0.0

    def _init(self) -> tuple[ProducerId, int]:
        """The producer's id and epoch."""
        request = InitProducerIdRequest(
            transactional_id=self._transactional_id,
            transaction_timeout_ms=60_000,
            producer_id=ProducerId(-1),
            producer_epoch=-1,
        )
        host, port = self.socket.getpeername()
        with RawClient(host, port) as client:
            _until(lambda: client.ask(request, _INIT_VERSION).error_code)
            # Each call raises the epoch.
            made = client.ask(request, _INIT_VERSION)
        return made.producer_id, made.producer_epoch


def _receive(source: socket.socket) -> bytes:
    answer = b""
    while len(answer) < 4 or len(answer) < 4 + struct.unpack_from(">i", answer)[0]:
        piece = source.recv(65536)
        assert piece, "the broker closed the connection"
        answer += piece
    return answer


def commits(load: Load) -> dict[str, float]:
    """Commits a second, of `connections` groups."""
    return {
        "commits/s": _rate([_Committer(load, number) for number in range(load.connections)], load.seconds)
    }


def transactions(load: Load) -> dict[str, float]:
    """Transactions of one record a second, of `connections` producers."""
    return {
        "transactions/s": _rate(
            [_Transactor(load, number) for number in range(load.connections)], load.seconds
        )
    }


def _rate(clients: list[_Committer] | list[_Transactor], seconds: float) -> float:
    """How often a second all clients together do their work; each has one request under way."""
    by_number = {client.socket.fileno(): client for client in clients}
    poll = select.epoll()
    for number in by_number:
        poll.register(number, select.EPOLLIN)
    for client in clients:
        client.socket.sendall(client.next())
    later: list[tuple[float, int]] = []
    begin, before = time.perf_counter(), 0
    warm = False
    while True:
        now = time.perf_counter()
        if not warm and all(client.done >= _WARM for client in clients):
            warm, begin, before = True, now, sum(client.done for client in clients)
        if warm and now - begin >= seconds:
            return (sum(client.done for client in clients) - before) / (now - begin)
        while later and later[0][0] <= now:
            client = by_number[heapq.heappop(later)[1]]
            client.socket.sendall(client.next())
        events = poll.poll(later[0][0] - now if later else 30)
        assert events or later, "no answer in 30 s"
        for number, _ in events:
            client = by_number[number]
            wait_s = client.take(_receive(client.socket))
            if wait_s:
                heapq.heappush(later, (time.perf_counter() + wait_s, number))
            else:
                client.socket.sendall(client.next())
