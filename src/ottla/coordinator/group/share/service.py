"""Operations on share groups that involve the share coordinator.

Each writes its intent to the group coordinator, sends a request to the share coordinator, and writes the result.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from ottla.coordinator.group.context import RequestInfo
from ottla.coordinator.group.service import GroupCoordinator
from ottla.coordinator.group.share.heartbeat import HeartbeatResult
from ottla.coordinator.group.share.offsets import Deletion, Reset
from ottla.errors import ApiException, ErrorCode
from ottla.ids import GroupId, TopicName
from ottla.promise import Done, Failed
from ottla.wire import messages

_logger = logging.getLogger(__name__)

_Errors = dict[bytes, ApiException | None]
"""By topic id."""


class Persister(Protocol):
    """The share persister (`ottla.coordinator.share.persister`)."""

    def initialize_state(
        self,
        request: messages.InitializeShareGroupStateRequest,
        done: Done[messages.InitializeShareGroupStateResponse],
    ) -> None: ...

    def read_summary(
        self,
        request: messages.ReadShareGroupStateSummaryRequest,
        done: Done[messages.ReadShareGroupStateSummaryResponse],
    ) -> None: ...

    def delete_state(
        self,
        request: messages.DeleteShareGroupStateRequest,
        done: Done[messages.DeleteShareGroupStateResponse],
    ) -> None: ...


class ShareGroupService:
    """`broker.share.groups` in the API handlers."""

    __slots__ = ("_groups", "_persister")

    def __init__(self, groups: GroupCoordinator, persister: Persister) -> None:
        self._groups = groups
        self._persister = persister

    # -- membership

    def heartbeat(
        self,
        info: RequestInfo,
        request: messages.ShareGroupHeartbeatRequest,
        done: Done[messages.ShareGroupHeartbeatResponse],
        failed: Failed,
    ) -> None:
        """Respond to a heartbeat, and initialize share state for partitions that lack it."""

        def written(result: HeartbeatResult) -> None:
            done(result.response)
            if result.initialize is not None:
                self._initialize(result.initialize, lambda response: None)

        self._groups.write(
            request.group_id,
            lambda shard, now_ms: shard.share.heartbeat(info, request, now_ms),
            written,
            failed,
        )

    def _initialize(
        self,
        request: messages.InitializeShareGroupStateRequest,
        done: Done[messages.InitializeShareGroupStateResponse],
    ) -> None:
        group_id = request.group_id

        def initialized(response: messages.InitializeShareGroupStateResponse) -> None:
            self._groups.write(
                group_id,
                lambda shard, now_ms: shard.share.initialized(group_id, response),
                lambda _: done(response),
                lambda error: not_written(error, response),
            )

        def not_written(error: ApiException, response: messages.InitializeShareGroupStateResponse) -> None:
            # The next heartbeat requests it again.
            _logger.warning(
                "The share state of group %s was initialized, but that could not be written: %s",
                group_id,
                error.message,
            )
            done(response)

        self._persister.initialize_state(request, initialized)

    # -- offsets

    def describe_offsets(
        self,
        group_id: GroupId,
        topics: dict[bytes, list[int]] | None,
        done: Done[messages.ReadShareGroupStateSummaryResponse],
        failed: Failed,
    ) -> None:
        """A summary of share state: of these partitions, or of all partitions of the group."""
        if topics is not None:
            self._summary(group_id, topics, done)
            return
        self._groups.read(
            group_id,
            lambda shard, now_ms: shard.share.state_topics(group_id),
            lambda found: self._summary(group_id, found, done),
            failed,
        )

    def _summary(
        self,
        group_id: GroupId,
        topics: dict[bytes, list[int]],
        done: Done[messages.ReadShareGroupStateSummaryResponse],
    ) -> None:
        request = messages.ReadShareGroupStateSummaryRequest
        self._persister.read_summary(
            request(
                group_id=group_id,
                topics=[
                    request.ReadStateSummaryData(
                        topic_id=topic_id,
                        partitions=[
                            request.PartitionData(partition=number, leader_epoch=-1) for number in numbers
                        ],
                    )
                    for topic_id, numbers in topics.items()
                ],
            ),
            done,
        )

    def alter_offsets(
        self,
        request: messages.AlterShareGroupOffsetsRequest,
        done: Done[messages.AlterShareGroupOffsetsResponse],
        failed: Failed,
    ) -> None:
        """AlterShareGroupOffsets."""

        def begun(reset: Reset) -> None:
            if reset.initialize is None:
                done(reset.response)
                return
            self._initialize(reset.initialize, lambda made: done(_with_errors(reset.response, made)))

        self._groups.write(
            request.group_id, lambda shard, now_ms: shard.share.reset_offsets(request, now_ms), begun, failed
        )

    def delete_offsets(
        self,
        request: messages.DeleteShareGroupOffsetsRequest,
        name_of: Callable[[bytes], TopicName],
        done: Done[messages.DeleteShareGroupOffsetsResponse],
        failed: Failed,
    ) -> None:
        """DeleteShareGroupOffsets. `name_of` returns a topic's name by its id."""

        def begun(deletion: Deletion) -> None:
            if deletion.delete is None:
                done(messages.DeleteShareGroupOffsetsResponse(responses=deletion.refused))
                return
            self._delete_state(deletion.delete, partial(deleted, deletion))

        def deleted(deletion: Deletion, errors: _Errors) -> None:
            topic_response = messages.DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic
            done(
                messages.DeleteShareGroupOffsetsResponse(
                    responses=[
                        *deletion.refused,
                        *(
                            topic_response(
                                topic_id=topic_id,
                                topic_name=name_of(topic_id),
                                error_code=ErrorCode.NONE if error is None else error.code,
                                error_message=None if error is None else error.message,
                            )
                            for topic_id, error in errors.items()
                        ),
                    ]
                )
            )

        self._groups.write(
            request.group_id, lambda shard, now_ms: shard.share.begin_delete_offsets(request), begun, failed
        )

    def delete_state(self, group_id: GroupId, done: Callable[[], None], failed: Failed) -> None:
        """Delete the share state of a share group that will be deleted. Fails with NON_EMPTY_GROUP."""

        def begun(request: messages.DeleteShareGroupStateRequest | None) -> None:
            if request is None:
                done()
            else:
                self._delete_state(request, deleted)

        def deleted(errors: _Errors) -> None:
            error = next((error for error in errors.values() if error is not None), None)
            if error is None:
                done()
            else:
                failed(error)

        self._groups.write(group_id, lambda shard, now_ms: shard.share.begin_delete(group_id), begun, failed)

    def _delete_state(self, request: messages.DeleteShareGroupStateRequest, done: Done[_Errors]) -> None:
        def deleted(response: messages.DeleteShareGroupStateResponse) -> None:
            errors: _Errors = {topic.topic_id: _first_error(topic) for topic in response.results}
            gone = [topic_id for topic_id, error in errors.items() if error is None]
            self._groups.write(
                request.group_id,
                lambda shard, now_ms: shard.share.deleted_offsets(request.group_id, gone),
                lambda _: done(errors),
                lambda error: done(dict.fromkeys(errors, error)),
            )

        self._persister.delete_state(request, deleted)


def _first_error(
    topic: messages.DeleteShareGroupStateResponse.DeleteStateResult,
) -> ApiException | None:
    for part in topic.partitions:
        if part.error_code:
            return ApiException(ErrorCode(part.error_code), part.error_message or "")
    return None


def _with_errors(
    response: messages.AlterShareGroupOffsetsResponse, initialized: messages.InitializeShareGroupStateResponse
) -> messages.AlterShareGroupOffsetsResponse:
    """The response to a reset, with the errors of the share coordinator."""
    refused = {
        (topic.topic_id, part.partition): part
        for topic in initialized.results
        for part in topic.partitions
        if part.error_code
    }
    for topic in response.responses:
        for part in topic.partitions:
            result = refused.get((topic.topic_id, part.partition_index))
            if result is not None:
                part.error_code = result.error_code
                part.error_message = result.error_message
    return response
