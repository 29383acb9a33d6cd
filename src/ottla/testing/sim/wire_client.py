"""A client of the simulated cluster: speaks the wire protocol over simulated connections, and finds leaders."""

from __future__ import annotations

import asyncio
import itertools
import random
import struct
from typing import Any, Final, TypeVar

from ottla.errors import ErrorCode
from ottla.ids import TopicName
from ottla.log.types import TopicPartition
from ottla.testing.sim.loop import SimLoop
from ottla.testing.sim.network import Address
from ottla.wire import messages
from ottla.wire.classes import WireRequest, WireResponse
from ottla.wire.codec import decode
from ottla.wire.frames import FrameDecoder
from ottla.wire.headers import decode_response_header, encode_request
from ottla.wire.messages import response_class

Resp = TypeVar("Resp", bound=WireResponse)

METADATA_VERSION: Final = 12
_CONNECT_S: Final = 2.0
_MAX_FRAME_BYTES: Final = 100 << 20


class Unanswered(Exception):
    """The connection failed or timed out: the outcome of the request is unknown."""


class NotSent(Exception):
    """There was no connection: the request was not executed."""


class _Wire(asyncio.Protocol):
    """One connection; responses come in the order of the requests."""

    def __init__(self, loop: SimLoop, name: str) -> None:
        self._loop = loop
        self._name = name
        self._ids = itertools.count(1)
        self._pending: dict[int, tuple[int, int, asyncio.Future[Any]]] = {}
        self._frames = FrameDecoder(_MAX_FRAME_BYTES)
        self._transport: asyncio.Transport | None = None
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        pending, self._pending = self._pending, {}
        for _, _, answer in pending.values():
            if not answer.done():
                answer.set_exception(Unanswered("the connection was lost"))

    def data_received(self, data: bytes) -> None:
        for frame in self._frames.feed(data):
            (correlation_id,) = struct.unpack_from(">i", frame)
            key, version, answer = self._pending.pop(correlation_id)
            _, offset = decode_response_header(key, version, frame)
            if not answer.done():
                answer.set_result(decode(response_class(key), version, frame[offset:]))

    def ask(self, request: WireRequest[Resp], version: int) -> asyncio.Future[Resp]:
        assert self._transport is not None
        correlation_id = next(self._ids)
        answer: asyncio.Future[Resp] = self._loop.create_future()
        self._pending[correlation_id] = (request.API_KEY, version, answer)
        self._transport.writelines(encode_request(correlation_id, self._name, request, version))
        return answer

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class WireClient:
    """Requests to brokers by address, id, leadership or coordination. Belongs to the process that runs it."""

    def __init__(self, loop: SimLoop, name: str, bootstrap: list[Address], rng: random.Random) -> None:
        self.loop = loop
        self.name = name
        self.random = rng
        self._bootstrap = bootstrap
        self._wires: dict[Address, _Wire] = {}
        self._brokers: dict[int, Address] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._coordinators: dict[tuple[int, str], Address] = {}
        self._topic_ids: dict[TopicName, bytes] = {}
        self._epochs: dict[TopicPartition, int] = {}

    # -- asking

    async def ask(
        self, address: Address, request: WireRequest[Resp], version: int, timeout_s: float = 5.0
    ) -> Resp:
        """Send a request and return the response. Raises `NotSent` or `Unanswered`."""
        wire = await self._wire(address)
        try:
            return await asyncio.wait_for(wire.ask(request, version), timeout_s)
        except TimeoutError:
            # As clients do: a late response must not be taken for that of another request.
            self._drop(address)
            raise Unanswered(f"no answer in {timeout_s} s") from None

    async def _wire(self, address: Address) -> _Wire:
        wire = self._wires.get(address)
        if wire is None or wire.lost:
            try:
                _, made = await asyncio.wait_for(
                    self.loop.create_connection(lambda: _Wire(self.loop, self.name), *address), _CONNECT_S
                )
            except (OSError, TimeoutError) as error:
                raise NotSent(f"no connection to {address}: {error}") from None
            self._wires[address] = wire = made
        return wire

    def _drop(self, address: Address) -> None:
        if (wire := self._wires.pop(address, None)) is not None:
            wire.close()

    async def ask_any(self, request: WireRequest[Resp], version: int, timeout_s: float = 5.0) -> Resp:
        """Ask one broker after the other until one responds."""
        known = [*self._brokers.values(), *self._bootstrap]
        last: Exception = NotSent("no broker is known")
        for address in self.random.sample(known, len(known)):
            try:
                return await self.ask(address, request, version, timeout_s)
            except (NotSent, Unanswered) as error:
                last = error
        raise last

    # -- finding

    async def refresh(self, topics: list[TopicName]) -> None:
        request = messages.MetadataRequest
        wanted = [request.MetadataRequestTopic(name=topic) for topic in topics]
        answer = await self.ask_any(
            request(topics=wanted, allow_auto_topic_creation=False), METADATA_VERSION, 2.0
        )
        self._brokers = {each.node_id: (each.host, each.port) for each in answer.brokers}
        for topic in answer.topics:
            if topic.name is None:
                continue
            if not topic.error_code:
                self._topic_ids[topic.name] = topic.topic_id
            for each in topic.partitions:
                tp = TopicPartition(topic.name, each.partition_index)
                # A broker that is cut off may report old leaders.
                if each.leader_epoch >= self._epochs.get(tp, -1):
                    self._epochs[tp] = each.leader_epoch
                    self._leaders[tp] = each.leader_id

    async def leader(self, tp: TopicPartition) -> Address:
        """Return the address of a partition's leader; raises `NotSent` without a known leader."""
        if self._leaders.get(tp, -1) not in self._brokers:
            await self.refresh([tp.topic])
        address = self._brokers.get(self._leaders.get(tp, -1))
        if address is None:
            raise NotSent(f"{tp} has no leader")
        return address

    async def topic_id(self, topic: TopicName) -> bytes:
        if topic not in self._topic_ids:
            await self.refresh([topic])
        if topic not in self._topic_ids:
            raise NotSent(f"{topic} is not known")
        return self._topic_ids[topic]

    def leader_epoch(self, tp: TopicPartition) -> int:
        """Return the latest known leader epoch, or -1."""
        return self._epochs.get(tp, -1)

    def forget_leader(self, tp: TopicPartition) -> None:
        self._leaders.pop(tp, None)

    async def coordinator(self, kind: int, key: str) -> Address:
        """Return the address of a coordinator: `kind` 0 is for groups, 1 for transactions."""
        known = self._coordinators.get((kind, key))
        if known is not None:
            return known
        request = messages.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        found = (await self.ask_any(request, 4, 2.0)).coordinators[0]
        if found.error_code:
            raise NotSent(f"no coordinator: {ErrorCode.of(found.error_code).name}")
        self._coordinators[kind, key] = address = (found.host, found.port)
        return address

    def forget_coordinator(self, kind: int, key: str) -> None:
        self._coordinators.pop((kind, key), None)
