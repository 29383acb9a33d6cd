"""Simulated members of a consumer group: they read their partitions and commit their positions."""

from __future__ import annotations

import asyncio
from typing import Final

from ottla.errors import ErrorCode
from ottla.ids import GroupId, TopicName
from ottla.log.types import TopicPartition
from ottla.testing.checks.history import Outcome
from ottla.testing.sim.history import Commit, History
from ottla.testing.sim.readers import Reader
from ottla.testing.sim.wire_client import NotSent, Resp, Unanswered, WireClient
from ottla.wire import messages
from ottla.wire.classes import WireRequest
from ottla.wire.uuid import uuid_to_str

_HEARTBEAT: Final = 1
_COMMIT: Final = 9
_FETCH_OFFSETS: Final = 9
_GROUP: Final = 0
"""The coordinator type of groups."""


class Member:
    """A member of the consumer protocol: heartbeat, poll, commit, one after the other."""

    def __init__(
        self,
        client: WireClient,
        history: History,
        group: GroupId,
        topic: TopicName,
        number: int,
        pause_s: float,
    ) -> None:
        self.client = client
        self.history = history
        self.group = group
        self.topic = topic
        self.pause_s = pause_s
        self._member_id = uuid_to_str(client.random.randbytes(16))
        self._epoch = 0
        self._changed = True
        """Whether the coordinator does not know the owned partitions yet."""
        self._owned: dict[TopicPartition, None] = {}
        reader = f"{client.name}.{number}"
        self._reader = Reader(client, History(), [], pause_s, committed_only=True, name=reader)

    async def run(self) -> None:
        while True:
            try:
                await self._heartbeat()
                for tp in list(self._owned):
                    await self._work(tp)
            except (NotSent, Unanswered):
                self.client.forget_coordinator(_GROUP, self.group)
            await asyncio.sleep(0.1 + self.client.random.random() * self.pause_s)

    async def _ask(self, request: WireRequest[Resp], version: int) -> Resp:
        return await self.client.ask(await self.client.coordinator(_GROUP, self.group), request, version)

    async def _heartbeat(self) -> None:
        request = messages.ConsumerGroupHeartbeatRequest
        owned = None
        if self._changed or self._epoch == 0:
            topic_id = await self.client.topic_id(self.topic)
            indexes = [tp.partition for tp in self._owned]
            owned = [request.TopicPartitions(topic_id=topic_id, partitions=indexes)] if indexes else []
        joining = self._epoch == 0
        answer = await self._ask(
            request(
                group_id=self.group,
                member_id=self._member_id,
                member_epoch=self._epoch,
                rebalance_timeout_ms=5000 if joining else -1,
                subscribed_topic_names=[self.topic] if joining else None,
                topic_partitions=owned,
            ),
            _HEARTBEAT,
        )
        code = ErrorCode.of(answer.error_code)
        if code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self._epoch, self._owned = 0, {}
        elif code is ErrorCode.NONE:
            self._changed = False
            self._epoch = answer.member_epoch
            if answer.assignment is not None:
                await self._assigned(
                    [
                        TopicPartition(self.topic, i)
                        for t in answer.assignment.topic_partitions
                        for i in t.partitions
                    ]
                )
            self._claim()
        else:
            self.client.forget_coordinator(_GROUP, self.group)

    async def _assigned(self, partitions: list[TopicPartition]) -> None:
        self._changed = True
        self._owned = {tp: None for tp in self._owned if tp in partitions}
        for tp in partitions:
            if tp not in self._owned:
                self._reader.positions.pop(tp, None)
                self._owned[tp] = None

    def _claim(self) -> None:
        for tp in self._owned:
            owner = self.history.owned.setdefault((self.group, self._epoch, tp), self._member_id)
            if owner != self._member_id:
                self.history.anomalies.append(
                    f"{tp} is owned by {owner} and by {self._member_id} ({self.client.name}) "
                    f"in epoch {self._epoch} of {self.group}"
                )

    async def _work(self, tp: TopicPartition) -> None:
        if tp not in self._reader.positions:
            found = await self._committed(tp)
            if found is None:
                return
            self._reader.positions[tp] = max(found, 0)
        before = self._reader.positions[tp]
        if await self._reader.poll(tp) and self._reader.positions[tp] > before:
            await self._commit(tp, self._reader.positions[tp])

    async def _committed(self, tp: TopicPartition) -> int | None:
        """Return the group's committed offset, or None without a response."""
        request = messages.OffsetFetchRequest
        topic = request.OffsetFetchRequestTopics(name=tp.topic, partition_indexes=[tp.partition])
        group = request.OffsetFetchRequestGroup(
            group_id=self.group, member_id=self._member_id, member_epoch=self._epoch, topics=[topic]
        )
        seen = Commit(self.group, tp, -1, began=self.client.loop.time())
        answer = (await self._ask(request(groups=[group], require_stable=True), _FETCH_OFFSETS)).groups[0]
        if answer.error_code:
            self._refused(answer.error_code)
            return None
        found = answer.topics[0].partitions[0]
        if found.error_code:
            self._refused(found.error_code)
            return None
        seen.offset, seen.ended, seen.outcome = found.committed_offset, self.client.loop.time(), Outcome.OK
        self.history.seen_offsets.append(seen)
        return int(found.committed_offset)

    async def _commit(self, tp: TopicPartition, offset: int) -> None:
        request = messages.OffsetCommitRequest
        partition = request.OffsetCommitRequestPartition(
            partition_index=tp.partition, committed_offset=offset
        )
        topic = request.OffsetCommitRequestTopic(name=tp.topic, partitions=[partition])
        commit = Commit(self.group, tp, offset, began=self.client.loop.time())
        self.history.commits.append(commit)
        answer = await self._ask(
            request(
                group_id=self.group,
                generation_id_or_member_epoch=self._epoch,
                member_id=self._member_id,
                topics=[topic],
            ),
            _COMMIT,
        )
        code = answer.topics[0].partitions[0].error_code
        commit.ended = self.client.loop.time()
        if code == ErrorCode.NONE:
            commit.outcome = Outcome.OK
            return
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.FENCED_MEMBER_EPOCH):
            commit.outcome = Outcome.FAILED
        self._reader.positions.pop(tp, None)
        self._refused(code)

    def _refused(self, code: int) -> None:
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            self._epoch, self._owned = 0, {}
        elif code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self.client.forget_coordinator(_GROUP, self.group)
