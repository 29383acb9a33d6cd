"""Simulated producers: idempotent and transactional, one batch in flight, retried until its outcome is known."""

from __future__ import annotations

import asyncio
from typing import Final

from ottla.errors import ErrorCode
from ottla.ids import ProducerId, TransactionalId
from ottla.log.types import TopicPartition
from ottla.records.batch import build_batch
from ottla.records.record import Record
from ottla.testing.checks.history import Outcome
from ottla.testing.sim.history import History, Send, Transaction
from ottla.testing.sim.wire_client import NotSent, Unanswered, WireClient
from ottla.wire import messages

_PRODUCE: Final = 12
_INIT: Final = 5
_END: Final = 5
_DUPLICATE: Final = frozenset({ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
_GAP: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
_FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})


class Fenced(Exception):
    """A newer producer has fenced this one, or the transaction timed out."""


class Producer:
    """An idempotent producer. `run` sends until it is cancelled or its process dies."""

    def __init__(
        self, client: WireClient, history: History, partitions: list[TopicPartition], pause_s: float
    ) -> None:
        self.client = client
        self.pause_s = pause_s
        self.history = history
        self.partitions = partitions
        self._id = ProducerId(-1)
        self._epoch = -1
        self._sequences: dict[TopicPartition, int] = {}
        self._count = 0

    async def run(self) -> None:
        await self.begin()
        while True:
            tp = self.client.random.choice(self.partitions)
            try:
                await self.send(tp, self.client.random.randint(1, 4))
            except Fenced:
                await self.begin()
            await asyncio.sleep(self.client.random.random() * self.pause_s)

    async def begin(self, transactional_id: TransactionalId | None = None) -> None:
        """Get a producer id."""
        request = messages.InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=6_000
        )
        while True:
            try:
                if transactional_id is None:
                    answer = await self.client.ask_any(request, _INIT)
                else:
                    address = await self.client.coordinator(1, transactional_id)
                    answer = await self.client.ask(address, request, _INIT)
            except (NotSent, Unanswered):
                answer = None
            if answer is not None and not answer.error_code:
                self._id, self._epoch = answer.producer_id, answer.producer_epoch
                self._sequences.clear()
                return
            if transactional_id is not None:
                self.client.forget_coordinator(1, transactional_id)
            await self._pause()

    async def send(self, tp: TopicPartition, count: int, transaction: Transaction | None = None) -> Send:
        """Send one batch; returns when it is acknowledged."""
        values = tuple(b"%s:%d" % (self.client.name.encode(), self._count + i) for i in range(count))
        self._count += count
        return await self.send_values(tp, values, transaction)

    async def send_values(
        self, tp: TopicPartition, values: tuple[bytes, ...], transaction: Transaction | None = None
    ) -> Send:
        """Send the given values; each ends with the producer's name and an increasing number."""
        send = Send(self.client.name, tp, values, transaction)
        self.history.sends.append(send)
        if transaction is not None:
            transaction.sends.append(send)
        sequence = self._sequences.get(tp, 0)
        transactional_id = transaction.producer if transaction is not None else None
        request = self._request(tp, values, sequence, transactional_id)
        while True:
            found = await self._try(tp, request)
            if found is not None:
                code, base_offset = found
                if code is ErrorCode.NONE or code in _DUPLICATE:
                    break
                if code in _FENCED and transaction is not None:
                    raise Fenced
                if code in _GAP or code in _FENCED:
                    self.history.anomalies.append(
                        f"{send.producer} sent {values[0]!r} with sequence {sequence} to {tp}, all before it "
                        f"acknowledged, and got {code.name}"
                    )
                    raise Fenced
                self.client.forget_leader(tp)
            await self._pause()
        send.outcome, send.base_offset = Outcome.OK, base_offset
        self._sequences[tp] = sequence + len(values)
        return send

    def _request(
        self, tp: TopicPartition, values: tuple[bytes, ...], sequence: int, txn: TransactionalId | None
    ) -> messages.ProduceRequest:
        now_ms = 1_700_000_000_000 + int(self.client.loop.time() * 1000)
        batch = build_batch(
            [Record(i, now_ms, None, value) for i, value in enumerate(values)],
            producer_id=self._id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            is_transactional=txn is not None,
        )
        request = messages.ProduceRequest
        data = request.PartitionProduceData(index=tp.partition, records=batch)
        return request(
            transactional_id=txn,
            acks=-1,
            timeout_ms=3000,
            topic_data=[request.TopicProduceData(name=tp.topic, partition_data=[data])],
        )

    async def _try(
        self, tp: TopicPartition, request: messages.ProduceRequest
    ) -> tuple[ErrorCode, int] | None:
        try:
            address = await self.client.leader(tp)
            answer = await self.client.ask(address, request, _PRODUCE)
        except (NotSent, Unanswered):
            self.client.forget_leader(tp)
            return None
        found = answer.responses[0].partition_responses[0]
        return ErrorCode.of(found.error_code), found.base_offset

    async def _pause(self) -> None:
        await asyncio.sleep(0.02 + self.client.random.random() * 0.1)


class TransactionalProducer(Producer):
    """Transactions of a few batches over several partitions; some are aborted on purpose."""

    def __init__(
        self,
        client: WireClient,
        history: History,
        partitions: list[TopicPartition],
        pause_s: float,
        transactional_id: TransactionalId,
    ) -> None:
        super().__init__(client, history, partitions, pause_s)
        self.transactional_id = transactional_id
        self._ending = False
        """Whether a commit was requested."""

    async def run(self) -> None:
        await self.begin(self.transactional_id)
        number = 0
        while True:
            number += 1
            transaction = Transaction(self.transactional_id, number, began=self.client.loop.time())
            self.history.transactions.append(transaction)
            try:
                await self._transact(transaction)
            except Fenced:
                await self.begin(self.transactional_id)
                if transaction.outcome is Outcome.UNKNOWN and not self._ending:
                    # Never asked to commit, and the new epoch has aborted it.
                    transaction.outcome = Outcome.FAILED
            await asyncio.sleep(self.client.random.random() * self.pause_s)

    async def _transact(self, transaction: Transaction) -> None:
        self._ending = False
        count = self.client.random.randint(1, min(3, len(self.partitions)))
        for tp in self.client.random.sample(self.partitions, count):
            await self.send(tp, self.client.random.randint(1, 3), transaction)
        commit = self.client.random.random() < 0.75
        self._ending = commit
        await self._end(transaction, commit=commit)

    async def _end(self, transaction: Transaction, *, commit: bool) -> None:
        if commit:
            transaction.ending = self.client.loop.time()
        request = messages.EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._id,
            producer_epoch=self._epoch,
            committed=commit,
        )
        while True:
            try:
                address = await self.client.coordinator(1, self.transactional_id)
                answer = await self.client.ask(address, request, _END)
            except (NotSent, Unanswered):
                answer = None
            code = ErrorCode.of(answer.error_code) if answer is not None else None
            if answer is not None and code is ErrorCode.NONE:
                transaction.outcome = Outcome.OK if commit else Outcome.FAILED
                transaction.ended = self.client.loop.time()
                self._id, self._epoch = answer.producer_id, answer.producer_epoch
                self._sequences.clear()
                return
            if code in _FENCED or code is ErrorCode.INVALID_TXN_STATE:
                raise Fenced
            self.client.forget_coordinator(1, self.transactional_id)
            await self._pause()
