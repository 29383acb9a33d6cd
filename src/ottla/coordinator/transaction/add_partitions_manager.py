"""Kafka's AddPartitionsToTxnManager: verifies or adds partitions of transactions that another broker coordinates.

It is used before transactional records are appended. It puts many verifications into one AddPartitionsToTxn request,
and leaves retries to its callers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from ottla.clock import Clock
from ottla.coordinator.outbox import Outbox
from ottla.errors import ErrorCode
from ottla.ids import BrokerId, ProducerId, TopicName, TransactionalId
from ottla.log.types import TopicPartition
from ottla.peers import BrokerPeers, PeerFailure
from ottla.wire.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

_PRODUCER_CODES: Final = {
    # This broker may not send the request: an error that a producer could not handle.
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ErrorCode.INVALID_TXN_STATE,
}


@dataclass(frozen=True, slots=True, eq=False)
class VerificationRequest:
    """Partitions to add to a transaction, or (`verify_only`) to verify as part of it."""

    transactional_id: TransactionalId
    producer_id: ProducerId
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    verify_only: bool
    done: Callable[[Mapping[TopicPartition, ErrorCode]], None]
    """Called with the code of each partition."""

    def goes_with(self, other: VerificationRequest) -> bool:
        """Whether both fit into one transaction of a request."""
        return (self.producer_id, self.producer_epoch, self.verify_only) == (
            other.producer_id,
            other.producer_epoch,
            other.verify_only,
        )

    def complete(self, code: ErrorCode) -> None:
        self.done(dict.fromkeys(self.partitions, code))


_Batch = dict[TransactionalId, list[VerificationRequest]]
"""By transactional id: a request names each id once."""


class AddPartitionsToTxnManager:
    """Sends verifications to the transaction coordinators on other brokers."""

    __slots__ = ("_brokers", "_outbox", "_timeout_s")

    def __init__(self, clock: Clock, brokers: BrokerPeers, timeout_s: float) -> None:
        self._brokers = brokers
        self._outbox: Outbox[BrokerId, VerificationRequest] = Outbox(clock, self._send)
        self._timeout_s = timeout_s

    def send(self, broker: BrokerId, verification: VerificationRequest) -> None:
        """Send to the broker that coordinates the transaction. NETWORK_EXCEPTION when it does not respond."""
        self._outbox.add(broker, verification)

    def close(self) -> None:
        self._brokers.close()

    def _send(self, broker: BrokerId, verifications: list[VerificationRequest]) -> None:
        peer = self._brokers.to(broker)
        for batch in _batches(verifications):
            if peer is None:
                _complete_all(batch, ErrorCode.NETWORK_EXCEPTION)
            else:
                peer.send(
                    _request(batch),
                    partial(_responded, batch),
                    partial(_failed, batch),
                    timeout_s=self._timeout_s,
                )


def _batches(verifications: Iterable[VerificationRequest]) -> list[_Batch]:
    batches: list[_Batch] = []
    for verification in verifications:
        for batch in batches:
            same = batch.setdefault(verification.transactional_id, [])
            if not same or same[0].goes_with(verification):
                same.append(verification)
                break
        else:
            batches.append({verification.transactional_id: [verification]})
    return batches


def _request(batch: _Batch) -> AddPartitionsToTxnRequest:
    request = AddPartitionsToTxnRequest
    transactions = []
    for transactional_id, verifications in batch.items():
        by_topic: dict[TopicName, list[int]] = {}
        for tp in dict.fromkeys(tp for verification in verifications for tp in verification.partitions):
            by_topic.setdefault(tp.topic, []).append(tp.partition)
        transactions.append(
            request.AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=verifications[0].producer_id,
                producer_epoch=verifications[0].producer_epoch,
                verify_only=verifications[0].verify_only,
                topics=[
                    request.AddPartitionsToTxnTopic(name=topic, partitions=partitions)
                    for topic, partitions in by_topic.items()
                ],
            )
        )
    return request(transactions=transactions)


def _responded(batch: _Batch, response: AddPartitionsToTxnResponse) -> None:
    code = ErrorCode.of(response.error_code)
    if code is not ErrorCode.NONE:
        _complete_all(batch, _PRODUCER_CODES.get(code, code))
        return
    codes: dict[tuple[str, str, int], int] = {
        (result.transactional_id, topic.name, partition.partition_index): partition.partition_error_code
        for result in response.results_by_transaction
        for topic in result.topic_results
        for partition in topic.results_by_partition
    }
    for transactional_id, verifications in batch.items():
        for verification in verifications:
            verification.done(
                {
                    tp: ErrorCode.of(codes.get((transactional_id, *tp), ErrorCode.UNKNOWN_SERVER_ERROR))
                    for tp in verification.partitions
                }
            )


def _failed(batch: _Batch, failure: PeerFailure) -> None:
    for verifications in batch.values():
        for verification in verifications:
            if failure is not PeerFailure.UNSUPPORTED_VERSION:
                verification.complete(ErrorCode.NETWORK_EXCEPTION)
            else:
                # A coordinator without this request is from a Kafka version that does not verify transactions.
                verification.complete(
                    ErrorCode.NONE if verification.verify_only else ErrorCode.UNSUPPORTED_VERSION
                )


def _complete_all(batch: _Batch, code: ErrorCode) -> None:
    for verifications in batch.values():
        for verification in verifications:
            verification.complete(code)
