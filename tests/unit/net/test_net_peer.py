"""The way to another node, on real sockets, with another node that does what a test wants."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from ottla.clock import SystemClock
from ottla.errors import ErrorCode
from ottla.net.peer import SocketPeer
from ottla.net.socket_peers import PeerSettings, SocketPeers
from ottla.peers import Endpoint, PeerFailure
from ottla.wire.apis import ApiKey
from ottla.wire.codec import decode_prefix
from ottla.wire.headers import decode_request_header, encode_response
from ottla.wire.messages import (
    ApiVersionsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    FetchRequest,
    FetchResponse,
    VoteRequest,
    request_class,
)

SERVED = [(ApiKey.FETCH, 4, 17), (ApiKey.API_VERSIONS, 0, 4), (ApiKey.DESCRIBE_CLUSTER, 0, 1)]


class OtherNode:
    """Answers ApiVersions by itself; `answer` is asked for everything else (None: it says nothing)."""

    def __init__(self) -> None:
        self.answer: Callable[[Any, int], Any] = lambda request, version: DescribeClusterResponse(
            cluster_id="c"
        )
        self.newest_api_versions = 4
        self.says_its_versions = True
        self.seen: list[tuple[int, int, str]] = []
        self.connections = 0
        self.writers: list[asyncio.StreamWriter] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        try:
            while True:
                size = struct.unpack(">i", await reader.readexactly(4))[0]
                self._take(await reader.readexactly(size), writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def _take(self, frame: bytes, writer: asyncio.StreamWriter) -> None:
        header, offset = decode_request_header(frame)
        key, version = header.request_api_key, header.request_api_version
        self.seen.append((key, version, header.client_id))
        if key == ApiKey.API_VERSIONS:
            if not self.says_its_versions:
                return
            if version > self.newest_api_versions:
                refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
                writer.write(b"".join(encode_response(header.correlation_id, refusal, 0)))
                return
            response = ApiVersionsResponse(
                api_keys=[
                    ApiVersionsResponse.ApiVersion(api_key=k, min_version=low, max_version=high)
                    for k, low, high in SERVED
                ]
            )
            writer.write(b"".join(encode_response(header.correlation_id, response, version)))
            return
        request, _ = decode_prefix(request_class(key), version, frame, offset)
        answer = self.answer(request, version)
        if isinstance(answer, bytes):
            writer.write(answer)
        elif answer is not None:
            writer.write(b"".join(encode_response(header.correlation_id, answer, version)))

    def hang_up(self) -> None:
        for writer in self.writers:
            writer.transport.abort()
        self.writers.clear()


@asynccontextmanager
async def nodes(settings: PeerSettings | None = None) -> Any:
    other = OtherNode()
    server = await asyncio.start_server(other.serve, "127.0.0.1", 0)
    other.port = server.sockets[0].getsockname()[1]
    peers = SocketPeers(SystemClock(), asyncio.get_running_loop(), 7, settings or PeerSettings())
    try:
        yield other, peers
    finally:
        await peers.close()
        other.hang_up()
        server.close()
        await server.wait_closed()


def to(other: OtherNode) -> Endpoint:
    return Endpoint(1, "127.0.0.1", other.port)


def ask(peer: SocketPeer, request: Any, *, timeout_s: float = 30.0, **options: Any) -> asyncio.Future[Any]:
    """The answer, or the failure."""
    outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    peer.send(request, outcome.set_result, outcome.set_result, timeout_s=timeout_s, **options)
    assert not outcome.done(), "neither callback may come before send has returned"
    return outcome


def run(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), 60))


@contextmanager
def unused_port() -> Iterator[int]:
    """A port where nobody listens, nor begins to: it is taken."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield int(sock.getsockname()[1])


def test_it_asks_once_for_versions_and_speaks_the_newest_both_know() -> None:
    async def story() -> None:
        async with nodes() as (other, peers):
            peer = peers.open(to(other), "tests")
            answers = await asyncio.gather(*(ask(peer, DescribeClusterRequest()) for _ in range(3)))
            assert [answer.cluster_id for answer in answers] == ["c"] * 3
            keys = [(key, version) for key, version, _ in other.seen]
            assert keys == [(ApiKey.API_VERSIONS, 4), *[(ApiKey.DESCRIBE_CLUSTER, 1)] * 3]
            assert {client_id for _, _, client_id in other.seen} == {"node-7-tests"}
            await ask(peer, DescribeClusterRequest(), max_version=0)
            assert other.seen[-1][:2] == (ApiKey.DESCRIBE_CLUSTER, 0)

    run(story)


