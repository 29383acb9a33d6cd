"""Simulated members of classic groups: JoinGroup, SyncGroup, Heartbeat; eager, with assignment by the group leader.

`Membership` joins and syncs; `ClassicMember` reads its partitions and commits.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Final

from ottla.errors import ErrorCode
from ottla.ids import GroupId, TopicName
from ottla.log.types import TopicPartition
from ottla.testing.checks.history import Outcome
from ottla.testing.sim.history import Commit, History
from ottla.testing.sim.readers import Reader
from ottla.testing.sim.wire_client import NotSent, Resp, Unanswered, WireClient
from ottla.wire import messages
from ottla.wire.classes import WireMessage, WireRequest
from ottla.wire.codec import decode_prefix, encode
from ottla.wire.primitives import Buffer

_JOIN: Final = 9
_SYNC: Final = 5
_HEARTBEAT: Final = 4
_COMMIT: Final = 9
_FETCH_OFFSETS: Final = 9
_GROUP: Final = 0
_EMBEDDED: Final = 1
"""The version of subscriptions and assignments, which only members read."""
_SESSION_MS: Final = 3000
_WRONG_COORDINATOR: Final = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class Membership:
    """One member of one group. It owns the partitions `owned` in generation `generation`."""

    def __init__(
        self, client: WireClient, history: History, group: GroupId, topic: TopicName, count: int
    ) -> None:
        self.client = client
        self.history = history
        self.group = group
        self.topic = topic
        self._count = count
        """The number of partitions of the topic."""
        self.member_id = ""
        self.generation = -1
        self.owned: tuple[TopicPartition, ...] = ()

    async def keep_up(self) -> None:
        """Join the group if necessary, otherwise send a heartbeat. Raises `NotSent` and `Unanswered`."""
        if self.generation < 0:
            await self._join()
            return
        answer = await self.ask(
            messages.HeartbeatRequest(
                group_id=self.group, generation_id=self.generation, member_id=self.member_id
            ),
            _HEARTBEAT,
        )
        if answer.error_code:
            self.refused(answer.error_code)

    def refused(self, code: int) -> None:
        """Give up all partitions: the group has removed this member or has another generation."""
        if code in _WRONG_COORDINATOR:
            self.client.forget_coordinator(_GROUP, self.group)
            return
        if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return
        self._give_up()
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.member_id = ""

    def _give_up(self) -> None:
        self.generation, self.owned = -1, ()

    async def ask(self, request: WireRequest[Resp], version: int, timeout_s: float = 5.0) -> Resp:
        address = await self.client.coordinator(_GROUP, self.group)
        try:
            return await self.client.ask(address, request, version, timeout_s)
        except (NotSent, Unanswered):
            self.client.forget_coordinator(_GROUP, self.group)
            raise

    async def _join(self) -> None:
        request = messages.JoinGroupRequest
        subscription = messages.ConsumerProtocolSubscription(topics=[self.topic])
        protocol = request.JoinGroupRequestProtocol(name="sim", metadata=_embedded(subscription))
        # Longer than a rebalance takes: to the group a second request is another member.
        answer = await self.ask(
            request(
                group_id=self.group,
                session_timeout_ms=_SESSION_MS,
                rebalance_timeout_ms=_SESSION_MS,
                member_id=self.member_id,
                protocol_type="consumer",
                protocols=[protocol],
            ),
            _JOIN,
            timeout_s=8.0,
        )
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        elif answer.error_code:
            self.refused(answer.error_code)
        else:
            self.member_id = answer.member_id
            await self._sync(answer)

    async def _sync(self, joined: messages.JoinGroupResponse) -> None:
        request = messages.SyncGroupRequest
        assignments = []
        if joined.leader == self.member_id:
            assignments = [
                request.SyncGroupRequestAssignment(member_id=member_id, assignment=_assignment(partitions))
                for member_id, partitions in self._share_out([m.member_id for m in joined.members]).items()
            ]
        answer = await self.ask(
            request(
                group_id=self.group,
                generation_id=joined.generation_id,
                member_id=self.member_id,
                protocol_type="consumer",
                protocol_name="sim",
                assignments=assignments,
            ),
            _SYNC,
            timeout_s=8.0,
        )
        if answer.error_code:
            self.refused(answer.error_code)
            return
        self.generation = joined.generation_id
        self.owned = _assigned(answer.assignment)
        self._claim()

    def _share_out(self, members: list[str]) -> dict[str, list[TopicPartition]]:
        shares: dict[str, list[TopicPartition]] = {member_id: [] for member_id in sorted(members)}
        for index in range(self._count):
            shares[sorted(members)[index % len(members)]].append(TopicPartition(self.topic, index))
        return shares

    def _claim(self) -> None:
        for tp in self.owned:
            owner = self.history.owned.setdefault((self.group, self.generation, tp), self.member_id)
            if owner != self.member_id:
                self.history.anomalies.append(
                    f"{tp} is owned by {owner} and by {self.member_id} ({self.client.name}) "
                    f"in generation {self.generation} of {self.group}"
                )

    async def committed(self, tp: TopicPartition) -> int | None:
        """Return the group's committed offset, or None without a response."""
        request = messages.OffsetFetchRequest
        topic = request.OffsetFetchRequestTopics(name=tp.topic, partition_indexes=[tp.partition])
        group = request.OffsetFetchRequestGroup(group_id=self.group, topics=[topic])
        seen = Commit(self.group, tp, -1, began=self.client.loop.time())
        answer = (await self.ask(request(groups=[group], require_stable=True), _FETCH_OFFSETS)).groups[0]
        found = answer.topics[0].partitions[0] if answer.topics else None
        code = answer.error_code or (found.error_code if found is not None else 0)
        if code or found is None:
            if code in _WRONG_COORDINATOR:
                self.client.forget_coordinator(_GROUP, self.group)
            return None
        seen.offset, seen.ended, seen.outcome = found.committed_offset, self.client.loop.time(), Outcome.OK
        self.history.seen_offsets.append(seen)
        return max(int(found.committed_offset), 0)


