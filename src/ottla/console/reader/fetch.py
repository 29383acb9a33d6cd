"""Fetch on the event loop: the leaders of partitions, and what they hold from an offset on, as batches."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.admin.connection import ConnectionFailed, Node
from ottla.console.reader.connection import DOES_NOT_ANSWER, AsyncConnection, ClosedBefore
from ottla.errors import ApiException, ErrorCode
from ottla.ids import BrokerId, TopicName
from ottla.records.batch import BatchHeader, check_crc, iter_batches
from ottla.wire.enums import IsolationLevel
from ottla.wire.messages import FetchRequest, ListOffsetsRequest, MetadataRequest

if TYPE_CHECKING:
    from ottla.admin.settings import ClusterSettings
    from ottla.schemas.show import Shower
    from ottla.wire.classes import WireRequest, WireResponse
    from ottla.wire.messages import FetchResponse

R = TypeVar("R", bound="WireResponse")

MAX_READERS: Final = 32
PARTITION_BYTES: Final = 1 << 20
READER_BYTES: Final = 8 << 20
LEADERS_FOR_S: Final = 30.0
_ATTEMPTS: Final = 5
_BY_NAME: Final = 12
"""The last version of Fetch that names topics."""
_STALE: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.REPLICA_NOT_AVAILABLE,
    }
)


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as it came from the log."""

    data: memoryview
    header: BatchHeader
    crc_ok: bool


