"""Listeners on real sockets: who gets in, who waits, who is closed, and how it all ends."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
import uvloop

from ottla.api.base import PARKED, Api
from ottla.broker.services import Node
from ottla.clock import SystemClock
from ottla.limits import MAX_WRITE_BUFFER_BYTES
from ottla.net.admission import Admission, Limits, ListenerLimits
from ottla.net.buffers import ReceiveBuffers
from ottla.net.dispatch import Dispatcher
from ottla.net.idle import IdleReaper
from ottla.net.listener import BindError, Listener, ListenerSettings, bind
from ottla.security.quotas.managers import ClientQuotas
from ottla.wire import messages
from ottla.wire.apis import ApiKey
from ottla.wire.headers import encode_request

TIMEOUT_S = 60.0


class Service:
    """ApiVersions answers, Heartbeat parks until the test answers, Fetch answers with 1 MB."""

    def __init__(self) -> None:
        self.parked: list[Any] = []
        self.handled = 0
        self.park_event = asyncio.Event()
        self.apis = {
            ApiKey.API_VERSIONS: Api(ApiKey.API_VERSIONS, self._answer),
            ApiKey.HEARTBEAT: Api(ApiKey.HEARTBEAT, self._park),
            ApiKey.FETCH: Api(ApiKey.FETCH, self._fetch),
        }

    def _answer(self, broker: Any, ctx: Any, request: Any) -> Any:
        self.handled += 1
        return messages.ApiVersionsResponse()

    def _park(self, broker: Any, ctx: Any, request: Any) -> Any:
        self.parked.append(ctx)
        self.park_event.set()
        return PARKED

    def _fetch(self, broker: Any, ctx: Any, request: Any) -> Any:
        self.handled += 1
        response = messages.FetchResponse
        part = response.PartitionData(partition_index=0, high_watermark=1, records=bytes(1 << 20))
        return response(responses=[response.FetchableTopicResponse(topic="t", partitions=[part])])


@asynccontextmanager
async def listening(
    service: Service, limits: Limits | None = None, *, host: str = "127.0.0.1", idle_ms: int = 600_000
) -> AsyncIterator[Listener]:
    clock = SystemClock()
    admission = Admission(limits or Limits(), clock.monotonic())
    admission.add_listener("PLAINTEXT", ListenerLimits(), clock.monotonic())
    settings = ListenerSettings(
        name="PLAINTEXT",
        host=host,
        port=0,
        on_controller_listener=False,
        max_request_bytes=1 << 20,
        backlog=50,
        send_buffer_bytes=-1,
        receive_buffer_bytes=-1,
    )
    dispatcher = Dispatcher(
        cast(Node, SimpleNamespace(authorizer=None, audit=None, clock=SystemClock(), quotas=ClientQuotas())),
        service.apis,
    )
    listener = Listener(settings, bind(host, 0), dispatcher, ReceiveBuffers(), admission, clock)
    reaper = IdleReaper(clock, idle_ms, lambda: listener.connections)
    listener.open()
    reaper.start()
    yield listener
    reaper.stop()
    await listener.stop(grace_s=0.05)
    assert not listener.connections and admission.total == 0


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await test()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(bounded())


def request(message: Any, version: int, correlation_id: int) -> bytes:
    return b"".join(encode_request(correlation_id, "test", message, version))


def api_versions(correlation_id: int = 1) -> bytes:
    return request(messages.ApiVersionsRequest(), 0, correlation_id)


def heartbeat(correlation_id: int = 1) -> bytes:
    return request(messages.HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 0, correlation_id)


async def connect(listener: Listener) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = listener.address
    return await asyncio.open_connection(host, port)


async def read_id(reader: asyncio.StreamReader) -> int:
    size, correlation_id = struct.unpack(">ii", await reader.readexactly(8))
    await reader.readexactly(size - 4)
    return int(correlation_id)


async def until(condition: Callable[[], bool]) -> None:
    """Run the event loop until a condition inside the listener holds: there is no event for it."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0)


async def close(*writers: asyncio.StreamWriter) -> None:
    for writer in writers:
        writer.close()
    await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)


def test_pipelined_requests_are_answered_in_order() -> None:
    async def story() -> None:
        service = Service()
        async with listening(service) as listener:
            reader, writer = await connect(listener)
            writer.write(b"".join([heartbeat(1), *(api_versions(n) for n in range(2, 30))]))
            await service.park_event.wait()
            service.parked[0].respond(messages.HeartbeatResponse())
            assert [await read_id(reader) for _ in range(29)] == list(range(1, 30))
            await close(writer)

    run(story)


