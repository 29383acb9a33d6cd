"""Ottla's parts by themselves, in µs: decoding, validation, append, lookup, encoding, and whole requests.

A node runs in this process, and its connections are fed by hand: bytes in, bytes out, no socket between.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bench import load
from ottla.api.registry import supported
from ottla.cli.settings import node_config
from ottla.clock import SystemClock
from ottla.ids import GroupId, TopicName
from ottla.log.fs import OsFs
from ottla.log.index import OffsetIndex
from ottla.net.buffers import ReceiveBuffers
from ottla.net.connection import ClientInfo, Connection
from ottla.net.dispatch import Dispatcher
from ottla.records.batch import build_batch
from ottla.records.record import Record
from ottla.records.validation import validate_produce
from ottla.server import Server
from ottla.testing.apache import free_port
from ottla.wire.codec import decode_prefix
from ottla.wire.headers import decode_request_header, encode_request, encode_response
from ottla.wire.messages import FetchRequest, FetchResponse, OffsetCommitRequest, ProduceRequest

_PRODUCE_VERSION = 9
_FETCH_VERSION = 12
_COMMIT_VERSION = 9
_GROUP = GroupId("micro")
_PARTITIONS = 10
_TOPIC = TopicName("micro")
_ROUNDS = 7
_ROUND_S = 0.05


def timed(work: Callable[[], object], round_s: float = _ROUND_S) -> float:
    """µs of one call: the median over rounds, each long enough for the clock."""
    count = 1
    while True:
        begin = time.perf_counter()
        for _ in range(count):
            work()
        took = time.perf_counter() - begin
        if took > round_s / 4:
            break
        count *= 4
    count = max(1, int(count * round_s / took))
    rounds = []
    for _ in range(_ROUNDS):
        begin = time.perf_counter()
        for _ in range(count):
            work()
        rounds.append((time.perf_counter() - begin) / count * 1e6)
    return statistics.median(rounds)


def batch_of(records: int, size: int) -> bytes:
    now = int(time.time() * 1000)
    return build_batch([Record(n, now, None, b"x" * size, ()) for n in range(records)])


def produce_frame(batch: bytes, partition: int = 0) -> bytes:
    data = ProduceRequest.PartitionProduceData(index=partition, records=batch)
    topic = ProduceRequest.TopicProduceData(name=_TOPIC, partition_data=[data])
    request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[topic])
    return b"".join(encode_request(7, "bench", request, _PRODUCE_VERSION))


def commit_frame(partitions: int) -> bytes:
    """A commit of a consumer that assigns itself, as librdkafka sends it."""
    request = OffsetCommitRequest(
        group_id=_GROUP,
        topics=[
            OffsetCommitRequest.OffsetCommitRequestTopic(
                name=_TOPIC,
                partitions=[
                    OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=p, committed_offset=77)
                    for p in range(partitions)
                ],
            )
        ],
    )
    return b"".join(encode_request(7, "bench", request, _COMMIT_VERSION))


def fetch_frame(partitions: int, max_bytes: int) -> bytes:
    topic = FetchRequest.FetchTopic(
        topic=_TOPIC,
        partitions=[
            FetchRequest.FetchPartition(partition=p, fetch_offset=0, partition_max_bytes=max_bytes)
            for p in range(partitions)
        ],
    )
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=1 << 30, session_id=0, session_epoch=-1, topics=[topic]
    )
    return b"".join(encode_request(7, "bench", request, _FETCH_VERSION))


class _Nowhere(asyncio.Transport):
    """A transport whose peer takes everything at once."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write(self, data: Any) -> None:
        pass

    def writelines(self, list_of_data: Any) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def is_closing(self) -> bool:
        return False


def connection_to(server: Server, principal: str = "User:ANONYMOUS") -> Connection:
    """A client's connection that is fed by hand."""
    assert server.broker is not None
    connection = Connection(
        Dispatcher(server.broker, supported(on_controller_listener=False)),
        ReceiveBuffers(),
        SystemClock(),
        call_soon=lambda callback: callback(),
        max_request_bytes=100 << 20,
        client=ClientInfo("bench", "127.0.0.1", "127.0.0.1", 9092, "PLAINTEXT", False, principal),
        on_lost=lambda lost: None,
    )
    connection.connection_made(_Nowhere())
    return connection


def whole_request(connection: Connection, frame: bytes) -> Callable[[], None]:
    """Feed one request as the event loop does, and have its answer written to nowhere."""
    size = len(frame)

    def one() -> None:
        connection.get_buffer(65536)[:size] = frame
        connection.buffer_updated(size)

    return one


