"""Simulated copiers: members of a classic group that read, write and commit their offsets in one transaction.

Each has its own transactional id, and sends the group's generation with its offsets: a member that lost its partitions
cannot commit what another one copies.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ottla.errors import ErrorCode
from ottla.ids import GroupId, TransactionalId
from ottla.log.types import TopicPartition
from ottla.testing.checks.history import Outcome
from ottla.testing.sim.classic import Membership
from ottla.testing.sim.history import COPY_OF, Commit, History, Transaction
from ottla.testing.sim.producers import Fenced, TransactionalProducer
from ottla.testing.sim.readers import Reader
from ottla.testing.sim.wire_client import NotSent, Unanswered, WireClient
from ottla.wire import messages

_COMMIT: Final = 5
_MOST: Final = 5
"""Records in one transaction."""
_FENCED: Final = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
)
_NOT_MINE: Final = (
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
)


class Copier(TransactionalProducer):
    """Copies from the partitions that its group assigns to one other partition."""

    def __init__(
        self,
        client: WireClient,
        history: History,
        group: GroupId,
        source: tuple[TopicPartition, ...],
        target: TopicPartition,
        pause_s: float,
        transactional_id: TransactionalId,
    ) -> None:
        super().__init__(client, history, [target], pause_s, transactional_id)
        self._membership = Membership(client, history, group, source[0].topic, len(source))
        self._target = target
        self._transactions = 0

    async def run(self) -> None:
        member = self._membership
        await self.begin(self.transactional_id)
        while True:
            try:
                await member.keep_up()
                for tp in member.owned:
                    # Without a generation the coordinator accepts offsets from any client, as Kafka's does.
                    if tp in member.owned:
                        await self._copy(tp)
            except (NotSent, Unanswered):
                pass
            await asyncio.sleep(0.1 + self.client.random.random() * self.pause_s)

    async def _copy(self, tp: TopicPartition) -> None:
        """Copy in one transaction, from the group's stable committed offset."""
        began = self.client.loop.time()
        position = await self._membership.committed(tp)
        if position is None:
            return
        seen = History()
        reader = Reader(self.client, seen, [], self.pause_s, committed_only=True)
        reader.positions[tp] = position
        if not await reader.poll(tp) or reader.positions[tp] == position:
            return
        records = seen.polls[-1].records
        end = reader.positions[tp] if len(records) <= _MOST else records[_MOST - 1][0] + 1
        self._transactions += 1
        transaction = Transaction(
            self.transactional_id,
            self._transactions,
            began=began,
            group=self._membership.group,
            taken={tp: (position, end)},
            reads=tuple(value for _, value in records[:_MOST]),
        )
        self.history.transactions.append(transaction)
        commit = Commit(self._membership.group, tp, end, began=self.client.loop.time())
        self.history.commits.append(commit)
        try:
            await self._in_transaction(transaction, [value for _, value in records[:_MOST]], commit)
        except Fenced:
            await self.begin(self.transactional_id)
            if transaction.outcome is Outcome.UNKNOWN and not self._ending:
                transaction.outcome = Outcome.FAILED
        finally:
            commit.outcome, commit.ended = transaction.outcome, self.client.loop.time()

    async def _in_transaction(self, transaction: Transaction, values: list[bytes], commit: Commit) -> None:
        self._ending = False
        if values:
            await self.send_values(self._target, self._copies(values), transaction)
            await self._take_time()
        wanted = await self._send_offset(commit) and self.client.random.random() < 0.85
        await self._take_time()
        self._ending = wanted
        await self._end(transaction, commit=wanted)

    async def _take_time(self) -> None:
        """Wait a random time, sometimes long enough for a fault in between."""
        await asyncio.sleep(self.client.random.random() ** 3 * 0.3)

    def _copies(self, values: list[bytes]) -> tuple[bytes, ...]:
        copies = tuple(
            b"%s%s%s:%d" % (value, COPY_OF, self.client.name.encode(), self._count + i)
            for i, value in enumerate(values)
        )
        self._count += len(values)
        return copies

    async def _send_offset(self, commit: Commit) -> bool:
        """Commit the offset in the transaction. Returns False if this member was removed and must abort."""
        member, request = self._membership, messages.TxnOffsetCommitRequest
        partition = request.TxnOffsetCommitRequestPartition(
            partition_index=commit.partition.partition, committed_offset=commit.offset
        )
        topic = request.TxnOffsetCommitRequestTopic(name=commit.partition.topic, partitions=[partition])
        asked = request(
            transactional_id=self.transactional_id,
            group_id=member.group,
            producer_id=self._id,
            producer_epoch=self._epoch,
            generation_id=member.generation,
            member_id=member.member_id,
            topics=[topic],
        )
        while True:
            try:
                answer = await member.ask(asked, _COMMIT)
            except (NotSent, Unanswered):
                await self._pause()
                continue
            code = ErrorCode.of(answer.topics[0].partitions[0].error_code)
            if code is ErrorCode.NONE:
                return True
            if code in _FENCED:
                raise Fenced
            if code in _NOT_MINE:
                member.refused(code)
                return False
            self.client.forget_coordinator(0, member.group)
            await self._pause()