def test_who_does_not_read_is_not_served_without_bound_and_goes_on_later() -> None:
    async def story() -> None:
        service = Service()
        async with listening(service) as listener:
            host, port = listener.address
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
            sock.connect((host, port))
            sock.setblocking(False)
            wanted = 60
            fetch = request(messages.FetchRequest(topics=[]), 4, 7)
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(sock, fetch * wanted)
            await until(lambda: any(connection.write_paused for connection in listener.connections))
            # What the system's own socket buffers take comes on top of ours.
            assert service.handled <= (MAX_WRITE_BUFFER_BYTES >> 20) + 20 < wanted
            reader, writer = await asyncio.open_connection(sock=sock)
            for _ in range(wanted):
                assert await read_id(reader) == 7
            assert service.handled == wanted
            await close(writer)

    run(story)


def test_an_oversized_request_is_refused_before_it_is_read(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with listening(Service()) as listener:
            reader, writer = await connect(listener)
            writer.write(struct.pack(">i", (1 << 20) + 1))
            assert await reader.read() == b""
            await close(writer)

    with caplog.at_level(logging.WARNING):
        run(story)
    assert "socket.request.max.bytes" in caplog.text


def test_a_full_broker_lets_newcomers_wait_until_someone_leaves() -> None:
    async def story() -> None:
        async with listening(Service(), Limits(max_connections=1)) as listener:
            first_reader, first = await connect(listener)
            first.write(api_versions())
            await read_id(first_reader)
            second_reader, second = await connect(listener)
            second.write(api_versions(2))
            answer = asyncio.create_task(read_id(second_reader))
            done, _ = await asyncio.wait([answer], timeout=0.1)
            assert not done
            await close(first)
            assert await answer == 2
            await close(second)

    run(story)


def test_an_address_over_its_cap_is_turned_away() -> None:
    async def story() -> None:
        async with listening(Service(), Limits(max_per_ip=1)) as listener:
            reader, writer = await connect(listener)
            writer.write(api_versions())
            await read_id(reader)
            refused, other = await connect(listener)
            assert await refused.read() == b""
            await close(writer, other)

    run(story)


def test_connections_beyond_the_rate_come_later_but_come() -> None:
    async def story() -> None:
        async with listening(Service(), Limits(max_rate_per_s=20)) as listener:
            begin = asyncio.get_running_loop().time()
            opened = [await connect(listener) for _ in range(25)]
            for reader, writer in opened:
                writer.write(api_versions())
                await read_id(reader)
            assert asyncio.get_running_loop().time() - begin >= 0.2
            await close(*(writer for _, writer in opened))

    run(story)


def test_an_idle_connection_is_closed() -> None:
    async def story() -> None:
        async with listening(Service(), idle_ms=100) as listener:
            reader, writer = await connect(listener)
            assert await reader.read() == b""
            await close(writer)

    run(story)


def test_stopping_answers_what_was_taken() -> None:
    async def story() -> None:
        service = Service()
        async with listening(service) as listener:
            reader, writer = await connect(listener)
            writer.write(heartbeat(5))
            await service.park_event.wait()
            stop = asyncio.create_task(listener.stop(grace_s=5))
            await asyncio.sleep(0)
            service.parked[0].respond(messages.HeartbeatResponse())
            assert await read_id(reader) == 5
            assert await reader.read() == b""
            await stop
            await close(writer)

    run(story)


def test_a_taken_port_is_told_with_its_address() -> None:
    taken = bind("127.0.0.1", 0)
    taken[0].listen()
    port = taken[0].getsockname()[1]
    with pytest.raises(BindError, match=f"127.0.0.1:{port}.*another process uses the port"):
        bind("127.0.0.1", port)
    taken[0].close()


def test_a_host_name_is_bound_on_all_its_addresses_with_one_port() -> None:
    sockets = bind("localhost", 0)
    assert len({sock.getsockname()[1] for sock in sockets}) == 1
    for sock in sockets:
        sock.close()


def test_every_address_means_ipv4_and_where_there_is_one_ipv6() -> None:
    async def story() -> None:
        async with listening(Service(), host="") as listener:
            _, port = listener.address
            hosts = ["127.0.0.1", "::1"] if socket.has_dualstack_ipv6() else ["127.0.0.1"]
            for host in hosts:
                try:
                    reader, writer = await asyncio.open_connection(host, port)
                except OSError:
                    assert host == "::1"
                    continue
                writer.write(api_versions(3))
                assert await read_id(reader) == 3
                peer = next(iter(listener.connections)).client
                assert (peer.client_host, peer.local_host) == (host, host)
                await close(writer)
                await until(lambda: not listener.connections)

    run(story)
