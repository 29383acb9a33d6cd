"""DeleteRecords (key 21), versions 0-2.

Make everything before an offset unreadable; -1 stands for the high watermark.

0, 1  the same
2     flexible

The response waits until every replica on a live broker has deleted the records, or the request times out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.api.base import BY_HANDLER, PARKED, Api, Outcome, RequestContext
from ottla.api.data.topic_rights import NOT_AUTHORIZED, denied_topics
from ottla.broker.services import Broker
from ottla.errors import ApiException, ErrorCode
from ottla.metadata.topic_names import INTERNAL_TOPICS
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation
from ottla.wire.messages import DeleteRecordsResponse

if TYPE_CHECKING:
    from ottla.replica.delayed_requests import DelayedRequest
    from ottla.replica.partition import Partition
    from ottla.wire.messages import DeleteRecordsRequest

_NO_LOW_WATERMARK: Final = -1
_ONLY_EVENTS: Final = 1 << 62
"""More bytes than are ever appended: only followers' fetches wake the request."""


class _Deletion(NamedTuple):
    partition: Partition
    offset: int
    result: DeleteRecordsResponse.DeleteRecordsPartitionResult


def handle(
    broker: Broker, ctx: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse | Outcome:
    waiting: list[_Deletion] = []
    denied = denied_topics(broker, ctx, AclOperation.DELETE, (topic.name for topic in request.topics))
    response = DeleteRecordsResponse(
        topics=[
            DeleteRecordsResponse.DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    _denied(part.partition_index)
                    if topic.name in denied
                    else _delete(broker, topic.name, part, waiting)
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
    waiting = _unfinished(waiting, expired=False)
    if not waiting:
        return response

    def woken(expired: bool) -> int:
        waiting[:] = _unfinished(waiting, expired=expired)
        if waiting:
            return _ONLY_EVENTS
        ctx.respond(response)
        return 0

    parked: DelayedRequest | None = broker.replicas.delayed_requests.park(
        [each.partition.high_watermark_waiters for each in waiting],
        _ONLY_EVENTS,
        max(request.timeout_ms, 0) / 1000,
        woken,
    )
    if parked is None:
        _unfinished(waiting, expired=True)
        return response
    ctx.on_close(parked.cancel)
    return PARKED


def _denied(index: int) -> DeleteRecordsResponse.DeleteRecordsPartitionResult:
    return DeleteRecordsResponse.DeleteRecordsPartitionResult(
        partition_index=index, low_watermark=_NO_LOW_WATERMARK, error_code=NOT_AUTHORIZED.code
    )


def _delete(
    broker: Broker,
    topic: str,
    part: DeleteRecordsRequest.DeleteRecordsPartition,
    waiting: list[_Deletion],
) -> DeleteRecordsResponse.DeleteRecordsPartitionResult:
    result = DeleteRecordsResponse.DeleteRecordsPartitionResult(partition_index=part.partition_index)
    try:
        partition = broker.replicas.find((topic, part.partition_index))
        if topic in INTERNAL_TOPICS:
            raise ApiException(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"Records of the internal topic {topic} cannot be deleted"
            )
        waiting.append(_Deletion(partition, partition.delete_records(part.offset), result))
    except ApiException as error:
        _fail(result, error.code)
    return result


def _unfinished(waiting: list[_Deletion], *, expired: bool) -> list[_Deletion]:
    """The deletions that some replica has not done yet; the results of the others are filled in."""
    left = []
    for each in waiting:
        try:
            low_watermark = each.partition.low_watermark()
        except ApiException as error:
            _fail(each.result, error.code)
            continue
        if low_watermark >= each.offset:
            each.result.low_watermark = low_watermark
        elif expired:
            _fail(each.result, ErrorCode.REQUEST_TIMED_OUT)
        else:
            left.append(each)
    return left


def _fail(result: DeleteRecordsResponse.DeleteRecordsPartitionResult, code: ErrorCode) -> None:
    result.low_watermark = _NO_LOW_WATERMARK
    result.error_code = code


def on_error(
    ctx: RequestContext, request: DeleteRecordsRequest, error: ApiException
) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsResponse.DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    DeleteRecordsResponse.DeleteRecordsPartitionResult(
                        partition_index=part.partition_index,
                        low_watermark=_NO_LOW_WATERMARK,
                        error_code=error.code,
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


API = Api(ApiKey.DELETE_RECORDS, handle, on_error, needs=BY_HANDLER)
