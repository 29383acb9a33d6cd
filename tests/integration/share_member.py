"""A member of a share group that says exactly what a test wants said, over one connection."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

from ottla.errors import ErrorCode
from ottla.records.batch import iter_batches, iter_records
from ottla.testing.raw_client import RawClient
from ottla.wire.messages import (
    FindCoordinatorRequest,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareGroupHeartbeatRequest,
)

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4

_COMING_UP = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


class ShareMember:
    """Joins, heartbeats, fetches and acknowledges. `session_epoch` counts by itself."""

    def __init__(self, host: str, port: int, group_id: str, topic: str) -> None:
        self.client = RawClient(host, port)
        self.group_id = group_id
        self.topic = topic
        self.member_id = str(uuid.uuid4())
        self.epoch = 0
        self.session_epoch = 0
        self.assigned: dict[bytes, list[int]] = {}
        self.topic_id = b""

    def heartbeat(self, epoch: int | None = None, topics: list[str] | None = None) -> Any:
        answer = self.client.ask(
            ShareGroupHeartbeatRequest(
                group_id=self.group_id,
                member_id=self.member_id,
                member_epoch=self.epoch if epoch is None else epoch,
                subscribed_topic_names=topics,
            ),
            1,
        )
        if not answer.error_code:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.assigned = {
                    topic.topic_id: topic.partitions for topic in answer.assignment.topic_partitions
                }
        return answer

    def join(self, wanted: Callable[[dict[bytes, list[int]]], bool] = bool) -> ShareMember:
        """Heartbeat until the assignment is as wanted; a real client would do it less often."""
        self._find_coordinator()
        end = time.monotonic() + 60
        answer = None
        while time.monotonic() < end:
            answer = self.heartbeat(topics=None if self.epoch else [self.topic])
            if not answer.error_code and wanted(self.assigned):
                self.topic_id = next(iter(self.assigned))
                return self
            assert answer.error_code in (ErrorCode.NONE, *_COMING_UP), answer
        raise AssertionError(f"no assignment: {answer}")

    def _find_coordinator(self) -> None:
        """Ask for the coordinator, which makes the topic that it needs."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            answer = self.client.ask(FindCoordinatorRequest(coordinator_keys=[self.group_id]), 6)
            if not answer.coordinators[0].error_code:
                return
            assert answer.coordinators[0].error_code in _COMING_UP, answer
        raise AssertionError("no coordinator")

    def leave(self) -> None:
        assert not self.heartbeat(epoch=-1).error_code

    def fetch(
        self,
        *,
        partition: int = 0,
        acks: list[tuple[int, int, list[int]]] | None = None,
        version: int = 2,
        **options: Any,
    ) -> Any:
        """Return the partition's part of the response, or None if it has none."""
        answer = self.fetch_raw(partition=partition, acks=acks, version=version, **options)
        assert not answer.error_code, answer
        for topic in answer.responses:
            for part in topic.partitions:
                if part.partition_index == partition:
                    return part
        return None

    def fetch_raw(
        self,
        *,
        partition: int = 0,
        acks: list[tuple[int, int, list[int]]] | None = None,
        version: int = 2,
        **options: Any,
    ) -> Any:
        request = ShareFetchRequest
        given = {
            # It ends with the first record: a caller that expects none sets the time to wait.
            "max_wait_ms": 20_000,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
        }
        given |= options
        answer = self.client.ask(
            request(
                group_id=self.group_id,
                member_id=self.member_id,
                share_session_epoch=given.pop("session_epoch", self.session_epoch),
                topics=[
                    request.FetchTopic(
                        topic_id=self.topic_id,
                        partitions=[
                            request.FetchPartition(
                                partition_index=partition,
                                acknowledgement_batches=[
                                    request.AcknowledgementBatch(
                                        first_offset=first, last_offset=last, acknowledge_types=types
                                    )
                                    for first, last, types in acks or []
                                ],
                            )
                        ],
                    )
                ],
                **given,
            ),
            version,
        )
        if not answer.error_code:
            self.session_epoch += 1
        return answer

    def acknowledge(
        self,
        first: int,
        last: int,
        types: list[int],
        *,
        partition: int = 0,
        version: int = 2,
        renew: bool = False,
        session_epoch: int | None = None,
    ) -> Any:
        request = ShareAcknowledgeRequest
        answer = self.client.ask(
            request(
                group_id=self.group_id,
                member_id=self.member_id,
                share_session_epoch=self.session_epoch if session_epoch is None else session_epoch,
                is_renew_ack=renew,
                topics=[
                    request.AcknowledgeTopic(
                        topic_id=self.topic_id,
                        partitions=[
                            request.AcknowledgePartition(
                                partition_index=partition,
                                acknowledgement_batches=[
                                    request.AcknowledgementBatch(
                                        first_offset=first, last_offset=last, acknowledge_types=types
                                    )
                                ],
                            )
                        ],
                    )
                ],
            ),
            version,
        )
        if answer.error_code:
            return ErrorCode(answer.error_code)
        self.session_epoch += 1
        return ErrorCode(answer.responses[0].partitions[0].error_code)

    def close(self) -> None:
        self.client.close()


def acquired(part: Any) -> list[tuple[int, int, int]]:
    """(first, last, delivery count) of what a fetch has got."""
    if part is None:
        return []
    assert not part.error_code, part
    return [(a.first_offset, a.last_offset, a.delivery_count) for a in part.acquired_records]


def values(part: Any) -> list[bytes]:
    """The values of the acquired records, in order."""
    held = [(a.first_offset, a.last_offset) for a in part.acquired_records]
    return [
        record.value
        for position, header in iter_batches(part.records)
        if not header.is_control
        for record in iter_records(part.records, position, header)
        if any(first <= record.offset <= last for first, last in held)
    ]
