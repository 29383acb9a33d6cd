"""ListOffsets (key 2), versions 1-11.

The offset of a partition for a timestamp, or for one of the names below.

1   one offset for each partition instead of a list
2   isolation level
4   the client's leader epoch is checked, and the offset's leader epoch reported
5   OFFSET_NOT_AVAILABLE while a new leader does not know the high watermark
6   flexible
7   -3, the record of the highest timestamp
8   -4, the earliest offset on the local disk
9   -5, the last offset in tiered storage
10  a timeout for lookups in tiered storage
11  -6, the first offset that tiered storage is still to get

There is no tiered storage: -4 is the earliest offset, -5 and -6 give -1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.api.base import BY_HANDLER, PARKED, Api, Outcome, RequestContext
from ottla.api.data.topic_rights import NOT_AUTHORIZED, denied_topics
from ottla.broker.services import Broker
from ottla.errors import ApiException, ErrorCode
from ottla.log.types import TimestampOffset
from ottla.replica.offload import outcome
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation
from ottla.wire.messages import ListOffsetsResponse

if TYPE_CHECKING:
    from ottla.log.partition_log import PartitionLog
    from ottla.replica.partition import Partition
    from ottla.wire.messages import ListOffsetsRequest

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6

_SINCE_VERSION: Final = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_CONSUMER: Final = -1
_DEBUGGING_CONSUMER: Final = -2
_READ_COMMITTED: Final = 1
_LEADER_EPOCH_SINCE: Final = 4
_OFFSET_NOT_AVAILABLE_SINCE: Final = 5

_Result = ListOffsetsResponse.ListOffsetsPartitionResponse
_Lookup = Callable[[], TimestampOffset | None]
_NOTHING: Final = TimestampOffset(-1, -1, -1)


class _Search:
    """A lookup that reads files: it is done in a thread."""

    __slots__ = ("bound", "lagging", "lookup", "result")

    def __init__(self, result: _Result, lookup: _Lookup, bound: int, *, lagging: bool) -> None:
        self.result = result
        self.lookup = lookup
        self.bound = bound
        """The first offset that the client may not see."""
        self.lagging = lagging
        """A new leader does not know the high watermark yet: what it does not find may exist all the same."""


def handle(broker: Broker, ctx: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse | Outcome:
    searches: list[_Search] = []
    topics = []
    asked = _repeated(request)
    denied = denied_topics(broker, ctx, AclOperation.DESCRIBE, (topic.name for topic in request.topics))
    for topic in request.topics:
        results = []
        for part in topic.partitions:
            if topic.name in denied:
                results.append(_Result(partition_index=part.partition_index, error_code=NOT_AUTHORIZED.code))
                continue
            times = asked.pop((topic.name, part.partition_index), 0) if asked is not None else 1
            if times:
                results.append(_result(broker, ctx, request, topic.name, part, times, searches))
        topics.append(ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=results))
    response = ListOffsetsResponse(topics=topics)
    if not searches:
        return response
    broker.replicas.offload.run(partial(_search, searches), partial(_found, ctx, response, searches))
    return PARKED


def _repeated(request: ListOffsetsRequest) -> dict[tuple[str, int], int] | None:
    """How often each partition is asked for; None in the usual case that each is asked for once."""
    once = len({topic.name for topic in request.topics}) == len(request.topics) and all(
        len({part.partition_index for part in topic.partitions}) == len(topic.partitions)
        for topic in request.topics
    )
    if once:
        return None
    return Counter(
        (topic.name, part.partition_index) for topic in request.topics for part in topic.partitions
    )


def _result(
    broker: Broker,
    ctx: RequestContext,
    request: ListOffsetsRequest,
    topic: str,
    part: ListOffsetsRequest.ListOffsetsPartition,
    times: int,
    searches: list[_Search],
) -> _Result:
    result = _Result(partition_index=part.partition_index)
    timestamp = part.timestamp
    if times > 1:
        result.error_code = ErrorCode.INVALID_REQUEST
    elif timestamp < EARLIEST and ctx.version < _SINCE_VERSION.get(timestamp, ctx.version + 1):
        result.error_code = ErrorCode.UNSUPPORTED_VERSION
    else:
        try:
            partition = broker.replicas.find((topic, part.partition_index))
            if request.replica_id != _DEBUGGING_CONSUMER or part.current_leader_epoch >= 0:
                partition.check_leader(part.current_leader_epoch)
            _look_up(ctx, request, partition, timestamp, result, searches)
        except ApiException as error:
            _fail(ctx, result, error.code)
    return result


def _look_up(
    ctx: RequestContext,
    request: ListOffsetsRequest,
    partition: Partition,
    timestamp: int,
    result: _Result,
    searches: list[_Search],
) -> None:
    log = partition.log or partition.local_log()
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        _fill(ctx, result, log.earliest())
        return
    client = request.replica_id == _CONSUMER
    bound = _bound(log, request) if client else log.log_end_offset
    lagging = client and partition.epoch_start_offset > log.high_watermark
    if timestamp == LATEST:
        if lagging:
            raise ApiException(
                ErrorCode.OFFSET_NOT_AVAILABLE, "The high watermark of this epoch is not known yet"
            )
        _fill(ctx, result, TimestampOffset(-1, bound, partition.leader_epoch))
    elif timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        _fill(ctx, result, _NOTHING)
    else:
        lookup = (
            log.max_timestamp if timestamp == MAX_TIMESTAMP else partial(log.offset_for_timestamp, timestamp)
        )
        searches.append(_Search(result, lookup, bound, lagging=lagging))


def _bound(log: PartitionLog, request: ListOffsetsRequest) -> int:
    return log.last_stable_offset if request.isolation_level == _READ_COMMITTED else log.high_watermark


def _fill(ctx: RequestContext, result: _Result, found: TimestampOffset) -> None:
    result.timestamp = found.timestamp
    result.offset = found.offset
    if ctx.version >= _LEADER_EPOCH_SINCE:
        result.leader_epoch = found.leader_epoch


def _fail(ctx: RequestContext, result: _Result, code: ErrorCode) -> None:
    if code == ErrorCode.OFFSET_NOT_AVAILABLE and ctx.version < _OFFSET_NOT_AVAILABLE_SINCE:
        code = ErrorCode.LEADER_NOT_AVAILABLE
    result.error_code = code


def _search(searches: list[_Search]) -> list[TimestampOffset | ApiException | None]:
    found: list[TimestampOffset | ApiException | None] = []
    for search in searches:
        try:
            found.append(search.lookup())
        except ApiException as error:
            found.append(error)
        except OSError as error:
            found.append(ApiException(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
    return found


def _found(
    ctx: RequestContext,
    response: ListOffsetsResponse,
    searches: list[_Search],
    future: Future[list[TimestampOffset | ApiException | None]],
) -> None:
    found = outcome(future)
    if isinstance(found, ApiException):
        found = [found] * len(searches)
    for search, result in zip(searches, found, strict=True):
        if isinstance(result, ApiException):
            _fail(ctx, search.result, result.code)
        elif result is not None and result.offset < search.bound:
            _fill(ctx, search.result, result)
        elif search.lagging:
            _fail(ctx, search.result, ErrorCode.OFFSET_NOT_AVAILABLE)
    ctx.respond(response)


def on_error(ctx: RequestContext, request: ListOffsetsRequest, error: ApiException) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponse.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _Result(partition_index=part.partition_index, error_code=error.code)
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


API = Api(ApiKey.LIST_OFFSETS, handle, on_error, needs=BY_HANDLER)