class ClassicMember:
    """Reads its partitions from the committed offsets, and commits its positions."""

    def __init__(
        self,
        client: WireClient,
        history: History,
        group: GroupId,
        partitions: tuple[TopicPartition, ...],
        pause_s: float,
    ) -> None:
        self.client = client
        self.history = history
        self.pause_s = pause_s
        self._membership = Membership(client, history, group, partitions[0].topic, len(partitions))
        self._reader = Reader(client, History(), [], pause_s, committed_only=True)
        self._generation = -1

    async def run(self) -> None:
        member = self._membership
        while True:
            try:
                await member.keep_up()
                if member.generation != self._generation:
                    # Eager: the member gave up all partitions in between.
                    self._generation = member.generation
                    self._reader.positions.clear()
                for tp in member.owned:
                    await self._work(tp)
            except (NotSent, Unanswered):
                self._reader.positions.clear()
            await asyncio.sleep(0.1 + self.client.random.random() * self.pause_s)

    async def _work(self, tp: TopicPartition) -> None:
        if tp not in self._reader.positions:
            found = await self._membership.committed(tp)
            if found is None:
                return
            self._reader.positions[tp] = found
        before = self._reader.positions[tp]
        if await self._reader.poll(tp) and self._reader.positions[tp] > before:
            await self._commit(tp, self._reader.positions[tp])

    async def _commit(self, tp: TopicPartition, offset: int) -> None:
        member, request = self._membership, messages.OffsetCommitRequest
        partition = request.OffsetCommitRequestPartition(
            partition_index=tp.partition, committed_offset=offset
        )
        commit = Commit(member.group, tp, offset, began=self.client.loop.time())
        self.history.commits.append(commit)
        answer = await member.ask(
            request(
                group_id=member.group,
                generation_id_or_member_epoch=member.generation,
                member_id=member.member_id,
                topics=[request.OffsetCommitRequestTopic(name=tp.topic, partitions=[partition])],
            ),
            _COMMIT,
        )
        code = answer.topics[0].partitions[0].error_code
        commit.ended = self.client.loop.time()
        if code == ErrorCode.NONE:
            commit.outcome = Outcome.OK
            return
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            commit.outcome = Outcome.FAILED
        self._reader.positions.pop(tp, None)
        member.refused(code)


def _embedded(message: WireMessage) -> bytes:
    return struct.pack(">h", _EMBEDDED) + encode(message, _EMBEDDED)


def _assignment(partitions: list[TopicPartition]) -> bytes:
    assignment = messages.ConsumerProtocolAssignment
    by_topic: dict[TopicName, list[int]] = {}
    for tp in partitions:
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    topics = [assignment.TopicPartition(topic=topic, partitions=found) for topic, found in by_topic.items()]
    return _embedded(assignment(assigned_partitions=topics))


def _assigned(data: Buffer) -> tuple[TopicPartition, ...]:
    if not data:
        return ()
    message, _ = decode_prefix(messages.ConsumerProtocolAssignment, _EMBEDDED, data, 2)
    return tuple(
        TopicPartition(topic.topic, index)
        for topic in message.assigned_partitions
        for index in topic.partitions
    )
