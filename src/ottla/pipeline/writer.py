"""The writer of a task: sends batches with the driver's producer id, with several requests in flight.

A batch that failed with a retriable error, or whose response was lost, is sent again with the same bytes and the same
sequence number, so that a broker recognizes a duplicate. The driver decides about all other errors.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from ottla.admin.cluster import Cluster
from ottla.admin.connection import Connection, ConnectionFailed
from ottla.admin.errors import raise_for
from ottla.admin.retries import RETRIABLE_FOR_WRITERS
from ottla.admin.settings import ClusterSettings
from ottla.errors import ApiException, ErrorCode
from ottla.ids import ProducerId, TopicName, TransactionalId
from ottla.pipeline.batch_encoding import encode_batch
from ottla.wire.apis import ApiKey
from ottla.wire.enums import CoordinatorType
from ottla.wire.messages import AddPartitionsToTxnRequest, InitProducerIdRequest, ProduceRequest

if TYPE_CHECKING:
    from ottla.pipeline.columns import Section
    from ottla.wire.messages import ProduceResponse

NEWEST_PRODUCE_BY_NAME: Final = 12
"""Later versions name topics by their ids."""

_MOST_IN_FLIGHT: Final = 5
_MOST_QUEUED_BYTES: Final = 8 << 20
_MOST_REQUEST_BYTES: Final = 4 << 20
_REPLICAS_TIMEOUT_MS: Final = 30_000
_PAUSE_S: Final = 0.01
_LONGEST_PAUSE_S: Final = 0.5


class Place(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Grant:
    """The driver's permission to write: its producer id and epoch, and how to write."""

    settings: ClusterSettings
    transactional_id: TransactionalId | None = None
    """None for plain batches, which are part of no transaction."""
    producer_id: ProducerId = ProducerId(-1)  # noqa: RUF009
    epoch: int = -1
    implicit: bool = True
    """Whether a write adds its partition to the transaction by itself (transaction.version 2)."""
    compression: int = 0
    max_batch_bytes: int = 1_000_000
    retry_s: float = 120.0


@dataclass(slots=True)
class Written:
    """The records that a partition got, and their first and last offset."""

    records: int = 0
    first: int = -1
    last: int = -1


@dataclass(slots=True)
class _Batch:
    place: Place
    sequence: int
    count: int
    buffers: list[bytes | memoryview]
    size: int


@dataclass(slots=True)
class _Lane:
    """The sequence number of a partition, and its batches that are not sent yet, in order."""

    sequence: int = 0
    queue: deque[_Batch] = field(default_factory=deque)
    written: Written = field(default_factory=Written)


OnWritten = Callable[[Place, int, int], None]
"""A batch's partition, its base offset (-1 if the broker does not know it any more), and its number of records."""


class RefusedBatch(ApiException):
    """A broker refused a batch of a partition for good."""

    def __init__(self, place: Place, code: ErrorCode, message: str) -> None:
        self.place = place
        super().__init__(code, message)