def _wire() -> Iterator[tuple[str, Callable[[], object]]]:
    small, large = produce_frame(batch_of(1, 100))[4:], produce_frame(batch_of(150, 100))[4:]
    for name, frame in (("one record", small), ("16 kB", large)):
        view = memoryview(frame)

        def decode(view: memoryview = view) -> object:
            header, offset = decode_request_header(view)
            return header, decode_prefix(ProduceRequest, _PRODUCE_VERSION, view, offset)

        yield f"decode Produce, {name}", decode
    records = memoryview(bytes(16_000))
    for version in (_FETCH_VERSION, 17):
        yield f"build and encode Fetch v{version}, ten partitions", partial(_fetch_answer, records, version)


def _fetch_answer(records: memoryview, version: int) -> object:
    response = FetchResponse(
        responses=[
            FetchResponse.FetchableTopicResponse(
                topic=_TOPIC,
                partitions=[
                    FetchResponse.PartitionData(
                        partition_index=p,
                        high_watermark=1000,
                        last_stable_offset=1000,
                        log_start_offset=0,
                        aborted_transactions=None,
                        records=records,
                    )
                    for p in range(_PARTITIONS)
                ],
            )
        ]
    )
    return encode_response(7, response, version)


def _index(directory: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    index = OffsetIndex(OsFs(), str(directory / "00000000000000000000.index"), 0, 10 << 20)
    for n in range(1, 100_001):
        index.append(n * 40, n * 4096)
    index.write_pending()
    places = [n * 7919 % 4_000_000 for n in range(1000)]
    turn = iter(range(1 << 60))
    yield "index lookup, 100,000 entries", lambda: index.lookup(places[next(turn) % 1000], nowait=True)


def _log(server: Server) -> Iterator[tuple[str, Callable[[], object]]]:
    assert server.broker is not None
    now = int(time.time() * 1000)
    partition = server.broker.replicas.find((_TOPIC, 0))
    log = partition.local_log()
    policy = log.policy
    for name, batch in (("one record", batch_of(1, 100)), ("16 kB", batch_of(150, 100))):
        yield f"validate a batch, {name}", partial(validate_produce, batch, policy, now)
        ready = validate_produce(batch, policy, now)
        yield (
            f"append to the log, {name}",
            partial(log.append_as_leader, ready, partition.leader_epoch, now_ms=now),
        )


def _requests(server: Server) -> Iterator[tuple[str, Callable[[], object]]]:
    for name, batch in (
        ("one record", batch_of(1, 100)),
        ("16 kB of 100 B", batch_of(150, 100)),
        ("128 kB of 1 kB", batch_of(128, 1000)),
    ):
        yield f"whole Produce request, {name}", whole_request(connection_to(server), produce_frame(batch))
    for partitions in (1, 4):
        yield (
            f"whole OffsetCommit request, partitions: {partitions}",
            whole_request(connection_to(server), commit_frame(partitions)),
        )
    yield (
        "whole Fetch request, one partition of 1 MB",
        whole_request(connection_to(server), fetch_frame(1, 1 << 20)),
    )
    yield (
        "whole Fetch request, ten partitions of 64 kB",
        whole_request(connection_to(server), fetch_frame(10, 64 << 10)),
    )


async def _measure(directory: Path) -> dict[str, float]:
    port = free_port()
    # A batch that waits for more would wait for the loop, which does not turn while requests are timed.
    settings = {"group.coordinator.append.linger.ms": "0"}
    server = Server(node_config(settings=settings, data=str(directory / "data"), listen=f"127.0.0.1:{port}"))
    await server.start()
    try:
        bootstrap = f"127.0.0.1:{port}"
        await asyncio.to_thread(load.create_topic, bootstrap, _TOPIC, _PARTITIONS)
        # Every partition has its files and something to read: the measured requests wait for nothing.
        filling = load.Load(bootstrap, _TOPIC, records=20_000, size=1000, partitions=_PARTITIONS)
        await asyncio.to_thread(load.run, "produce", filling)
        # The coordinator's topic is made by its first client.
        committing = load.Load(bootstrap, _TOPIC, partitions=1, seconds=0.1)
        await asyncio.to_thread(load.run, "commits", committing)
        parts = (_wire(), _index(directory), _log(server), _requests(server))
        return {name: timed(work) for part in parts for name, work in part}
    finally:
        await server.stop()


def run() -> dict[str, float]:
    """µs by name."""
    with tempfile.TemporaryDirectory(prefix="ottla-micro-") as scratch:
        return asyncio.run(_measure(Path(scratch)))


if __name__ == "__main__":
    for name, microseconds in run().items():
        print(f"{microseconds:9.2f} µs  {name}")
