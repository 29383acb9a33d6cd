"""DeleteRecords (21): make everything before an offset unreadable; -1 stands for the high watermark.

0, 1  the same
2     flexible
"""

from __future__ import annotations

from typing import Final

from ottla.api.base import Api, Message, RequestContext
from ottla.api.broker import Broker
from ottla.api.data.produce import INTERNAL_TOPICS
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.apis import ApiKey
from ottla.wire.messages import DeleteRecordsResponse as Response

_NO_LOW_WATERMARK: Final = -1


def handle(broker: Broker, ctx: RequestContext, request: Message) -> Message:
    return Response(
        topics=[
            Response.DeleteRecordsTopicResult(
                name=topic.name, partitions=[_delete(broker, topic.name, part) for part in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _delete(broker: Broker, topic: str, part: Message) -> Message:
    result = Response.DeleteRecordsPartitionResult(partition_index=part.partition_index)
    try:
        partition = broker.replicas.partition(topic, part.partition_index)
        if topic in INTERNAL_TOPICS:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"Records of the internal topic {topic} cannot be deleted"
            )
        result.low_watermark = partition.delete_records(part.offset)
    except KafkaError as error:
        result.low_watermark = _NO_LOW_WATERMARK
        result.error_code = error.code
    return result


def on_error(ctx: RequestContext, request: Message, error: KafkaError) -> Message:
    return Response(
        topics=[
            Response.DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    Response.DeleteRecordsPartitionResult(
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


API = Api(key=ApiKey.DELETE_RECORDS, min_version=0, max_version=2, handle=handle, on_error=on_error)
