"""Reads batches from partitions' leaders with raw Fetch requests: ranges of offsets, or whatever there is by now.

Follows leaders that move, leaves out control batches and, with read_committed, batches of aborted transactions; both
are known from batch headers and the broker's list of aborted transactions. Records are never looked at here.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ottla.admin.cluster import Cluster
from ottla.admin.connection import Connection, ConnectionFailed, answered
from ottla.admin.errors import describe_error, raise_for
from ottla.admin.retries import Backoff
from ottla.errors import ApiException, ErrorCode
from ottla.ids import BrokerId, TopicName
from ottla.pipeline.writer import Place
from ottla.records.batch import BatchHeader, CorruptBatchError, iter_batches, iter_records
from ottla.records.codecs import UnpackError
from ottla.records.control import ControlType, parse_control_type
from ottla.records.old_formats import is_old, modern
from ottla.wire.apis import ApiKey
from ottla.wire.messages import FetchRequest, ListOffsetsRequest

if TYPE_CHECKING:
    from ottla.wire.messages import FetchResponse
    from ottla.wire.primitives import Buffer

_logger = logging.getLogger(__name__)

EARLIEST: Final = -2
LATEST: Final = -1

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1

_NO_REPLICA: Final = BrokerId(-1)
_FETCH_BY_NAME: Final = 12
"""Later versions name topics by their ids."""
_LIST_OFFSETS: Final = 7
_FETCH_BYTES: Final = 8 << 20
_PARTITION_BYTES: Final = 4 << 20
_WAIT_MS: Final = 500
_RETRY_S: Final = 120.0
_TOGETHER_S: Final = 0.002
"""How long `poll_any` waits for the responses to what it has just sent, after the first one."""
_NO_END: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets of a partition from `start` up to `end`, which is not part of it."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class FetchedBatches:
    """Some batches of a partition. The first may begin before `start`, and the last may reach beyond `end`."""

    topic: str
    partition: int
    data: Buffer
    batches: Sequence[tuple[int, BatchHeader]]
    """Where in `data` each batch begins, and its header: only batches whose records count."""
    start: int
    end: int
    next_offset: int
    """Where the next read continues. All batches before it have been seen, also those that do not count."""
    high_watermark: int = -1
    last_stable_offset: int = -1


class OffsetGone(ApiException):
    """The partition does not hold an offset: it was deleted, or the topic was created again."""

    def __init__(self, place: Place, offset: int) -> None:
        self.place, self.offset = place, offset
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{place.topic}-{place.partition} does not hold offset {offset}: retention deleted it, or the topic was "
            "created again",
        )


class UnreadableBatch(ApiException):
    """A partition holds bytes that are no batch, or one that cannot be unpacked. Waiting does not help."""

    def __init__(self, place: Place, offset: int, reason: str) -> None:
        self.place = place
        super().__init__(
            ErrorCode.CORRUPT_MESSAGE,
            f"{place.topic}-{place.partition} cannot be read from offset {offset} on: {reason}",
        )


_FINAL: Final = (OffsetGone, UnreadableBatch)
"""What reading again does not mend, whatever its code."""


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """How much one request may bring, and how long it may wait."""

    max_bytes: int = _FETCH_BYTES
    """Of one response; memory holds at most two for each broker."""
    partition_max_bytes: int = _PARTITION_BYTES
    max_wait_ms: int = _WAIT_MS
    min_bytes: int = 1
    retry_s: float = _RETRY_S
    """How long to try again while brokers fail or leaders move, from the first failure on."""
    stall_s: float | None = None
    """How long `ranges` waits for offsets that are not there yet; None for ever."""


class Fetcher:
    """Reads from some positions on. Not for several threads at once, like the cluster client that it reads with."""

    def __init__(
        self,
        brokers: Cluster,
        *,
        isolation: int = READ_COMMITTED,
        limits: FetchLimits | None = None,
    ) -> None:
        self._brokers = brokers
        self._isolation = isolation
        self._limits = limits or FetchLimits()
        self._backoff: Backoff | None = None
        self._failing_since = 0.0
        self._polled: dict[Connection, dict[Place, int]] = {}
        """The requests of `poll_any` that are in flight."""

    # -- what there is by now

    def poll(
        self,
        positions: Mapping[Place, int],
        max_wait_ms: int | None = None,
        ends: Mapping[Place, int] | None = None,
    ) -> list[FetchedBatches]:
        """One request to each leader: the next batches of partitions that have some, and new positions of others.

        Waits up to `max_wait_ms` for new records, and gives none at or after `ends`. A failure that will pass gives an
        empty list, after a pause; it is raised if it lasts longer than the limit. OffsetGone if a partition does not
        hold its position.
        """
        wait_ms = self._limits.max_wait_ms if max_wait_ms is None else max_wait_ms
        sent: list[tuple[Connection, dict[Place, int]]] = []
        found: list[FetchedBatches] = []
        failure: ApiException | None = None
        try:
            for connection, asked in self._by_leader(positions).items():
                self._send(connection, asked, wait_ms)
                sent.append((connection, asked))
            while sent:
                connection, asked = sent[0]
                response = self._receive(connection)
                sent.pop(0)
                part, refused = self._take(response, asked, ends)
                found += part
                failure = failure or refused
        except ApiException as error:
            if isinstance(error, _FINAL) or error.code not in self._brokers.settings.retriable:
                raise
            failure = error
        finally:
            # A response that nobody waits for must not be taken for that of a later request.
            for connection, _ in sent:
                self._brokers.drop(connection)
        self._settle(failure)
        return found

    @property
    def in_flight(self) -> bool:
        """Whether `poll_any` has to be called again before the connections are of use to others."""
        return bool(self._polled)

    def poll_any(
        self,
        positions: Mapping[Place, int],
        max_wait_ms: int | None = None,
        ends: Mapping[Place, int] | None = None,
    ) -> list[FetchedBatches]:
        """As `poll`, but a leader with nothing new does not keep others waiting: its request stays in flight.

        Sends to each leader that has no request, and returns when one or more have answered. The position of a
        partition must not change while its request is in flight. Without positions, only waits for what was sent.
        """
        wait_ms = self._limits.max_wait_ms if max_wait_ms is None else max_wait_ms
        found: list[FetchedBatches] = []
        failure: ApiException | None = None
        # Another request may have closed a connection in the meantime.
        self._polled = {one: asked for one, asked in self._polled.items() if not one.closed}
        before = set(self._polled)
        try:
            self._send_free(positions, self._polled, wait_ms)
            wait_s = self._brokers.settings.request_timeout_s
            while self._polled:
                ready = answered(self._polled, wait_s)
                if found and not ready:
                    break
                # After the longest wait, the read of the oldest one fails with the right error.
                for connection in ready or list(self._polled)[:1]:
                    asked = self._polled.pop(connection)
                    part, refused = self._take(self._receive(connection), asked, ends)
                    found += part
                    failure = failure or refused
                if not found or not self._polled.keys() - before:
                    break
                wait_s = _TOGETHER_S
        except ApiException as error:
            if isinstance(error, _FINAL) or error.code not in self._brokers.settings.retriable:
                raise
            failure = error
        self._settle(failure)
        return found

    # -- ranges

    def ranges(self, wanted: Iterable[OffsetRange]) -> Generator[FetchedBatches, None, None]:
        """All batches of some ranges. The next request is on its way while the caller works on a response.

        Waits for offsets that are not committed yet; unless there is a limit, a range that ends beyond the log's end
        does not end by itself.
        """
        progress = time.monotonic()
        left = {
            Place(one.topic, one.partition): (one.start, one.end) for one in wanted if one.start < one.end
        }
        in_flight: dict[Connection, dict[Place, int]] = {}
        try:
            while left:
                failure: ApiException | None = None
                parts: list[FetchedBatches] = []
                try:
                    self._send_free(_starts(left), in_flight, self._limits.max_wait_ms)
                    connection = next(iter(in_flight))
                    response = self._receive(connection)
                    asked = in_flight.pop(connection)
                    parts, failure = self._take(
                        response, asked, {place: end for place, (_, end) in left.items()}
                    )
                    for part in parts:
                        self._advance(left, part)
                    if left and failure is None:
                        self._send_free(_starts(left), in_flight, self._limits.max_wait_ms)
                except ApiException as error:
                    if isinstance(error, _FINAL) or error.code not in self._brokers.settings.retriable:
                        raise
                    failure = error
                if failure is not None:
                    self._forget(in_flight)
                yield from (part for part in parts if part.batches)
                self._settle(failure)
                if parts or failure is not None:
                    progress = time.monotonic()
                elif self._limits.stall_s is not None and time.monotonic() - progress > self._limits.stall_s:
                    raise _stalled(left, self._limits.stall_s)
        finally:
            self._forget(in_flight)

    def _send_free(
        self, positions: Mapping[Place, int], in_flight: dict[Connection, dict[Place, int]], wait_ms: int
    ) -> None:
        """Sends a request to each leader that has none in flight."""
        asked = {place for places in in_flight.values() for place in places}
        free = {place: start for place, start in positions.items() if place not in asked}
        for connection, wanted in self._by_leader(free).items():
            if connection not in in_flight:
                self._send(connection, wanted, wait_ms)
                in_flight[connection] = wanted

    @staticmethod
    def _advance(left: dict[Place, tuple[int, int]], part: FetchedBatches) -> None:
        """A partition that got something goes to the end of the line: brokers fill a response in its order."""
        place = Place(part.topic, part.partition)
        _, end = left.pop(place)
        if part.next_offset < end:
            left[place] = part.next_offset, end

    def _forget(self, in_flight: dict[Connection, dict[Place, int]]) -> None:
        for connection in in_flight:
            self._brokers.drop(connection)
        in_flight.clear()

    # -- requests

    def _by_leader(self, positions: Mapping[Place, int]) -> dict[Connection, dict[Place, int]]:
        found: dict[Connection, dict[Place, int]] = {}
        for place, offset in positions.items():
            found.setdefault(self._brokers.leader(*place), {})[place] = offset
        return found

    def _send(self, connection: Connection, positions: Mapping[Place, int], wait_ms: int) -> None:
        topics: dict[str, list[FetchRequest.FetchPartition]] = {}
        for place, offset in positions.items():
            topics.setdefault(place.topic, []).append(
                FetchRequest.FetchPartition(
                    partition=place.partition,
                    fetch_offset=offset,
                    partition_max_bytes=self._limits.partition_max_bytes,
                    log_start_offset=-1,
                )
            )
        request = FetchRequest(
            replica_id=_NO_REPLICA,
            max_wait_ms=wait_ms,
            min_bytes=self._limits.min_bytes,
            max_bytes=self._limits.max_bytes,
            isolation_level=self._isolation,
            session_epoch=-1,
            topics=[
                FetchRequest.FetchTopic(topic=TopicName(name), partitions=partitions)
                for name, partitions in topics.items()
            ],
        )
        connection.send(request, connection.agreed_version(ApiKey.FETCH, _FETCH_BY_NAME))

    def _receive(self, connection: Connection) -> FetchResponse:
        try:
            response = connection.receive()
        except ConnectionFailed:
            self._brokers.drop(connection)
            raise
        found: FetchResponse = response  # type: ignore[assignment]
        raise_for(found.error_code, None, f"fetching from {connection.node.address}")
        return found

    def _take(
        self, response: FetchResponse, asked: Mapping[Place, int], ends: Mapping[Place, int] | None = None
    ) -> tuple[list[FetchedBatches], ApiException | None]:
        """The parts of a response, and the first failure in it that will pass."""
        parts: list[FetchedBatches] = []
        empty: list[FetchedBatches] = []
        failure: ApiException | None = None
        for topic in response.responses:
            for found in topic.partitions:
                place = Place(topic.topic, found.partition_index)
                offset = asked.get(place)
                if offset is None:
                    continue
                if found.error_code:
                    failure = failure or self._refusal(place, offset, found.error_code)
                    continue
                end = ends[place] if ends is not None else _NO_END
                try:
                    part = counted_batches(
                        place, offset, end, found, committed_only=self._isolation == READ_COMMITTED
                    )
                except (CorruptBatchError, UnpackError) as error:
                    raise UnreadableBatch(place, offset, error.message) from error
                if part.next_offset > offset:
                    parts.append(part)
                elif not found.records:
                    empty.append(part)
        if not parts:
            # A broker that has anything for these partitions gives some of it. So offsets that the log has passed
            # are gone: the cleaner has removed the last batches before the log's end.
            parts = [
                replace(part, next_offset=part.end) for part in empty if self._visible_end(part) >= part.end
            ]
        return parts, failure

    def _visible_end(self, part: FetchedBatches) -> int:
        return part.last_stable_offset if self._isolation == READ_COMMITTED else part.high_watermark

    def _refusal(self, place: Place, offset: int, error_code: int) -> ApiException:
        """The error of a partition, if it will pass; raises any other."""
        code = ErrorCode.of(error_code)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise OffsetGone(place, offset)
        error = ApiException(
            code, f"{place.topic}-{place.partition} at offset {offset}: {describe_error(error_code)}"
        )
        if code not in self._brokers.settings.retriable:
            raise error
        return error

    def _settle(self, failure: ApiException | None) -> None:
        """After a failure: waits a moment and looks leaders up again; raises it if it has lasted too long."""
        if failure is None:
            self._backoff = None
            return
        now = time.monotonic()
        if self._backoff is None:
            settings = self._brokers.settings
            self._backoff = Backoff(settings.retry_backoff_s, settings.retry_backoff_max_s)
            self._failing_since = now
        pause_s = self._backoff.next_s()
        if now + pause_s - self._failing_since > self._limits.retry_s:
            raise failure
        _logger.debug("fetching again in %.2f s: %s", pause_s, failure)
        self._brokers.forget_locations()
        time.sleep(pause_s)


def _starts(left: Mapping[Place, tuple[int, int]]) -> dict[Place, int]:
    return {place: start for place, (start, _) in left.items()}


def _stalled(left: Mapping[Place, tuple[int, int]], stall_s: float) -> ApiException:
    place, (offset, end) = next(iter(left.items()))
    return ApiException(
        ErrorCode.OFFSET_NOT_AVAILABLE,
        f"{place.topic}-{place.partition} has had no offset {offset} for {stall_s:.0f} s, and the read ends at {end}: "
        "was the topic created again, or has it lost records?",
    )


def counted_batches(
    place: Place,
    start: int,
    end: int,
    found: FetchResponse.PartitionData,
    *,
    committed_only: bool,
) -> FetchedBatches:
    """The batches of a response whose records count, from `start` up to `end`."""
    data: Buffer = found.records if found.records is not None else b""
    if is_old(data):
        data = modern(data)
    try:
        return _counted(place, start, end, found, data, committed_only=committed_only)
    except CorruptBatchError:
        # Messages of an old format may also follow newer batches; anything else is refused again.
        return _counted(place, start, end, found, modern(data), committed_only=committed_only)


def _counted(
    place: Place,
    start: int,
    end: int,
    found: FetchResponse.PartitionData,
    data: Buffer,
    *,
    committed_only: bool,
) -> FetchedBatches:
    aborted = sorted(found.aborted_transactions or (), key=lambda one: one.first_offset, reverse=True)
    aborting: set[int] = set()
    batches: list[tuple[int, BatchHeader]] = []
    position = start
    for at, header in iter_batches(data):
        if header.base_offset >= end:
            position = max(position, end)
            break
        last = header.last_offset
        if committed_only:
            while aborted and aborted[-1].first_offset <= last:
                aborting.add(aborted.pop().producer_id)
        if header.is_control:
            if header.producer_id in aborting and _is_abort(data, at, header):
                aborting.discard(header.producer_id)
        elif (
            last >= start
            and header.count
            and not (header.is_transactional and header.producer_id in aborting)
        ):
            batches.append((at, header))
        position = max(position, last + 1)
    return FetchedBatches(
        place.topic,
        place.partition,
        data,
        batches,
        start,
        end,
        position,
        found.high_watermark,
        found.last_stable_offset,
    )


def _is_abort(data: Buffer, at: int, header: BatchHeader) -> bool:
    marker = next(iter_records(data, at, header), None)
    return marker is not None and parse_control_type(marker.key) == ControlType.ABORT


def fetch_ranges(
    brokers: Cluster,
    wanted: Iterable[OffsetRange],
    *,
    isolation: int = READ_COMMITTED,
    limits: FetchLimits | None = None,
) -> Generator[FetchedBatches, None, None]:
    """All batches of some ranges whose records count; give them to `decoding.decode`."""
    return Fetcher(brokers, isolation=isolation, limits=limits).ranges(wanted)


def list_offsets(
    brokers: Cluster,
    wanted: Mapping[Place, int],
    *,
    isolation: int = READ_COMMITTED,
    timeout_s: float | None = None,
) -> dict[Place, int]:
    """The offset of each partition at EARLIEST, LATEST or a time in ms; -1 if no record is as late as the time.

    With read_committed, LATEST is the last stable offset: no open transaction has written before it.
    """
    found: dict[Place, int] = {}

    def ask() -> None:
        missing = [place for place in wanted if place not in found]
        by_leader: dict[Connection, list[Place]] = {}
        for place in missing:
            by_leader.setdefault(brokers.leader(*place), []).append(place)
        for connection, places in by_leader.items():
            response = brokers.ask_on(connection, _offsets_request(places, wanted, isolation), _LIST_OFFSETS)
            for topic in response.topics:
                for part in topic.partitions:
                    raise_for(part.error_code, None, f"the offsets of {topic.name}-{part.partition_index}")
                    found[Place(topic.name, part.partition_index)] = part.offset

    brokers.retrying(ask, timeout_s)
    return found


def _offsets_request(
    places: Collection[Place], wanted: Mapping[Place, int], isolation: int
) -> ListOffsetsRequest:
    request = ListOffsetsRequest
    topics: dict[str, list[ListOffsetsRequest.ListOffsetsPartition]] = {}
    for place in places:
        topics.setdefault(place.topic, []).append(
            request.ListOffsetsPartition(partition_index=place.partition, timestamp=wanted[place])
        )
    return request(
        replica_id=_NO_REPLICA,
        isolation_level=isolation,
        topics=[
            request.ListOffsetsTopic(name=TopicName(name), partitions=partitions)
            for name, partitions in topics.items()
        ],
    )
