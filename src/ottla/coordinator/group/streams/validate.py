"""Checks of StreamsGroupHeartbeat requests that need no group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.errors import ApiException, ErrorCode

if TYPE_CHECKING:
    from ottla.wire.messages import StreamsGroupHeartbeatRequest

LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2


def validate_heartbeat(request: StreamsGroupHeartbeatRequest) -> None:
    """Raises INVALID_REQUEST, UNSUPPORTED_VERSION or STREAMS_INVALID_TOPOLOGY."""
    _check_supported(request)
    for name, text in (
        ("MemberId", request.member_id),
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if text is not None and not text.strip():
            raise _bad(f"{name} can't be empty.")
    roles = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if request.member_epoch == 0:
        _check_join(request, roles)
    elif request.member_epoch < STATIC_LEAVE_EPOCH:
        raise _bad(f"MemberEpoch is {request.member_epoch}, but must be at least {STATIC_LEAVE_EPOCH}.")
    elif request.member_epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        raise _bad("InstanceId can't be null.")
    if any(role is not None for role in roles) and any(role is None for role in roles):
        raise _bad("If one task type is given, all must be.")
    if request.member_epoch != 0 and request.topology is not None:
        raise _bad("A topology can only be given when (re-)joining.")


def _check_supported(request: StreamsGroupHeartbeatRequest) -> None:
    """Refuse fields that Kafka 4.3 has in the protocol but does not support yet."""
    if request.instance_id is not None:
        raise _bad("Static membership is not supported yet.")
    if request.task_offsets is not None or request.task_end_offsets is not None:
        raise _bad("Task offsets are not supported yet.")
    if request.warmup_tasks:
        raise _bad("Warm-up tasks are not supported yet.")
    if request.topology is not None and any(one.source_topic_regex for one in request.topology.subtopologies):
        raise _bad("Regular expressions for source topics are not supported yet.")


def _check_join(
    request: StreamsGroupHeartbeatRequest,
    roles: tuple[list[StreamsGroupHeartbeatRequest.TaskIds] | None, ...],
) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _bad("RebalanceTimeoutMs must be given in the first request.")
    if any(roles):
        raise _bad("Tasks must be empty when (re-)joining.")
    if request.topology is None:
        raise _bad("A topology must be given when (re-)joining.")
    _check_topology(request.topology)


def _check_topology(topology: StreamsGroupHeartbeatRequest.Topology) -> None:
    seen: set[str] = set()
    for one in topology.subtopologies:
        if one.subtopology_id in seen:
            raise _invalid(f"Subtopology {one.subtopology_id} is given twice.")
        seen.add(one.subtopology_id)
        for topic in one.state_changelog_topics:
            if topic.partitions != 0:
                raise _invalid(
                    f"Changelog topic {topic.name} must have an undefined partition count, "
                    f"but it is set to {topic.partitions}."
                )
        if any(topic.partitions < 0 for topic in one.repartition_source_topics):
            raise _invalid(
                f"A repartition topic of subtopology {one.subtopology_id} has a negative partition count."
            )
        for group in one.copartition_groups:
            for indexes, count in (
                (group.source_topics, len(one.source_topics)),
                (group.repartition_source_topics, len(one.repartition_source_topics)),
            ):
                if any(not 0 <= index < count for index in indexes):
                    raise _invalid(
                        f"A copartition group of subtopology {one.subtopology_id} names a topic that does not exist."
                    )
    if topology.epoch < 0:
        raise _invalid("The topology's epoch must not be negative.")


def _bad(message: str) -> ApiException:
    return ApiException(ErrorCode.INVALID_REQUEST, message)


def _invalid(message: str) -> ApiException:
    return ApiException(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)
