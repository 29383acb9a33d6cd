"""What a share partition needs from the share coordinator: read and write its persisted state.

Requests and responses are those of the share coordinator's APIs: the coordinator may be in this broker or in another.
`ottla.coordinator.share` answers them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from ottla.errors import ApiException, ErrorCode
from ottla.replica.share.states import RecordState, StateBatch
from ottla.wire.messages import (
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
)


class ShareStatePersister(Protocol):
    """Calls `done` at once or later on the loop; errors are part of the response."""

    def read_state(
        self, request: ReadShareGroupStateRequest, done: Callable[[ReadShareGroupStateResponse], None]
    ) -> None:
        """ReadShareGroupState."""

    def write_state(
        self, request: WriteShareGroupStateRequest, done: Callable[[WriteShareGroupStateResponse], None]
    ) -> None:
        """WriteShareGroupState."""


@dataclass(frozen=True, slots=True)
class ShareKey:
    """A share partition: a partition as one group sees it."""

    group_id: str
    topic_id: bytes
    partition: int


@dataclass(frozen=True, slots=True)
class PersistedState:
    """The state of a share partition that the share coordinator has."""

    state_epoch: int
    start_offset: int
    """-1: the group has no start offset yet."""
    batches: list[StateBatch]


def read_request(key: ShareKey, leader_epoch: int) -> ReadShareGroupStateRequest:
    request = ReadShareGroupStateRequest
    return request(
        group_id=key.group_id,
        topics=[
            request.ReadStateData(
                topic_id=key.topic_id,
                partitions=[request.PartitionData(partition=key.partition, leader_epoch=leader_epoch)],
            )
        ],
    )


def write_request(
    key: ShareKey,
    *,
    state_epoch: int,
    leader_epoch: int,
    start_offset: int,
    delivery_complete_count: int,
    batches: Sequence[StateBatch],
) -> WriteShareGroupStateRequest:
    request = WriteShareGroupStateRequest
    return request(
        group_id=key.group_id,
        topics=[
            request.WriteStateData(
                topic_id=key.topic_id,
                partitions=[
                    request.PartitionData(
                        partition=key.partition,
                        state_epoch=state_epoch,
                        leader_epoch=leader_epoch,
                        start_offset=start_offset,
                        delivery_complete_count=delivery_complete_count,
                        state_batches=[
                            request.StateBatch(
                                first_offset=batch.first,
                                last_offset=batch.last,
                                delivery_state=batch.state,
                                delivery_count=batch.delivery_count,
                            )
                            for batch in batches
                        ],
                    )
                ],
            )
        ],
    )


def write_error(response: WriteShareGroupStateResponse) -> ApiException | None:
    """The error of a write of one partition, as clients get it."""
    try:
        _only([part for topic in response.results for part in topic.partitions])
    except ApiException as error:
        return error
    return None


_Result = TypeVar(
    "_Result", ReadShareGroupStateResponse.PartitionResult, WriteShareGroupStateResponse.PartitionResult
)


def _only(parts: list[_Result]) -> _Result:
    """The one partition of a response; raises its error, as clients get it."""
    if len(parts) != 1:
        raise ApiException(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"The share coordinator returned {len(parts)} partitions instead of one",
        )
    result = parts[0]
    if result.error_code:
        raise ApiException(
            _ERRORS_FOR_CLIENTS.get(result.error_code, ErrorCode.UNKNOWN_SERVER_ERROR),
            result.error_message or "The share coordinator refused the request",
        )
    return result


def persisted_state(response: ReadShareGroupStateResponse) -> PersistedState:
    """The state of the one partition of a response; raises its error, as clients get it."""
    result = _only([part for topic in response.results for part in topic.partitions])
    unknown = {batch.delivery_state for batch in result.state_batches} - _WHEN_LOADED.keys()
    if unknown:
        raise ApiException(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"The persisted records have unknown states: {unknown}"
        )
    return PersistedState(
        result.state_epoch,
        result.start_offset,
        [
            StateBatch(
                batch.first_offset,
                batch.last_offset,
                _WHEN_LOADED[batch.delivery_state],
                batch.delivery_count,
            )
            for batch in result.state_batches
        ],
    )


_ARCHIVING = 3
"""A state of later Kafka versions: on its way to a dead-letter queue (KIP-1191)."""

_WHEN_LOADED: dict[int, RecordState] = {
    RecordState.AVAILABLE: RecordState.AVAILABLE,
    # Locks that were taken under another leader have ended.
    RecordState.ACQUIRED: RecordState.AVAILABLE,
    RecordState.ACKNOWLEDGED: RecordState.ACKNOWLEDGED,
    _ARCHIVING: RecordState.ARCHIVED,
    RecordState.ARCHIVED: RecordState.ARCHIVED,
}

_ERRORS_FOR_CLIENTS: dict[int, ErrorCode] = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    # Another broker leads the partition now, or its offsets were reset: clients refresh their metadata.
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
