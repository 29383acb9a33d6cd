"""A connection without a socket: bytes go in by hand, answers come out of a transport that only remembers."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from ottla.api.base import PARKED, Api
from ottla.broker.services import Node
from ottla.log.write_gate import WriteGate
from ottla.net.buffers import ReceiveBuffers
from ottla.net.connection import ClientInfo, Connection
from ottla.net.dispatch import Dispatcher
from ottla.security.quotas.managers import ClientQuotas
from ottla.testing.virtual_clock import VirtualClock
from ottla.wire import messages
from ottla.wire.apis import ApiKey

API_VERSIONS, METADATA, PRODUCE, HEARTBEAT = (
    ApiKey.API_VERSIONS,
    ApiKey.METADATA,
    ApiKey.PRODUCE,
    ApiKey.HEARTBEAT,
)


def frame(key: int, version: int, correlation_id: int, body: bytes = b"") -> bytes:
    """A request as a client writes it, with the header of the old, not flexible versions."""
    header = struct.pack(">hhih", key, version, correlation_id, 1) + b"c"
    return struct.pack(">i", len(header) + len(body)) + header + body


class Transport(asyncio.Transport):
    """Remembers what is written; `room` False plays a client that does not read."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.reading = True
        self.closed = False
        self.aborted = False
        self.high = 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high or 0

    def write(self, data: Any) -> None:
        self.written += data

    def writelines(self, list_of_data: Any) -> None:
        for data in list_of_data:
            self.written += data

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def answers(self) -> list[int]:
        """The correlation ids of what was written, each a whole frame."""
        found, position = [], 0
        while position < len(self.written):
            size, correlation_id = struct.unpack_from(">ii", self.written, position)
            found.append(correlation_id)
            position += 4 + size
        assert position == len(self.written)
        return found


class Client:
    """One connection and everything around it."""

    def __init__(
        self,
        clock: VirtualClock,
        buffers: ReceiveBuffers,
        apis: dict[int, Api],
        limit: int,
        gate: WriteGate | None = None,
    ) -> None:
        self.transport = Transport()
        self.turns: list[Callable[[], None]] = []
        self.lost: list[Connection] = []
        self.quotas = ClientQuotas()
        node = SimpleNamespace(authorizer=None, audit=None, clock=clock, quotas=self.quotas)
        self.connection = Connection(
            Dispatcher(cast(Node, node), apis, gate),
            buffers,
            clock,
            call_soon=self.turns.append,
            max_request_bytes=limit,
            client=ClientInfo("c-1", "10.0.0.2", "10.0.0.1", 9092, "PLAINTEXT", False),
            on_lost=self.lost.append,
        )
        self.connection.connection_made(self.transport)

    def send(self, data: bytes) -> None:
        """Bring bytes in as the event loop does, as long as the connection wants them."""
        view = memoryview(data)
        while view:
            if not self.transport.reading:
                self.turn()
            assert self.transport.reading and not self.transport.closed
            room = self.connection.get_buffer(-1)
            count = min(len(room), len(view))
            assert count > 0
            room[:count] = view[:count]
            self.connection.buffer_updated(count)
            view = view[count:]

    def turn(self) -> None:
        """One turn of the event loop."""
        turns, self.turns[:] = self.turns[:], []
        for callback in turns:
            callback()


class Service:
    """Handlers for the tests: ApiVersions answers at once, Heartbeat parks, Metadata fails in a chosen way."""

    def __init__(self) -> None:
        self.parked: list[Any] = []
        self.seen: list[int] = []
        self.bodies: list[bytes] = []
        self.failure: Exception | None = None
        self.apis = {
            API_VERSIONS: Api(API_VERSIONS, self._at_once, _version_error),
            HEARTBEAT: Api(HEARTBEAT, self._park),
            METADATA: Api(METADATA, self._fail, _metadata_error),
            PRODUCE: Api(PRODUCE, self._produce, gated=True),
        }

    def _at_once(self, broker: Any, ctx: Any, request: Any) -> Any:
        self.seen.append(ctx.correlation_id)
        return messages.ApiVersionsResponse()

    def _park(self, broker: Any, ctx: Any, request: Any) -> Any:
        self.seen.append(ctx.correlation_id)
        self.parked.append(ctx)
        return PARKED

    def _fail(self, broker: Any, ctx: Any, request: Any) -> Any:
        assert self.failure is not None
        raise self.failure

    def _produce(self, broker: Any, ctx: Any, request: Any) -> Any:
        self.seen.append(ctx.correlation_id)
        records = request.topic_data[0].partition_data[0].records
        self.bodies.append(bytes(records))
        return messages.ProduceResponse()


def _version_error(ctx: Any, request: Any, error: Any) -> Any:
    return messages.ApiVersionsResponse(error_code=error.code)


def _metadata_error(ctx: Any, request: Any, error: Any) -> Any:
    return messages.MetadataResponse(controller_id=int(error.code))


def heartbeat(correlation_id: int) -> bytes:
    body = struct.pack(">h", 1) + b"g" + struct.pack(">i", 0) + struct.pack(">h", 1) + b"m"
    return frame(HEARTBEAT, 0, correlation_id, body)


def produce(correlation_id: int, records: bytes) -> bytes:
    body = struct.pack(">hhi", -1, -1, 1000)
    body += struct.pack(">ih", 1, 1) + b"t" + struct.pack(">iii", 1, 0, len(records)) + records
    return frame(PRODUCE, 3, correlation_id, body)
