"""The right to write for a lane: a transactional id whose producer id and epoch mark the lane's plain batches.

`own` takes the id over. `fence` also shuts earlier writers out of some partitions: it writes an empty abort marker with
a new epoch, after which brokers refuse batches of older epochs. No record is ever part of a transaction.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ottla.admin.cluster import Cluster
from ottla.admin.connection import Connection
from ottla.admin.errors import raise_for
from ottla.admin.partitions import by_topic
from ottla.errors import ApiException, ErrorCode
from ottla.ids import ProducerId, TransactionalId
from ottla.mirror.failures import LaneFenced
from ottla.pipeline.writer import Place
from ottla.wire.enums import CoordinatorType
from ottla.wire.messages import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest

_TIMEOUT_MS: Final = 60_000
_INIT_VERSION: Final = 5
_ADD_VERSION: Final = 3
_END_VERSION: Final = 4
"""Later versions add partitions by themselves and begin a new epoch at the end."""
FENCED: Final = frozenset(
    {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)
"""The errors of a writer whose id was taken over."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What brokers know a writer by."""

    producer_id: ProducerId
    epoch: int


class LaneOwner:
    """Holds the transactional id of a lane. Not for several threads at once."""

    def __init__(self, brokers: Cluster, transactional_id: str, *, retry_s: float = 120.0) -> None:
        self.transactional_id = TransactionalId(transactional_id)
        self._brokers = brokers
        self._retry_s = retry_s

    def own(self) -> Identity:
        """Takes the id over. Writers of earlier epochs are refused where this one has written."""
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=_TIMEOUT_MS
        )

        def ask() -> Identity:
            response = self._brokers.ask_on(self._coordinator(), request, _INIT_VERSION)
            raise_for(response.error_code, None, f"transactional id {self.transactional_id}")
            return Identity(response.producer_id, response.producer_epoch)

        return self._brokers.retrying(ask, self._retry_s)

    def fence(self, places: Iterable[Place]) -> Identity:
        """Takes the id over and shuts its earlier writers out of partitions, at the price of one offset in each."""
        wanted = by_topic(places)
        identity = self.own()
        if not wanted:
            return identity
        kind = AddPartitionsToTxnRequest
        add = kind(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.epoch,
            v3_and_below_topics=[
                kind.AddPartitionsToTxnTopic(name=topic, partitions=numbers)
                for topic, numbers in wanted.items()
            ],
        )
        end = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            committed=False,
        )

        def added() -> None:
            response = self._brokers.ask_on(self._coordinator(), add, _ADD_VERSION)
            for topic in response.results_by_topic_v3_and_below:
                for result in topic.results_by_partition:
                    place = f"{topic.name}-{result.partition_index}"
                    raise_for(result.partition_error_code, None, f"fencing {place}")

        def ended() -> None:
            response = self._brokers.ask_on(self._coordinator(), end, _END_VERSION)
            raise_for(response.error_code, None, f"fencing with {self.transactional_id}")

        try:
            self._brokers.retrying(added, self._retry_s)
            self._brokers.retrying(ended, self._retry_s)
        except ApiException as error:
            if error.code in FENCED:
                raise LaneFenced(self.transactional_id, error.code) from error
            raise
        # Markers are written after the response. The coordinator gives the next epoch only when all of them are.
        return self.own()

    def _coordinator(self) -> Connection:
        return self._brokers.coordinator_connection(self.transactional_id, CoordinatorType.TRANSACTION)
