"""Partitions of transactions that another broker coordinates: asked about by AddPartitionsToTxn, many in one request.

Used before transactional records are appended. Whether a question is asked again is for who asks to decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ottla.clock import Clock
from ottla.coordinator.outbox import Outbox
from ottla.errors import ErrorCode
from ottla.log.types import TopicPartition
from ottla.peers import BrokerPeers, Message, PeerFailure
from ottla.wire.messages import AddPartitionsToTxnRequest

_TOLD_AS: Final = {
    # It is this broker that may not ask, which is nothing that a producer could know what to do about.
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ErrorCode.INVALID_TXN_STATE,
}


@dataclass(frozen=True, slots=True, eq=False)
class VerificationRequest:
    """Add partitions to a transaction, or (`verify_only`) ask whether they are part of it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    verify_only: bool
    done: Callable[[Mapping[TopicPartition, ErrorCode]], None]
    """Told the code of each partition."""

    def goes_with(self, other: VerificationRequest) -> bool:
        """Whether both can be asked as one transaction of a request."""
        return (self.producer_id, self.producer_epoch, self.verify_only) == (
            other.producer_id,
            other.producer_epoch,
            other.verify_only,
        )

    def answer(self, code: ErrorCode) -> None:
        self.done(dict.fromkeys(self.partitions, code))


_Batch = dict[str, list[VerificationRequest]]
"""By transactional id: a request names each once."""


class AddPartitionsToTxnManager:
    """The way to the transaction coordinators that are other brokers."""

    __slots__ = ("_brokers", "_outbox", "_timeout_s")

    def __init__(self, clock: Clock, brokers: BrokerPeers, timeout_s: float) -> None:
        self._brokers = brokers
        self._outbox: Outbox[int, VerificationRequest] = Outbox(clock, self._send)
        self._timeout_s = timeout_s

    def ask(self, broker: int, question: VerificationRequest) -> None:
        """Ask the broker that coordinates the transaction. NETWORK_EXCEPTION when it does not answer."""
        self._outbox.add(broker, question)

    def close(self) -> None:
        self._brokers.close()

    def _send(self, broker: int, questions: list[VerificationRequest]) -> None:
        peer = self._brokers.to(broker)
        for batch in _batches(questions):
            if peer is None:
                _answer_all(batch, ErrorCode.NETWORK_EXCEPTION)
            else:
                peer.send(
                    _request(batch),
                    lambda response, batch=batch: _answered(batch, response),  # type: ignore[misc]
                    lambda failure, batch=batch: _failed(batch, failure),  # type: ignore[misc]
                    timeout_s=self._timeout_s,
                )


def _batches(questions: Iterable[VerificationRequest]) -> list[_Batch]:
    batches: list[_Batch] = []
    for question in questions:
        for batch in batches:
            same = batch.setdefault(question.transactional_id, [])
            if not same or same[0].goes_with(question):
                same.append(question)
                break
        else:
            batches.append({question.transactional_id: [question]})
    return batches


def _request(batch: _Batch) -> Message:
    request = AddPartitionsToTxnRequest
    transactions = []
    for transactional_id, questions in batch.items():
        by_topic: dict[str, list[int]] = {}
        for tp in dict.fromkeys(tp for question in questions for tp in question.partitions):
            by_topic.setdefault(tp.topic, []).append(tp.partition)
        transactions.append(
            request.AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=questions[0].producer_id,
                producer_epoch=questions[0].producer_epoch,
                verify_only=questions[0].verify_only,
                topics=[
                    request.AddPartitionsToTxnTopic(name=topic, partitions=partitions)
                    for topic, partitions in by_topic.items()
                ],
            )
        )
    return request(transactions=transactions)


def _answered(batch: _Batch, response: Message) -> None:
    code = ErrorCode.of(response.error_code)
    if code is not ErrorCode.NONE:
        _answer_all(batch, _TOLD_AS.get(code, code))
        return
    codes = {
        (result.transactional_id, topic.name, partition.partition_index): partition.partition_error_code
        for result in response.results_by_transaction
        for topic in result.topic_results
        for partition in topic.results_by_partition
    }
    for transactional_id, questions in batch.items():
        for question in questions:
            question.done(
                {
                    tp: ErrorCode.of(codes.get((transactional_id, *tp), ErrorCode.UNKNOWN_SERVER_ERROR))
                    for tp in question.partitions
                }
            )


def _failed(batch: _Batch, failure: PeerFailure) -> None:
    for questions in batch.values():
        for question in questions:
            if failure is not PeerFailure.UNSUPPORTED_VERSION:
                question.answer(ErrorCode.NETWORK_EXCEPTION)
            else:
                # A coordinator that cannot be asked belongs to a time when nobody asked.
                question.answer(ErrorCode.NONE if question.verify_only else ErrorCode.UNSUPPORTED_VERSION)


def _answer_all(batch: _Batch, code: ErrorCode) -> None:
    for questions in batch.values():
        for question in questions:
            question.answer(code)
