"""A consumer of the classic protocol as it behaves in a consumer group, where the broker assigns."""

from __future__ import annotations

import struct
from typing import Any

from ottla.coordinator.group.context import RequestInfo
from ottla.errors import ApiException, ErrorCode
from ottla.promise import Promise
from ottla.wire import messages
from ottla.wire.codec import decode_prefix, encode
from unit.coordinator.group.consumer.consumer_rig import GROUP, Rig, topic_id


def embedded(kind: Any, version: int = 3, **fields: Any) -> bytes:
    return struct.pack(">h", version) + encode(kind(**fields), version)


class ClassicClient:
    """A consumer of the classic protocol with the cooperative assignor: it reports what it owns when it joins."""

    def __init__(self, rig: Rig, topics: list[str], *, instance_id: str | None = None) -> None:
        self.rig = rig
        self.topics = topics
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.owned: dict[str, list[int]] = {}
        self.waiting: Promise[Any] | None = None
        self.user_data: bytes | None = None

    def _run(self, operation: str, request: Any, version: int = 5) -> Any:
        info = RequestInfo(version, "classic", "/127.0.0.1")
        call = getattr(self.rig.shard.classic, operation)
        response = self.rig.apply(call(info, request, self.rig.clock.now_ms()))
        if isinstance(response, Promise):
            got: list[Any] = []
            response.then(got.append, got.append)
            self.waiting = response if not got else None
            return got[0] if got else None
        return response

    def subscription(self) -> bytes:
        kind = messages.ConsumerProtocolSubscription
        return embedded(
            kind,
            topics=self.topics,
            owned_partitions=[
                kind.TopicPartition(topic=topic, partitions=numbers) for topic, numbers in self.owned.items()
            ],
            generation_id=self.generation,
        )

    def join(self) -> Any:
        request = messages.JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=60_000,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[
                messages.JoinGroupRequest.JoinGroupRequestProtocol(
                    name="cooperative-sticky", metadata=self.subscription()
                )
            ],
        )
        response = self._run("join", request)
        if response is not None and response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = request.member_id = response.member_id
            response = self._run("join", request)
        if response is not None and not response.error_code:
            self.member_id = response.member_id
            self.generation = response.generation_id
        return response

    def sync(self, assignments: dict[str, dict[str, list[int]]] | None = None) -> Any:
        kind = messages.ConsumerProtocolAssignment
        request = messages.SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name="cooperative-sticky",
            assignments=[
                messages.SyncGroupRequest.SyncGroupRequestAssignment(
                    member_id=member_id,
                    assignment=embedded(
                        kind,
                        assigned_partitions=[
                            kind.TopicPartition(topic=topic, partitions=numbers)
                            for topic, numbers in parts.items()
                        ],
                        user_data=self.user_data,
                    ),
                )
                for member_id, parts in (assignments or {}).items()
            ],
        )
        response = self._run("sync", request)
        if response is not None and not response.error_code:
            decoded, _ = decode_prefix(kind, 3, response.assignment, 2)
            self.owned = {each.topic: list(each.partitions) for each in decoded.assigned_partitions}
        return response

    def heartbeat(self) -> ErrorCode:
        request = messages.HeartbeatRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        try:
            return ErrorCode(self._run("heartbeat", request, 4).error_code)
        except ApiException as error:
            return error.code

    def leave(self) -> Any:
        identity = messages.LeaveGroupRequest.MemberIdentity
        members = [identity(member_id=self.member_id, group_instance_id=self.instance_id)]
        return self._run("leave", messages.LeaveGroupRequest(group_id=GROUP, members=members), 5)

    def step(self) -> None:
        """A heartbeat, and what follows from it in a consumer group."""
        if self.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()
            self.sync()

    @property
    def partitions(self) -> set[tuple[bytes, int]]:
        return {(topic_id(topic), number) for topic, numbers in self.owned.items() for number in numbers}