def test_an_older_node_is_asked_for_its_versions_in_words_it_knows() -> None:
    async def story() -> None:
        async with nodes() as (other, peers):
            other.newest_api_versions = 3
            answer = await ask(peers.open(to(other), "tests"), DescribeClusterRequest())
            assert answer.cluster_id == "c"
            assert [version for key, version, _ in other.seen if key == ApiKey.API_VERSIONS] == [4, 0]

    run(story)


def test_what_the_other_node_does_not_serve_fails_alone() -> None:
    async def story() -> None:
        async with nodes() as (other, peers):
            peer = peers.open(to(other), "tests")
            early, good = ask(peer, VoteRequest()), ask(peer, DescribeClusterRequest())
            assert await early is PeerFailure.UNSUPPORTED_VERSION
            assert (await good).cluster_id == "c"
            assert await ask(peer, VoteRequest()) is PeerFailure.UNSUPPORTED_VERSION
            assert other.connections == 1

    run(story)


def test_a_large_answer_is_received_once_and_its_records_are_looked_at_in_place() -> None:
    records = bytes(range(256)) * 20_000
    answer = FetchResponse(
        responses=[
            FetchResponse.FetchableTopicResponse(
                topic_id=bytes(range(16)), partitions=[FetchResponse.PartitionData(records=records)]
            )
        ]
    )

    async def story() -> None:
        async with nodes() as (other, peers):
            other.answer = lambda request, version: (
                answer if isinstance(request, FetchRequest) else DescribeClusterResponse(cluster_id="after")
            )
            peer = peers.open(to(other), "tests")
            large, small = ask(peer, FetchRequest()), ask(peer, DescribeClusterRequest())
            received = (await large).responses[0].partitions[0].records
            assert received == records
            assert isinstance(received.obj, bytearray)
            assert (await small).cluster_id == "after"

    run(story)


def test_an_answer_that_is_too_large_is_not_received() -> None:
    async def story() -> None:
        async with nodes(PeerSettings(max_answer_bytes=1000)) as (other, peers):
            other.answer = lambda request, version: struct.pack(">i", 1001)
            assert (
                await ask(peers.open(to(other), "tests"), DescribeClusterRequest()) is PeerFailure.BAD_ANSWER
            )

    run(story)


@pytest.mark.parametrize("nonsense", [struct.pack(">ii", 4, 12345), struct.pack(">i", -1), bytes(8)])
def test_an_answer_that_makes_no_sense_ends_the_connection(nonsense: bytes) -> None:
    async def story() -> None:
        async with nodes() as (other, peers):
            peer = peers.open(to(other), "tests")
            await ask(peer, DescribeClusterRequest())
            lost = asyncio.get_running_loop().create_future()
            peer.on_disconnect(lost.set_result)
            other.answer = lambda request, version: nonsense
            assert await ask(peer, DescribeClusterRequest()) is PeerFailure.BAD_ANSWER
            assert await lost is PeerFailure.BAD_ANSWER

    run(story)


def test_nobody_listens() -> None:
    async def story(port: int) -> None:
        async with nodes(PeerSettings(first_pause_s=0.02)) as (_, peers):
            peer = peers.open(Endpoint(2, "127.0.0.1", port), "tests")
            clock = asyncio.get_running_loop()
            began = clock.time()
            waited = []
            for _ in range(5):
                assert await ask(peer, DescribeClusterRequest()) is PeerFailure.REFUSED
                waited.append(clock.time() - began)
            # The first retry is immediate, those after it are not.
            assert waited[4] - waited[1] >= 0.02 * 0.8 * (1 + 2 + 4)

    with unused_port() as port:
        run(lambda: story(port))


def test_a_node_that_is_not_reachable_is_not_taken_for_gone() -> None:
    async def unreachable(new_protocol: Any, host: str, port: int) -> None:
        raise OSError(113, "No route to host")

    async def silent(new_protocol: Any, host: str, port: int) -> None:
        await asyncio.Event().wait()

    async def story() -> None:
        for connect in (unreachable, silent):
            peers = SocketPeers(
                SystemClock(), asyncio.get_running_loop(), 7, PeerSettings(setup_timeout_s=0.05), connect
            )
            peer = peers.open(Endpoint(2, "10.0.0.1", 9092), "tests")
            assert await ask(peer, DescribeClusterRequest()) is PeerFailure.UNREACHABLE
            probed = asyncio.get_running_loop().create_future()
            peers.probe(Endpoint(2, "10.0.0.1", 9092), probed.set_result, timeout_s=0.05)
            assert await probed is PeerFailure.UNREACHABLE
            await peers.close()

    run(story)