@dataclass(frozen=True, slots=True)
class Broken:
    """The offsets of a batch that could not be read, and why."""

    first: int
    last: int
    sentence: str


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a leader gave for one partition."""

    partition: int
    batches: list[Batch]
    start: int
    stable: int
    end: int
    aborted: tuple[tuple[int, int], ...]
    """(producer id, first offset) of aborted transactions in what was fetched."""
    error: ErrorCode = ErrorCode.NONE
    broken: list[Broken] = field(default_factory=list)
    """Batches whose records could not be read; known when somebody has looked through them."""


class Reader:
    """Reads one cluster. Every long poll has a connection of its own; short requests share one per broker."""

    def __init__(self, settings: ClusterSettings) -> None:
        self._settings = settings
        self._shared: dict[Node, AsyncConnection] = {}
        self._leaders: dict[str, tuple[float, dict[int, Node]]] = {}
        self._slots = asyncio.Semaphore(MAX_READERS)
        self.hangs: Callable[[str, int], bool] = lambda host, port: False
        """Whether a broker is known to hold connections open without answering."""
        self.shower: Shower | None = None
        """Decodes keys and values with schema ids, where the cluster has a schema registry."""

    @property
    def slots(self) -> asyncio.Semaphore:
        """Taken by each reading that lasts: a tail or a search."""
        return self._slots

    async def connect(self, node: Node) -> AsyncConnection:
        """A connection that its caller closes."""
        return await AsyncConnection.open(node, self._settings, self._settings.security.tls_context())

    def cut(self, host: str, port: int) -> None:
        """End what waits for a broker."""
        for node in [each for each in self._shared if (each.host, each.port) == (host, port)]:
            self._shared.pop(node).close()

    async def unreachable(self, topic: str) -> dict[int, Node]:
        """The partitions whose leaders hang, with those leaders."""
        return {
            number: node
            for number, node in (await self.leaders(topic)).items()
            if self.hangs(node.host, node.port)
        }

    async def _connection(self, node: Node) -> AsyncConnection:
        if self.hangs(node.host, node.port):
            raise ConnectionFailed(node.address, TimeoutError(DOES_NOT_ANSWER))
        known = self._shared.get(node)
        if known is None or known.closed:
            known = self._shared[node] = await self.connect(node)
        return known

    async def _ask(self, node: Node, request: WireRequest[R], max_version: int | None = None) -> R:
        """Ask on the connection that all requests to a broker share."""
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(ClosedBefore):
                return await (await self._connection(node)).ask(request, max_version)
        raise ConnectionFailed(node.address, EOFError("its connections are closed again and again"))

    async def _ask_any(self, request: WireRequest[R]) -> R:
        failure: ApiException | None = None
        known = [Node(-1, host, port) for host, port in self._settings.bootstrap]
        for node in [*known, *self._shared]:
            try:
                return await self._ask(node, request)
            except ApiException as error:
                failure = error
        raise failure or ApiException(ErrorCode.BROKER_NOT_AVAILABLE, "there is no bootstrap server")

    async def leaders(self, topic: str) -> dict[int, Node]:
        """The leader of each partition that has one; remembered for half a minute."""
        now = asyncio.get_running_loop().time()
        known = self._leaders.get(topic)
        if known is not None and now - known[0] < LEADERS_FOR_S:
            return known[1]
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=TopicName(topic))],
            allow_auto_topic_creation=False,
        )
        answer = await self._ask_any(request)
        found = answer.topics[0]
        if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise ApiException(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{topic}'")
        nodes = {each.node_id: Node(each.node_id, each.host, each.port) for each in answer.brokers}
        leaders = {
            each.partition_index: nodes[each.leader_id]
            for each in found.partitions
            if each.leader_id in nodes
        }
        self._leaders[topic] = now, leaders
        return leaders

    def forget(self, topic: str) -> None:
        """Look the leaders of a topic up again."""
        self._leaders.pop(topic, None)

    async def leader(self, topic: str, partition: int) -> Node:
        leaders = await self.leaders(topic)
        if partition not in leaders:
            self.forget(topic)
            raise ApiException(
                ErrorCode.LEADER_NOT_AVAILABLE,
                f"partition {partition} of {topic} does not exist or has no leader",
            )
        return leaders[partition]

    async def offsets(self, topic: str, moments: Mapping[int, int]) -> dict[int, int]:
        """The offsets of partitions at a timestamp or `OffsetSpec`; -1 where nothing fits."""
        by_leader: dict[Node, list[int]] = {}
        for number in moments:
            by_leader.setdefault(await self.leader(topic, number), []).append(number)
        kind = ListOffsetsRequest
        found: dict[int, int] = {}
        for node, numbers in by_leader.items():
            partitions = [
                kind.ListOffsetsPartition(partition_index=each, timestamp=moments[each]) for each in numbers
            ]
            request = kind(
                replica_id=BrokerId(-1),
                topics=[kind.ListOffsetsTopic(name=TopicName(topic), partitions=partitions)],
            )
            answer = await self._ask(node, request)
            for each in answer.topics[0].partitions:
                if each.error_code:
                    self.forget(topic)
                    raise ApiException(
                        ErrorCode.of(each.error_code),
                        f"{topic}-{each.partition_index}: {ErrorCode.of(each.error_code).name}",
                    )
                found[each.partition_index] = each.offset
        return found

    async def fetch(
        self,
        topic: str,
        offsets: Mapping[int, int],
        *,
        node: Node | None = None,
        connection: AsyncConnection | None = None,
        wait_ms: int = 0,
        partition_bytes: int = PARTITION_BYTES,
        committed: bool = False,
    ) -> dict[int, Fetched]:
        """What the leader of these partitions holds from the offsets on. All of them must have the same leader.

        `committed` ends at the last stable offset, and says which transactions in it were aborted; the batches of
        aborted transactions are among the others.
        """
        if not offsets:
            return {}
        if node is None:
            node = await self.leader(topic, next(iter(offsets)))
        kind = FetchRequest
        request = kind(
            replica_id=BrokerId(-1),
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=READER_BYTES,
            isolation_level=(IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED),
            session_id=0,
            session_epoch=-1,
            topics=[
                kind.FetchTopic(
                    topic=TopicName(topic),
                    partitions=[
                        kind.FetchPartition(
                            partition=number,
                            current_leader_epoch=-1,
                            fetch_offset=offset,
                            partition_max_bytes=partition_bytes,
                        )
                        for number, offset in offsets.items()
                    ],
                )
            ],
        )
        if connection is not None:
            answer = await connection.ask(request, _BY_NAME, wait_ms / 1000)
        else:
            answer = await self._ask(node, request, _BY_NAME)
        if answer.error_code:
            raise ApiException(ErrorCode.of(answer.error_code), f"Fetch of {topic} is refused")
        found: dict[int, Fetched] = {}
        for each in answer.responses:
            for part in each.partitions:
                found[part.partition_index] = _fetched(part)
                if ErrorCode.of(part.error_code) in _STALE:
                    self.forget(topic)
        return found

    async def close(self) -> None:
        for connection in self._shared.values():
            connection.close()
        self._shared.clear()


def _fetched(part: FetchResponse.PartitionData) -> Fetched:
    data = memoryview(part.records or b"")
    batches = [
        Batch(data[pos : pos + header.size_in_bytes], header, check_crc(data, pos, header))
        for pos, header in iter_batches(data)
    ]
    return Fetched(
        part.partition_index,
        batches,
        part.log_start_offset,
        part.last_stable_offset,
        part.high_watermark,
        tuple((each.producer_id, each.first_offset) for each in part.aborted_transactions or ()),
        ErrorCode.of(part.error_code),
    )
