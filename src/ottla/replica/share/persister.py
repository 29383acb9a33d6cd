"""What a share partition asks of the share coordinator, wherever it is: keep this, what was kept?

The requests and answers are those of the share coordinator's APIs, so that the coordinator may be in this broker or
in another. `ottla.coordinator.share` answers them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ottla.errors import ApiException, ErrorCode
from ottla.replica.share.states import RecordState, StateBatch
from ottla.wire import messages

Message = Any


class Persister(Protocol):
    """Answers come through `done`, at once or later on the loop; what went wrong stands in the answer."""

    def read_state(self, request: Message, done: Callable[[Message], None]) -> None:
        """ReadShareGroupState."""

    def write_state(self, request: Message, done: Callable[[Message], None]) -> None:
        """WriteShareGroupState."""


@dataclass(frozen=True, slots=True)
class ShareKey:
    """A share partition: a partition as one group sees it."""

    group_id: str
    topic_id: bytes
    partition: int


@dataclass(frozen=True, slots=True)
class KeptState:
    """What the share coordinator knows of a share partition."""

    state_epoch: int
    start_offset: int
    """-1: nobody has said where to begin."""
    batches: list[StateBatch]


def read_request(key: ShareKey, leader_epoch: int) -> Message:
    request = messages.ReadShareGroupStateRequest
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
) -> Message:
    request = messages.WriteShareGroupStateRequest
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


def only_result(response: Message) -> Message:
    """The one partition of an answer; raises what a client is to be told where it is an error."""
    partitions = [part for topic in response.results for part in topic.partitions]
    if len(partitions) != 1:
        raise ApiException(ErrorCode.UNKNOWN_SERVER_ERROR, "The share coordinator answered something else")
    result = partitions[0]
    if result.error_code:
        raise ApiException(
            _TOLD_TO_CLIENTS.get(result.error_code, ErrorCode.UNKNOWN_SERVER_ERROR),
            result.error_message or "The share coordinator refused",
        )
    return result


def kept_state(response: Message) -> KeptState:
    result = only_result(response)
    unknown = {batch.delivery_state for batch in result.state_batches} - _WHEN_LOADED.keys()
    if unknown:
        raise ApiException(ErrorCode.UNKNOWN_SERVER_ERROR, f"Records were kept in unknown states: {unknown}")
    return KeptState(
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
"""A state that later Kafkas know: on its way to a dead-letter queue (KIP-1191)."""

_WHEN_LOADED = {
    RecordState.AVAILABLE: RecordState.AVAILABLE,
    # Nobody holds a lock that was taken under another leader.
    RecordState.ACQUIRED: RecordState.AVAILABLE,
    RecordState.ACKNOWLEDGED: RecordState.ACKNOWLEDGED,
    _ARCHIVING: RecordState.ARCHIVED,
    RecordState.ARCHIVED: RecordState.ARCHIVED,
}

_TOLD_TO_CLIENTS = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    # Somebody else leads the partition now, or its offsets were reset: look again.
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
