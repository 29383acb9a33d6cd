"""Simulated share consumers: they acquire records of a queue, and acknowledge most of them."""

from __future__ import annotations

import asyncio
from typing import Final

from ottla.errors import ErrorCode
from ottla.ids import GroupId
from ottla.log.types import TopicPartition
from ottla.testing.checks.history import Outcome
from ottla.testing.sim.history import Delivery, History
from ottla.testing.sim.network import Address
from ottla.testing.sim.wire_client import NotSent, Unanswered, WireClient
from ottla.wire import messages
from ottla.wire.uuid import uuid_to_str

_VERSION: Final = 1
_GROUP: Final = 0
_ACCEPT: Final = 1
_RELEASE: Final = 2
_GONE: Final = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)
_GROUP_RESOURCE: Final = 32


async def read_from_the_beginning(client: WireClient, group: GroupId) -> None:
    """Let a share group without offsets begin at the earliest offset."""
    request = messages.IncrementalAlterConfigsRequest
    config = request.AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")
    resource = request.AlterConfigsResource(
        resource_type=_GROUP_RESOURCE, resource_name=group, configs=[config]
    )
    while True:
        try:
            answer = await client.ask_any(request(resources=[resource]), 1)
        except (NotSent, Unanswered):
            answer = None
        if answer is not None and not answer.responses[0].error_code:
            return
        await asyncio.sleep(0.1)


class Sharer:
    """A member of a share group with one topic of one partition."""

    def __init__(
        self, client: WireClient, history: History, group: GroupId, tp: TopicPartition, pause_s: float
    ) -> None:
        self.client = client
        self.history = history
        self.group = group
        self.tp = tp
        self.pause_s = pause_s
        self._member_id = uuid_to_str(client.random.randbytes(16))
        self._epoch = 0
        self._session_epoch = 0
        self._session_at: Address | None = None
        """The broker that holds the session."""
        self._assigned = False
        self._answered = False
        """Whether the last heartbeat got a response. If not, the next one must repeat all fields."""

    async def run(self) -> None:
        while True:
            try:
                await self._heartbeat()
                if self._assigned and self._epoch > 0:
                    await self._work()
            except (NotSent, Unanswered):
                self.client.forget_coordinator(_GROUP, self.group)
                self.client.forget_leader(self.tp)
                self._session_epoch = 0
            await asyncio.sleep(0.1 + self.client.random.random() * self.pause_s)

    async def _heartbeat(self) -> None:
        says_all = self._epoch == 0 or not self._answered
        request = messages.ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self._member_id,
            member_epoch=self._epoch,
            subscribed_topic_names=[self.tp.topic] if says_all else None,
        )
        self._answered = False
        address = await self.client.coordinator(_GROUP, self.group)
        answer = await self.client.ask(address, request, _VERSION)
        self._answered = True
        code = ErrorCode.of(answer.error_code)
        if code in _GONE:
            self._epoch, self._assigned = 0, False
        elif code is ErrorCode.NONE:
            self._epoch = answer.member_epoch
            if answer.assignment is not None:
                self._assigned = bool(answer.assignment.topic_partitions)
        else:
            self.client.forget_coordinator(_GROUP, self.group)

    async def _work(self) -> None:
        address = await self.client.leader(self.tp)
        epoch = self.client.leader_epoch(self.tp)
        if address != self._session_at:
            self._session_at, self._session_epoch = address, 0
        topic_id = await self.client.topic_id(self.tp.topic)
        request = messages.ShareFetchRequest
        partition = request.FetchPartition(partition_index=self.tp.partition)
        began = self.client.loop.time()
        answer = await self.client.ask(
            address,
            request(
                group_id=self.group,
                member_id=self._member_id,
                share_session_epoch=self._session_epoch,
                max_wait_ms=100,
                min_bytes=1,
                max_bytes=1 << 20,
                max_records=5,
                batch_size=5,
                topics=[request.FetchTopic(topic_id=topic_id, partitions=[partition])],
            ),
            _VERSION,
        )
        if answer.error_code:
            self._restart_session()
            return
        self._session_epoch += 1
        taken: list[Delivery] = []
        for topic in answer.responses:
            for found in topic.partitions:
                if found.error_code:
                    self._restart_session()
                    return
                for acquired in found.acquired_records:
                    for offset in range(acquired.first_offset, acquired.last_offset + 1):
                        taken.append(Delivery(self.tp, offset, acquired.delivery_count, began, epoch))
        self.history.deliveries += taken
        if taken:
            await asyncio.sleep(self.client.random.random() * 0.1)
            await self._acknowledge(address, topic_id, taken)

    def _restart_session(self) -> None:
        self._session_epoch = 0
        self.client.forget_leader(self.tp)

    async def _acknowledge(self, address: Address, topic_id: bytes, taken: list[Delivery]) -> None:
        request = messages.ShareAcknowledgeRequest
        accepted = [d for d in taken if self.client.random.random() < 0.9]
        wanted = {id(delivery) for delivery in accepted}
        batches = [
            request.AcknowledgementBatch(
                first_offset=d.offset,
                last_offset=d.offset,
                acknowledge_types=[_ACCEPT if id(d) in wanted else _RELEASE],
            )
            for d in taken
        ]
        for delivery in accepted:
            delivery.accepted = Outcome.UNKNOWN
        partition = request.AcknowledgePartition(
            partition_index=self.tp.partition, acknowledgement_batches=batches
        )
        answer = await self.client.ask(
            address,
            request(
                group_id=self.group,
                member_id=self._member_id,
                share_session_epoch=self._session_epoch,
                topics=[request.AcknowledgeTopic(topic_id=topic_id, partitions=[partition])],
            ),
            _VERSION,
        )
        self._session_epoch += 1
        code = answer.error_code or next(
            (p.error_code for t in answer.responses for p in t.partitions if p.error_code), 0
        )
        for delivery in accepted:
            delivery.ended = self.client.loop.time()
            if not code:
                delivery.accepted = Outcome.OK
        if code:
            self._restart_session()
