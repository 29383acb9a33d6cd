"""AlterReplicaLogDirs (key 34), versions 1-2.

Move replicas of this broker between its log directories.

1   the same as 0 was
2   flexible
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.api.base import Api, RequestContext, Right
from ottla.broker.services import Broker
from ottla.errors import ApiException, ErrorCode
from ottla.log.types import TopicPartition
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation
from ottla.wire.messages import AlterReplicaLogDirsResponse

if TYPE_CHECKING:
    from ottla.ids import TopicName
    from ottla.wire.messages import AlterReplicaLogDirsRequest


def handle(
    broker: Broker, ctx: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    return _response(request, lambda path, tp: _move(broker, path, tp))


def _move(broker: Broker, path: str, tp: TopicPartition) -> ErrorCode:
    """Begin the move. If there is no replica yet, the directory is kept for when there is one."""
    try:
        broker.replicas.move_log(tp, _as_configured(broker, path))
    except ApiException as error:
        return error.code
    return ErrorCode.NONE


def _as_configured(broker: Broker, path: str) -> str:
    """The directory as configured: clients send the absolute path that DescribeLogDirs reports."""
    wanted = os.path.abspath(path)
    return next((d.path for d in broker.log_manager.dirs if os.path.abspath(d.path) == wanted), path)


def _response(
    request: AlterReplicaLogDirsRequest, outcome: Callable[[str, TopicPartition], ErrorCode]
) -> AlterReplicaLogDirsResponse:
    topics: dict[TopicName, list[AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                code = outcome(directory.path, TopicPartition(topic.name, index))
                topics.setdefault(topic.name, []).append(
                    AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult(
                        partition_index=index, error_code=code
                    )
                )
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult(topic_name=name, partitions=partitions)
            for name, partitions in topics.items()
        ]
    )


def on_error(
    ctx: RequestContext, request: AlterReplicaLogDirsRequest, error: ApiException
) -> AlterReplicaLogDirsResponse:
    return _response(request, lambda path, tp: error.code)


API = Api(ApiKey.ALTER_REPLICA_LOG_DIRS, handle, on_error, needs=(Right(AclOperation.ALTER),))