def test_a_node_that_takes_the_connection_and_says_nothing_has_timed_out() -> None:
    async def story() -> None:
        # Long enough for the connection itself to be made in any case.
        async with nodes(PeerSettings(setup_timeout_s=0.5)) as (other, peers):
            other.says_its_versions = False
            assert (
                await ask(peers.open(to(other), "tests"), DescribeClusterRequest()) is PeerFailure.TIMED_OUT
            )

    run(story)


def test_a_lost_connection_fails_what_waits_and_the_next_request_makes_a_new_one() -> None:
    async def story() -> None:
        async with nodes() as (other, peers):
            peer = peers.open(to(other), "tests")
            await ask(peer, DescribeClusterRequest())
            lost = asyncio.get_running_loop().create_future()
            peer.on_disconnect(lost.set_result)
            other.answer = lambda request, version: None
            waiting = [ask(peer, DescribeClusterRequest()) for _ in range(40)]
            other.hang_up()
            assert set(await asyncio.gather(*waiting)) == {PeerFailure.DISCONNECTED}
            assert await lost is PeerFailure.DISCONNECTED
            other.answer = lambda request, version: DescribeClusterResponse(cluster_id="again")
            assert (await ask(peer, DescribeClusterRequest())).cluster_id == "again"
            # A probe only checks whether the process listens, and sends no ApiVersions request.
            assert [key for key, _, _ in other.seen].count(ApiKey.API_VERSIONS) == 2

    run(story)


def test_an_answer_that_does_not_come_in_time() -> None:
    async def story() -> None:
        async with nodes() as (other, peers):
            peer = peers.open(to(other), "tests")
            await ask(peer, DescribeClusterRequest())
            other.answer = lambda request, version: None
            late, behind = (
                ask(peer, DescribeClusterRequest(), timeout_s=0.05),
                ask(peer, DescribeClusterRequest(), timeout_s=30),
            )
            assert await late is PeerFailure.TIMED_OUT
            # Answers keep the order: what came after it cannot be had on this connection either.
            assert await behind is PeerFailure.DISCONNECTED
            other.answer = lambda request, version: DescribeClusterResponse(cluster_id="again")
            assert (await ask(peer, DescribeClusterRequest())).cluster_id == "again"

    run(story)


def test_more_than_may_be_in_flight_waits_its_turn() -> None:
    async def story() -> None:
        async with nodes() as (other, peers):
            peer = peers.open(to(other), "tests")
            answers = await asyncio.gather(*(ask(peer, DescribeClusterRequest()) for _ in range(500)))
            assert len(answers) == 500
            assert other.connections == 1

    run(story)


def test_closing_fails_what_waits() -> None:
    async def story() -> None:
        async with nodes() as (other, peers):
            other.answer = lambda request, version: None
            peer = peers.open(to(other), "tests")
            waiting = ask(peer, DescribeClusterRequest())
            peer.close()
            assert await waiting is PeerFailure.CLOSED
            assert await ask(peer, DescribeClusterRequest()) is PeerFailure.CLOSED

    run(story)


def test_a_senders_mistake_costs_nobody_else_the_connection() -> None:
    async def story() -> None:
        async with nodes() as (other, peers):
            peer = peers.open(to(other), "tests")
            peer.send(DescribeClusterRequest(), lambda answer: 1 / 0, lambda failure: None, timeout_s=30)
            assert (await ask(peer, DescribeClusterRequest())).cluster_id == "c"
            assert other.connections == 1

    run(story)


def test_probes() -> None:
    async def story(unused: int) -> None:
        async with nodes() as (other, peers):
            outcomes = []
            for port in (other.port, unused):
                done = asyncio.get_running_loop().create_future()
                peers.probe(Endpoint(-1, "localhost", port), done.set_result, timeout_s=30)
                outcomes.append(await done)
            assert outcomes == [None, PeerFailure.REFUSED]

    with unused_port() as port:
        run(lambda: story(port))


def test_a_probe_closes_its_own_descriptor_only() -> None:
    """uvloop closes a socket it was handed twice if it is closed while it is opened; the second time it was a file."""
    uvloop = pytest.importorskip("uvloop")

    async def story() -> list[int]:
        opened: list[int] = []
        async with nodes() as (other, peers):
            for _ in range(50):
                done = asyncio.get_running_loop().create_future()
                peers.probe(to(other), done.set_result, timeout_s=30)
                assert await done is None
                opened.append(os.open(os.devnull, os.O_RDONLY))
                gc.collect(1)  # the young ones: earlier tests leave a lot to look through
        return opened

    descriptors = uvloop.run(story())
    for descriptor in descriptors:
        os.close(descriptor)
    assert len(set(descriptors)) == len(descriptors)
