"""Operations on share groups that need the share coordinator too: kept here, then done there, then noted here."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from ottla.coordinator.group.context import RequestInfo
from ottla.coordinator.group.service import GroupCoordinator
from ottla.coordinator.group.share.heartbeat import HeartbeatAnswer
from ottla.coordinator.group.share.offsets import Deletion, Reset
from ottla.errors import ApiException, ErrorCode
from ottla.wire import messages

_logger = logging.getLogger(__name__)

Message = Any
Done = Callable[[Message], None]
Failed = Callable[[ApiException], None]


class Persister(Protocol):
    """The way to the share coordinator (`ottla.coordinator.share.persister`)."""

    def initialize_state(self, request: Message, done: Done) -> None: ...

    def read_summary(self, request: Message, done: Done) -> None: ...

    def delete_state(self, request: Message, done: Done) -> None: ...


class ShareGroupService:
    """`broker.share_groups` in the API handlers."""

    __slots__ = ("_groups", "_persister")

    def __init__(self, groups: GroupCoordinator, persister: Persister) -> None:
        self._groups = groups
        self._persister = persister

    # -- membership

    def heartbeat(self, info: RequestInfo, request: Message, done: Done, failed: Failed) -> None:
        """Answer a heartbeat, and have share state made for partitions that lack it."""

        def answered(answer: HeartbeatAnswer) -> None:
            done(answer.response)
            if answer.initialize is not None:
                self._initialize(answer.initialize, lambda response: None)

        self._groups.write(
            request.group_id,
            lambda shard, now_ms: shard.share.heartbeat(info, request, now_ms),
            answered,
            failed,
        )

    def _initialize(self, request: Message, done: Done) -> None:
        group_id = request.group_id

        def made(response: Message) -> None:
            self._groups.write(
                group_id,
                lambda shard, now_ms: shard.share.initialized(group_id, response),
                lambda _: done(response),
                lambda error: not_kept(error, response),
            )

        def not_kept(error: ApiException, response: Message) -> None:
            # The next heartbeat asks again.
            _logger.warning("The share state of group %s was made but not noted: %s", group_id, error.message)
            done(response)

        self._persister.initialize_state(request, made)

    # -- offsets

    def describe_offsets(
        self, group_id: str, topics: dict[bytes, list[int]] | None, done: Done, failed: Failed
    ) -> None:
        """A summary of share state: of these partitions, or of all that the group has."""
        if topics is not None:
            self._summary(group_id, topics, done)
            return
        self._groups.read(
            group_id,
            lambda shard, now_ms: shard.share.state_topics(group_id),
            lambda found: self._summary(group_id, found, done),
            failed,
        )

    def _summary(self, group_id: str, topics: dict[bytes, list[int]], done: Done) -> None:
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

    def alter_offsets(self, request: Message, done: Done, failed: Failed) -> None:
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
        self, request: Message, names: Callable[[bytes], str], done: Done, failed: Failed
    ) -> None:
        """DeleteShareGroupOffsets. `names` tells a topic's name by its id."""

        def begun(deletion: Deletion) -> None:
            if deletion.delete is None:
                done(messages.DeleteShareGroupOffsetsResponse(responses=deletion.refused))
                return
            self._delete_state(deletion.delete, partial(deleted, deletion))

        def deleted(deletion: Deletion, errors: dict[bytes, ApiException | None]) -> None:
            topic_response = messages.DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic
            done(
                messages.DeleteShareGroupOffsetsResponse(
                    responses=[
                        *deletion.refused,
                        *(
                            topic_response(
                                topic_id=topic_id,
                                topic_name=names(topic_id),
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

    def delete_state(self, group_id: str, done: Callable[[], None], failed: Failed) -> None:
        """Before a share group is deleted: delete its share state. Raises (through `failed`) NON_EMPTY_GROUP."""

        def begun(request: Message | None) -> None:
            if request is None:
                done()
            else:
                self._delete_state(request, deleted)

        def deleted(errors: dict[bytes, ApiException | None]) -> None:
            error = next((error for error in errors.values() if error is not None), None)
            if error is None:
                done()
            else:
                failed(error)

        self._groups.write(group_id, lambda shard, now_ms: shard.share.begin_delete(group_id), begun, failed)

    def _delete_state(
        self, request: Message, done: Callable[[dict[bytes, ApiException | None]], None]
    ) -> None:
        def deleted(response: Message) -> None:
            errors = {topic.topic_id: _first_error(topic) for topic in response.results}
            gone = [topic_id for topic_id, error in errors.items() if error is None]
            self._groups.write(
                request.group_id,
                lambda shard, now_ms: shard.share.deleted_offsets(request.group_id, gone),
                lambda _: done(errors),
                lambda error: done(dict.fromkeys(errors, error)),
            )

        self._persister.delete_state(request, deleted)


def _first_error(topic: Message) -> ApiException | None:
    for part in topic.partitions:
        if part.error_code:
            return ApiException(ErrorCode(part.error_code), part.error_message or "")
    return None


def _with_errors(response: Message, made: Message) -> Message:
    """The answer to a reset, with what the share coordinator refused."""
    refused = {
        (topic.topic_id, part.partition): part
        for topic in made.results
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
