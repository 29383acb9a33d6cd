"""The driver's side of a transaction that many tasks write in: id and epoch, offsets, the batch's mark, the end.

States: `begin` fences earlier owners of the id and ends their open transactions. Then, for each batch, tasks write with
the `grant`, and `commit` or `abort` ends the transaction and moves to the next epoch. A fenced driver stays fenced.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ottla.admin.cluster import Cluster
from ottla.admin.connection import ConnectionFailed
from ottla.admin.errors import raise_for
from ottla.admin.settings import ClusterSettings
from ottla.errors import ApiException, ErrorCode
from ottla.ids import GroupId, ProducerId, TopicName, TransactionalId
from ottla.pipeline.batch_marks import BATCHES_TOPIC, encode_mark, last_mark, make_batches_topic
from ottla.pipeline.failures import PipelineError, SinkFenced
from ottla.pipeline.writer import BatchWriter, Grant, Place
from ottla.wire.enums import CoordinatorType
from ottla.wire.messages import (
    AddOffsetsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)

if TYPE_CHECKING:
    from ottla.wire.messages import EndTxnResponse, InitProducerIdResponse

Offsets = Mapping[str, Mapping[int, int]]
"""The next offset to read, by topic and partition."""

_IMPLICIT_LEVEL: Final = 2
_ADDS_OFFSETS: Final = 4
_FENCED: Final = frozenset(
    {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)


class CommitUnknown(Exception):
    """It is unknown whether a commit took place: begin again, and look at the last mark."""


class TransactionDriver:
    """Holds a transactional id. Not for several threads at once."""

    def __init__(
        self,
        settings: ClusterSettings,
        transactional_id: str,
        *,
        timeout_ms: int = 900_000,
        retry_s: float = 120.0,
        compression: int = 0,
        marks_topic: str = BATCHES_TOPIC,
    ) -> None:
        self.transactional_id = TransactionalId(transactional_id)
        self._marks_topic = TopicName(marks_topic)
        self._settings = settings
        self._timeout_ms = timeout_ms
        self._retry_s = retry_s
        self._compression = compression
        self._producer_id = ProducerId(-1)
        self._epoch = -1
        self._implicit = True
        self.brokers = Cluster(settings)

    @property
    def identity(self) -> tuple[int, int]:
        """The current producer id and epoch."""
        return self._producer_id, self._epoch

    def grant(self, max_batch_bytes: int = 1_000_000) -> Grant:
        """What tasks need to write in the current transaction."""
        return Grant(
            settings=self._settings,
            transactional_id=self.transactional_id,
            producer_id=self._producer_id,
            epoch=self._epoch,
            implicit=self._implicit,
            compression=self._compression,
            max_batch_bytes=max_batch_bytes,
            retry_s=self._retry_s,
        )

    def begin(self, *, marks: bool = True) -> None:
        """Takes the id over: older drivers and their tasks are fenced, and their open transactions end.

        Without `marks` the caller records its progress itself, within the transaction.
        """
        if marks:
            make_batches_topic(self.brokers, self._retry_s, self._marks_topic)
        self._renew()
        features = self.brokers.any().features.finalized_features
        levels = {one.name: one.max_version_level for one in features}
        self._implicit = levels.get("transaction.version", 0) >= _IMPLICIT_LEVEL

    def _renew(self) -> None:
        message = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=self._timeout_ms
        )

        def ask() -> InitProducerIdResponse:
            response = self.brokers.ask_on(
                self.brokers.coordinator_connection(self.transactional_id, CoordinatorType.TRANSACTION),
                message,
                5,
            )
            raise_for(response.error_code, None, f"transactional id {self.transactional_id}")
            return response

        try:
            response = self.brokers.retrying(ask, self._retry_s)
        except ApiException as error:
            if error.code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
                raise PipelineError(
                    f"the broker does not allow a transaction timeout of {self._timeout_ms} ms: "
                    "raise its transaction.max.timeout.ms, or give the sink a smaller transaction_timeout_ms"
                ) from None
            raise
        self._producer_id, self._epoch = response.producer_id, response.producer_epoch

    def last_batch(self, lineage: str) -> int:
        """The last committed batch id of a lineage; -1 for none. Valid only directly after `begin`."""
        mark = self.brokers.retrying(
            lambda: last_mark(self.brokers, self.transactional_id, self._marks_topic), self._retry_s
        )
        return mark.batch_id if mark is not None and mark.lineage == lineage else -1

    def mark(self, batch_id: int, lineage: str) -> None:
        """Writes the mark of a batch within the transaction."""
        writer = BatchWriter(self.brokers, self.grant())
        with self._fencing():
            writer.add(Place(self._marks_topic, 0), [encode_mark(self.transactional_id, batch_id, lineage)])
            writer.flush()

    def commit_offsets(self, group: str, offsets: Offsets, metadata: str) -> list[Place]:
        """Commits a consumer group's offsets within the transaction; returns the partitions that this cluster does not
        have."""
        request = TxnOffsetCommitRequest
        message = request(
            transactional_id=self.transactional_id,
            group_id=GroupId(group),
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            generation_id=-1,
            member_id="",
            topics=[
                request.TxnOffsetCommitRequestTopic(
                    name=TopicName(topic),
                    partitions=[
                        request.TxnOffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=offset, committed_metadata=metadata
                        )
                        for partition, offset in partitions.items()
                    ],
                )
                for topic, partitions in offsets.items()
            ],
        )

        def ask() -> list[Place]:
            unknown: list[Place] = []
            response = self.brokers.ask_on(
                self.brokers.coordinator_connection(group, CoordinatorType.GROUP),
                message,
                5 if self._implicit else _ADDS_OFFSETS,
            )
            for topic in response.topics:
                for result in topic.partitions:
                    place = Place(topic.name, result.partition_index)
                    if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                        unknown.append(place)
                    else:
                        raise_for(result.error_code, None, f"the offset of {place.topic}-{place.partition}")
            return unknown

        with self._fencing():
            if not self._implicit:
                self.brokers.retrying(lambda: self._add_group(group), self._retry_s)
            return self.brokers.retrying(ask, self._retry_s)

    def _add_group(self, group: str) -> None:
        message = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            group_id=GroupId(group),
        )
        coordinator = self.brokers.coordinator_connection(self.transactional_id, CoordinatorType.TRANSACTION)
        raise_for(
            self.brokers.ask_on(coordinator, message, 4).error_code, None, f"group {group} in the transaction"
        )

    def commit(self) -> None:
        """Commits the transaction; CommitUnknown if the response was lost."""
        self._end(committed=True)

    def abort(self) -> None:
        """Aborts the transaction; brokers refuse later writes of its tasks."""
        try:
            self._end(committed=False)
        except CommitUnknown:
            self._renew()

    def _end(self, *, committed: bool) -> None:
        message = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=committed,
        )
        lost = False

        def ask() -> EndTxnResponse:
            nonlocal lost
            try:
                coordinator = self.brokers.coordinator_connection(
                    self.transactional_id, CoordinatorType.TRANSACTION
                )
                response = self.brokers.ask_on(coordinator, message, 5 if self._implicit else 4)
            except ConnectionFailed:
                # The broker recognizes the same request with the same epoch.
                lost = True
                raise
            raise_for(response.error_code, None, f"the end of transaction {self.transactional_id}")
            return response

        try:
            response = self.brokers.retrying(ask, self._retry_s)
        except ApiException as error:
            if lost:
                raise CommitUnknown(str(error)) from error
            if error.code == ErrorCode.INVALID_TXN_STATE and not committed:
                # Nothing was written, so there is nothing to abort; a new epoch fences late writers.
                self._renew()
                return
            if error.code in _FENCED:
                raise self._fenced(error) from error
            raise
        if self._implicit and response.producer_id >= 0:
            self._producer_id, self._epoch = response.producer_id, response.producer_epoch
        else:
            self._renew()

    def _fencing(self) -> _Fencing:
        return _Fencing(self)

    def _fenced(self, error: ApiException) -> SinkFenced:
        return SinkFenced(
            f"transactional id {self.transactional_id} was taken over by another driver, or this transaction was "
            f"open for longer than {self._timeout_ms} ms ({error.code.name}): this driver stops"
        )

    def close(self) -> None:
        """Closes all connections; an open transaction is left to its timeout or to the next `begin`."""
        self.brokers.close()


class _Fencing:
    """Turns a broker's error for an old epoch into the exception that ends the driver."""

    def __init__(self, driver: TransactionDriver) -> None:
        self._driver = driver

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, ApiException) and error.code in _FENCED:
            raise self._driver._fenced(error) from error
