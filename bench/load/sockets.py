"""Load on plain sockets: cheap enough that the broker is the limit, not the client.

`swarm` is many small clients that send one-record requests; `drain` reads a topic and throws it away.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from typing import Any

from bench.load import Load, leader_addresses, percentiles
from ottla.errors import ErrorCode
from ottla.ids import TopicName
from ottla.records.batch import build_batch, iter_batches
from ottla.records.record import Record
from ottla.wire.apis import ApiKey
from ottla.wire.codec import decode
from ottla.wire.headers import decode_response_header, encode_request
from ottla.wire.messages import FetchRequest, FetchResponse, ProduceRequest, ProduceResponse

_PRODUCE_VERSION = 9
_FETCH_VERSION = 12
_PARTITION_MAX_BYTES = 1 << 20
_ACKS = {"0": 0, "1": 1, "all": -1}
_NOT_YET = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
_READY_S = 60.0


def connect(bootstrap: str) -> socket.socket:
    host, _, port = bootstrap.rpartition(":")
    made = socket.create_connection((host, int(port)), 30)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def produce_request(topic: str, partition: int, size: int, acks: str = "1") -> bytes:
    """A Produce request of one record, whole on the wire."""
    batch = build_batch([Record(0, int(time.time() * 1000), None, b"x" * size, ())])
    data = ProduceRequest.PartitionProduceData(index=partition, records=batch)
    request = ProduceRequest(
        acks=_ACKS[acks],
        timeout_ms=30_000,
        topic_data=[ProduceRequest.TopicProduceData(name=TopicName(topic), partition_data=[data])],
    )
    return b"".join(encode_request(1, "bench", request, _PRODUCE_VERSION))


def produce_error(frame: bytes | memoryview) -> int:
    """Return the error code of the response; the frame comes without its length."""
    _, offset = decode_response_header(ApiKey.PRODUCE, _PRODUCE_VERSION, frame)
    answer = decode(ProduceResponse, _PRODUCE_VERSION, frame[offset:])
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


class _Client:
    """One connection with a few requests in flight. All responses have one size, so bytes count responses."""

    __slots__ = ("answer_size", "asked_at", "rest", "socket", "word")

    def __init__(self, load: Load, number: int, address: str) -> None:
        self.word = produce_request(load.topic, number % load.partitions, load.size, load.acks)
        self.socket = connect(address)
        self.answer_size = len(self._first_answer())
        self.rest = 0
        self.asked_at = 0.0

    def _first_answer(self) -> bytes:
        """Ask until the broker knows of the new topic: a controller tells its brokers one after the other."""
        end = time.monotonic() + _READY_S
        while True:
            self.socket.sendall(self.word)
            frame = self._one_answer()
            code = produce_error(frame[4:])
            if code not in _NOT_YET or time.monotonic() >= end:
                assert code == 0, f"the broker answered with error {code}"
                return frame
            time.sleep(0.01)

    def _one_answer(self) -> bytes:
        frame = b""
        while len(frame) < 4 or len(frame) < 4 + struct.unpack_from(">i", frame)[0]:
            piece = self.socket.recv(4096)
            assert piece, "the broker closed the connection"
            frame += piece
        return frame

    def answered(self) -> int:
        """Return the number of responses since the last call."""
        piece = self.socket.recv(65536)
        assert piece, "the broker closed the connection"
        count, self.rest = divmod(self.rest + len(piece), self.answer_size)
        return count


def swarm(load: Load) -> dict[str, float]:
    """One-record requests a second over `connections` sockets with `in_flight` each; with one, its latency in ms."""
    leaders = leader_addresses(load.bootstrap, load.topic)
    made = [_Client(load, n, leaders[n % load.partitions]) for n in range(load.connections)]
    clients = {client.socket.fileno(): client for client in made}
    poll = select.epoll()
    for number in clients:
        poll.register(number, select.EPOLLIN)
    waited: list[float] = []
    begin = time.perf_counter()
    end = begin + load.seconds
    for client in clients.values():
        client.asked_at = time.perf_counter()
        client.socket.sendall(client.word * load.in_flight)
    done = 0
    under_way = load.in_flight * len(clients)
    while under_way:
        events = poll.poll(30)
        assert events, "no answer in 30 s"
        now = time.perf_counter()
        for number, _ in events:
            client = clients[number]
            count = client.answered()
            if not count:
                continue
            done += count
            waited.append(now - client.asked_at)
            if now < end:
                client.asked_at = now
                client.socket.sendall(client.word if count == 1 else client.word * count)
            else:
                under_way -= count
    figures = {"records/s": done / (time.perf_counter() - begin)}
    if load.in_flight == 1:
        figures |= percentiles("answer", [seconds * 1000 for seconds in waited])
    return figures


def drain(load: Load) -> dict[str, float]:
    """Read every partition from its start up to `records` records, at `rate` bytes a second if one is set."""
    source = connect(load.bootstrap)
    offsets = [0] * load.partitions
    buffer = memoryview(bytearray(load.partitions * (_PARTITION_MAX_BYTES + (1 << 20))))
    begin = time.perf_counter()
    total = 0
    while sum(offsets) < load.records:
        source.sendall(_fetch_request(load.topic, offsets))
        frame = _receive(source, buffer)
        total += len(frame)
        before = list(offsets)
        _advance(frame, offsets)
        assert offsets != before or sum(offsets) >= load.records, f"nothing came after {before}"
        if load.rate:
            ahead = total / load.rate - (time.perf_counter() - begin)
            if ahead > 0:
                time.sleep(ahead)
    seconds = time.perf_counter() - begin
    return {"seconds": seconds, "MB/s": total / seconds / 1e6}


def _fetch_request(topic: str, offsets: list[int]) -> bytes:
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=len(offsets) * _PARTITION_MAX_BYTES,
        session_id=0,
        session_epoch=-1,
        topics=[
            FetchRequest.FetchTopic(
                topic=TopicName(topic),
                partitions=[
                    FetchRequest.FetchPartition(
                        partition=p, fetch_offset=offset, partition_max_bytes=_PARTITION_MAX_BYTES
                    )
                    for p, offset in enumerate(offsets)
                ],
            )
        ],
    )
    return b"".join(encode_request(1, "bench", request, _FETCH_VERSION))


def _receive(source: socket.socket, buffer: memoryview) -> memoryview:
    _fill(source, buffer[:4])
    frame = buffer[: struct.unpack_from(">i", buffer)[0]]
    _fill(source, frame)
    return frame


def _fill(source: socket.socket, view: memoryview) -> None:
    while view:
        got = source.recv_into(view)
        assert got, "the broker closed the connection"
        view = view[got:]


def _advance(frame: memoryview, offsets: list[int]) -> None:
    """Move the offsets behind the batches that came."""
    _, offset = decode_response_header(ApiKey.FETCH, _FETCH_VERSION, frame)
    answer: Any = decode(FetchResponse, _FETCH_VERSION, frame[offset:])
    for topic in answer.responses:
        for part in topic.partitions:
            assert part.error_code == 0, f"the broker answered with error {part.error_code}"
            for _, header in iter_batches(part.records or b""):
                offsets[part.partition_index] = header.next_offset