class BatchWriter:
    """Sends batches to their leaders, in order within a partition; `flush` waits for all responses."""

    def __init__(
        self,
        brokers: Cluster,
        grant: Grant,
        sequences: Mapping[Place, int] | None = None,
        on_written: OnWritten | None = None,
    ) -> None:
        """`sequences` has the next sequence numbers of partitions that others wrote to under the same grant.

        `on_written` hears of each batch that is written, in order within a partition.
        """
        self._brokers = brokers
        self._on_written = on_written
        self._grant = grant
        self._sequences = sequences or {}
        self._lanes: dict[Place, _Lane] = {}
        self._queued_bytes = 0
        self._sent: dict[Connection, deque[list[_Batch]]] = {}
        self._failing_since: float | None = None
        self._pause_s = _PAUSE_S
        self._id, self._epoch = grant.producer_id, grant.epoch
        if grant.transactional_id is None and grant.producer_id < 0:
            self._id, self._epoch = brokers.retrying(self._own_identity, grant.retry_s)

    def _own_identity(self) -> tuple[ProducerId, int]:
        """Outside a transaction each writer gets a producer id, so that brokers recognize what it sends again."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
        response = self._brokers.ask_on(self._brokers.any(), request, 5)
        raise_for(response.error_code, None, "a producer id")
        return response.producer_id, response.producer_epoch

    def add(self, place: Place, sections: Iterable[Section]) -> None:
        """Adds the records of one partition, in order; sends, and waits where too much is queued."""
        lane = self._lanes.get(place)
        if lane is None:
            lane = self._lanes[place] = self._new_lane(place)
        for section in sections:
            header, body = encode_batch(
                section,
                producer_id=self._id,
                epoch=self._epoch,
                sequence=lane.sequence,
                compression=self._grant.compression,
                transactional=self._grant.transactional_id is not None,
            )
            batch = _Batch(place, lane.sequence, section.count, [header, body], len(header) + len(body))
            lane.sequence = (lane.sequence + section.count) & 0x7FFFFFFF
            lane.queue.append(batch)
            self._queued_bytes += batch.size
        while self._queued_bytes > _MOST_QUEUED_BYTES:
            self._move()

    def sequence(self, place: Place) -> int:
        """The sequence number of the next record of a partition."""
        lane = self._lanes.get(place)
        return self._sequences.get(place, 0) if lane is None else lane.sequence

    def add_batch(self, place: Place, buffers: list[bytes | memoryview], count: int) -> None:
        """Adds an encoded batch that begins with `sequence(place)`; waits where too much is queued."""
        lane = self._lanes.get(place)
        if lane is None:
            lane = self._lanes[place] = self._new_lane(place)
        batch = _Batch(place, lane.sequence, count, buffers, sum(map(len, buffers)))
        lane.sequence = (lane.sequence + count) & 0x7FFFFFFF
        lane.queue.append(batch)
        self._queued_bytes += batch.size
        while self._queued_bytes > _MOST_QUEUED_BYTES:
            self._move()

    def _new_lane(self, place: Place) -> _Lane:
        # An unknown partition fails here, before its records are encoded.
        self._brokers.retrying(lambda: self._brokers.leader(*place), self._grant.retry_s)
        if self._grant.transactional_id is not None and not self._grant.implicit:
            self._brokers.retrying(
                lambda: add_partition(self._brokers, self._grant, place), self._grant.retry_s
            )
        return _Lane(self._sequences.get(place, 0))

    def flush(self) -> dict[Place, Written]:
        """Waits until all is written; returns the records of each partition."""
        while self._queued_bytes or any(self._sent.values()):
            self._move()
        return {place: lane.written for place, lane in self._lanes.items()}

    def _move(self) -> None:
        """One step: sends what may be sent, else waits for a response."""
        try:
            if not self._send():
                self._receive(next(one for one, sent in self._sent.items() if sent))
        except ConnectionFailed as error:
            self._recover([], error)

    def _send(self) -> bool:
        sent_some = False
        for connection, lanes in self._ready().items():
            if connection.in_flight >= _MOST_IN_FLIGHT:
                continue
            batches, size = [], 0
            for lane in lanes:
                if size < _MOST_REQUEST_BYTES:
                    batches.append(lane.queue.popleft())
                    size += batches[-1].size
            self._queued_bytes -= size
            self._sent.setdefault(connection, deque()).append(batches)
            version = connection.agreed_version(
                ApiKey.PRODUCE, NEWEST_PRODUCE_BY_NAME if self._grant.implicit else 11
            )
            connection.send(self._request(batches), version)
            sent_some = True
        return sent_some

    def _ready(self) -> dict[Connection, list[_Lane]]:
        ready: dict[Connection, list[_Lane]] = {}
        for place, lane in self._lanes.items():
            if lane.queue:
                ready.setdefault(self._brokers.leader(*place), []).append(lane)
        return ready

    def _request(self, batches: list[_Batch]) -> ProduceRequest:
        topics: dict[str, list[ProduceRequest.PartitionProduceData]] = {}
        for batch in batches:
            topics.setdefault(batch.place.topic, []).append(
                ProduceRequest.PartitionProduceData(
                    index=batch.place.partition,
                    # The codec writes a list of buffers as one field, without a copy.
                    records=cast("bytes", batch.buffers),
                )
            )
        return ProduceRequest(
            transactional_id=self._grant.transactional_id,
            acks=-1,
            timeout_ms=_REPLICAS_TIMEOUT_MS,
            topic_data=[
                ProduceRequest.TopicProduceData(name=TopicName(name), partition_data=partitions)
                for name, partitions in topics.items()
            ],
        )

    def _receive(self, connection: Connection) -> None:
        refused: list[tuple[_Batch, ApiException]] = []
        self._take_response(connection, refused)
        if refused:
            self._recover([batch for batch, _ in refused], refused[0][1])
        else:
            self._failing_since, self._pause_s = None, _PAUSE_S

    def _take_response(self, connection: Connection, refused: list[tuple[_Batch, ApiException]]) -> None:
        response = cast("ProduceResponse", connection.receive())
        batches = {batch.place: batch for batch in self._sent[connection].popleft()}
        for topic in response.responses:
            for result in topic.partition_responses:
                batch = batches[Place(topic.name, result.index)]
                if result.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    self._written(batch, result.base_offset)
                else:
                    refused.append((batch, self._refusal(batch, result, refused)))

    def _written(self, batch: _Batch, base_offset: int) -> None:
        written = self._lanes[batch.place].written
        if 0 <= base_offset <= written.last:
            raise ApiException(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"{batch.place.topic}-{batch.place.partition} took a new batch for a duplicate",
            )
        written.records += batch.count
        if base_offset >= 0:
            written.first = base_offset if written.first < 0 else written.first
            written.last = base_offset + batch.count - 1
        if self._on_written is not None:
            self._on_written(batch.place, base_offset, batch.count)

    def _refusal(
        self,
        batch: _Batch,
        result: ProduceResponse.PartitionProduceResponse,
        refused: list[tuple[_Batch, ApiException]],
    ) -> ApiException:
        """The broker's error, if it is retriable; raises any other."""
        code = ErrorCode.of(result.error_code)
        where = f"{batch.place.topic}-{batch.place.partition}"
        error = ApiException(code, f"{where}: {code.name} {result.error_message or ''}".rstrip())
        follows = code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and any(
            earlier.place == batch.place for earlier, _ in refused
        )
        if code not in RETRIABLE_FOR_WRITERS and not follows:
            if code == ErrorCode.MESSAGE_TOO_LARGE:
                raise RefusedBatch(
                    batch.place,
                    code,
                    f"{where} refuses a batch of {batch.size} bytes: raise its max.message.bytes",
                )
            raise RefusedBatch(batch.place, code, error.message)
        return error

    def _recover(self, failed: list[_Batch], why: ApiException) -> None:
        """Receives all responses in flight, queues failed batches again in their order, and waits a moment."""
        now = time.monotonic()
        self._failing_since = self._failing_since or now
        if now - self._failing_since > self._grant.retry_s:
            raise why
        refused = [(batch, why) for batch in failed]
        for connection, sent in self._sent.items():
            try:
                while connection.in_flight:
                    self._take_response(connection, refused)
            except ConnectionFailed:
                self._brokers.drop(connection)
            # Requests without a response on a broken connection count as failed.
            refused += [(batch, why) for batches in sent for batch in batches]
        self._sent.clear()
        for batch, _ in sorted(refused, key=lambda one: one[0].sequence, reverse=True):
            self._lanes[batch.place].queue.appendleft(batch)
            self._queued_bytes += batch.size
        if why.code != ErrorCode.CONCURRENT_TRANSACTIONS:
            self._brokers.forget_locations()
        time.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        self._brokers.retrying(self._find_leaders, self._grant.retry_s)

    def _find_leaders(self) -> None:
        for place in self._lanes:
            self._brokers.leader(*place)


def add_partition(brokers: Cluster, grant: Grant, place: Place) -> None:
    """Adds a partition to the transaction (transaction.version below 2)."""
    assert grant.transactional_id is not None
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=grant.transactional_id,
        v3_and_below_producer_id=grant.producer_id,
        v3_and_below_producer_epoch=grant.epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(
                name=TopicName(place.topic), partitions=[place.partition]
            )
        ],
    )
    response = brokers.ask_on(
        brokers.coordinator_connection(grant.transactional_id, CoordinatorType.TRANSACTION), request, 3
    )
    for topic in response.results_by_topic_v3_and_below:
        for result in topic.results_by_partition:
            raise_for(
                result.partition_error_code, None, f"{place.topic}-{place.partition} in the transaction"
            )
