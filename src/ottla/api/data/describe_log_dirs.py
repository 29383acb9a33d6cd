"""DescribeLogDirs (key 35), versions 1-5.

The log directories, their disk usage, and the logs in them.

1   the same as 0 was
2   flexible
3   an error code for the whole answer
4   total and usable bytes of the volume
5   whether the directory is cordoned: gets no new replicas
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING

from ottla.api.base import PARKED, Api, Outcome, RequestContext, Right
from ottla.broker.services import Broker
from ottla.errors import ApiException, ErrorCode
from ottla.ids import TopicName
from ottla.log.types import TopicPartition
from ottla.metadata.features import CORDONED_LOG_DIRS_FROM
from ottla.replica.offload import outcome
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation
from ottla.wire.messages import DescribeLogDirsResponse

if TYPE_CHECKING:
    from ottla.log.log_dir import LogDir
    from ottla.log.manager import LogManager
    from ottla.log.partition_log import PartitionLog
    from ottla.wire.messages import DescribeLogDirsRequest

_DiskUsages = list[tuple[int, int] | OSError]


def handle(
    broker: Broker, ctx: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse | Outcome:
    wanted = None
    if request.topics is not None:
        wanted = {
            TopicPartition(topic.topic, index) for topic in request.topics for index in topic.partitions
        }
    manager = broker.log_manager
    described = [(directory, _describe(manager, directory, wanted)) for directory in manager.dirs]
    if broker.image.metadata_version >= CORDONED_LOG_DIRS_FROM:
        for directory, result in described:
            result.is_cordoned = not directory.offline and manager.is_cordoned(directory)
    # Reading the disk usage of a volume can hang with the volume.
    broker.replicas.offload.run(
        partial(_disk_usages, manager, [directory for directory, _ in described]),
        partial(_respond, ctx, described),
    )
    return PARKED


def _describe(
    manager: LogManager, directory: LogDir, wanted: set[TopicPartition] | None
) -> DescribeLogDirsResponse.DescribeLogDirsResult:
    path = os.path.abspath(directory.path)
    if directory.offline:
        return DescribeLogDirsResponse.DescribeLogDirsResult(
            log_dir=path, error_code=ErrorCode.KAFKA_STORAGE_ERROR
        )
    topics: dict[str, list[DescribeLogDirsResponse.DescribeLogDirsPartition]] = {}
    for log in manager.logs_in(directory):
        tp = log.topic_partition
        if wanted is None or tp in wanted:
            topics.setdefault(tp.topic, []).append(_partition(manager, tp, log))
    return DescribeLogDirsResponse.DescribeLogDirsResult(
        log_dir=path,
        topics=[
            DescribeLogDirsResponse.DescribeLogDirsTopic(name=TopicName(name), partitions=partitions)
            for name, partitions in topics.items()
        ],
    )


def _partition(
    manager: LogManager, tp: TopicPartition, log: PartitionLog
) -> DescribeLogDirsResponse.DescribeLogDirsPartition:
    current = manager.get(tp)
    is_future = manager.future_logs.get(tp) is log
    if current is None:
        lag = -1
    elif is_future:
        lag = current.log_end_offset - log.log_end_offset
    else:
        lag = max(log.high_watermark - log.log_end_offset, 0)
    return DescribeLogDirsResponse.DescribeLogDirsPartition(
        partition_index=tp.partition, partition_size=log.size, offset_lag=lag, is_future_key=is_future
    )


def _disk_usages(manager: LogManager, directories: Iterable[LogDir]) -> _DiskUsages:
    usages: _DiskUsages = []
    for directory in directories:
        try:
            usages.append(manager.fs.disk_usage(directory.path))
        except OSError as error:
            usages.append(error)
    return usages


def _respond(
    ctx: RequestContext,
    described: list[tuple[LogDir, DescribeLogDirsResponse.DescribeLogDirsResult]],
    future: Future[_DiskUsages],
) -> None:
    usages = outcome(future)
    if isinstance(usages, ApiException):
        ctx.respond(DescribeLogDirsResponse(error_code=usages.code))
        return
    for (_, result), usage in zip(described, usages, strict=True):
        if isinstance(usage, OSError):
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        elif not result.error_code:
            result.total_bytes, result.usable_bytes = usage
    ctx.respond(DescribeLogDirsResponse(results=[result for _, result in described]))


API = Api(ApiKey.DESCRIBE_LOG_DIRS, handle, needs=(Right(AclOperation.DESCRIBE),))
