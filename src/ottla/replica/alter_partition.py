"""Requests to the controller to change in-sync sets (AlterPartition): batched, one in flight, until answered.

The partitions decide what to request. `Send` reaches the controller.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from ottla.clock import Clock
from ottla.errors import ErrorCode
from ottla.ids import BrokerId
from ottla.wire.classes import WireRequest, WireResponse
from ottla.wire.messages import AlterPartitionRequest

if TYPE_CHECKING:
    from ottla.replica.isr import Proposal
    from ottla.replica.partition import Partition
    from ottla.wire.messages import AlterPartitionResponse

_logger = logging.getLogger(__name__)

Resp = TypeVar("Resp", bound=WireResponse)


class Send(Protocol):
    """Sends to the active controller. Calls `done` or `failed` once, with the response or the failure."""

    def __call__(
        self, request: WireRequest[Resp], done: Callable[[Resp], object], failed: Callable[[object], object]
    ) -> object: ...


_RETRY_S: Final = 0.05
_REFUSED_RETRY_S: Final = 0.5
"""When a refused change is tried again: the follower's broker may be eligible by then."""

_REFUSED: Final = (ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA)
_OUT_OF_DATE: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.NEW_LEADER_ELECTED,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
"""The controller has newer metadata, which will reach this broker."""


class AlterPartitionSender:
    """The changes to request, the newest of each partition, and the request in flight."""

    __slots__ = (
        "_broker_epoch",
        "_clock",
        "_in_flight",
        "_node_id",
        "_scheduled",
        "_send",
        "_stopped",
        "_unsent",
    )

    def __init__(self, clock: Clock, node_id: BrokerId, broker_epoch: Callable[[], int], send: Send) -> None:
        self._clock = clock
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._send = send
        self._unsent: dict[Partition, Proposal] = {}
        self._in_flight: dict[Partition, Proposal] = {}
        self._scheduled = False
        self._stopped = False

    def submit(self, partition: Partition, proposal: Proposal) -> None:
        """Send it with the next request; it replaces an earlier proposal of the partition."""
        self._unsent[partition] = proposal
        self._schedule(0.0)

    def stop(self) -> None:
        self._stopped = True

    def _schedule(self, delay_s: float) -> None:
        if not self._scheduled and not self._in_flight:
            self._scheduled = True
            self._clock.call_later(delay_s, self._send_all)

    def _send_all(self) -> None:
        self._scheduled = False
        if self._stopped or self._in_flight:
            return
        wanted = {
            partition: proposal
            for partition, proposal in self._unsent.items()
            if partition.in_sync.pending is proposal
        }
        self._unsent = {}
        if wanted:
            self._in_flight = wanted
            self._send(self._request(wanted), self._answered, self._failed)

    def _request(self, wanted: dict[Partition, Proposal]) -> AlterPartitionRequest:
        cls = AlterPartitionRequest
        topics: dict[bytes, AlterPartitionRequest.TopicData] = {}
        own_epoch = self._broker_epoch()
        for partition, proposal in wanted.items():
            topic = topics.get(partition.topic_id)
            if topic is None:
                topic = topics[partition.topic_id] = cls.TopicData(topic_id=partition.topic_id, partitions=[])
            epoch_of = partition.in_sync.broker_epoch
            topic.partitions.append(
                cls.PartitionData(
                    partition_index=partition.index,
                    leader_epoch=proposal.leader_epoch,
                    new_isr_with_epochs=[
                        cls.BrokerState(
                            broker_id=replica,
                            broker_epoch=own_epoch if replica == self._node_id else epoch_of(replica),
                        )
                        for replica in proposal.isr
                    ],
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return cls(broker_id=self._node_id, broker_epoch=own_epoch, topics=list(topics.values()))

    def _failed(self, why: object) -> None:
        self._again(f"the controller could not be reached: {why}")

    def _again(self, why: str) -> None:
        _logger.info("Sending the in-sync set changes again: %s", why)
        self._unsent = {**self._in_flight, **self._unsent}
        self._in_flight = {}
        self._schedule(_RETRY_S)

    def _answered(self, response: AlterPartitionResponse) -> None:
        if response.error_code:
            self._again(f"the controller answered {ErrorCode.of(response.error_code).name}")
            return
        asked, self._in_flight = self._in_flight, {}
        results = {
            (topic.topic_id, result.partition_index): result
            for topic in response.topics
            for result in topic.partitions
        }
        for partition, proposal in asked.items():
            result = results.get((partition.topic_id, partition.index))
            if result is None:
                self._unsent.setdefault(partition, proposal)
            else:
                self._decided(partition, proposal, result)
        if self._unsent:
            self._schedule(0.0)

    def _decided(
        self, partition: Partition, proposal: Proposal, result: AlterPartitionResponse.PartitionData
    ) -> None:
        code = ErrorCode.of(result.error_code)
        if code is ErrorCode.NONE:
            _logger.info("%s-%d: in sync are now %s", partition.topic, partition.index, result.isr)
            partition.confirmed(proposal, tuple(result.isr), result.leader_epoch, result.partition_epoch)
        elif code in _REFUSED:
            _logger.info("%s-%d: %r was refused: %s", partition.topic, partition.index, proposal, code.name)
            partition.refused(proposal)
            self._clock.call_later(_REFUSED_RETRY_S, partition.maybe_expand)
        elif code in _OUT_OF_DATE:
            # It stays pending: nothing counts that the controller may have refused.
            _logger.info(
                "%s-%d: %r is out of date: %s", partition.topic, partition.index, proposal, code.name
            )
        elif partition.in_sync.pending is proposal:
            _logger.warning("%s-%d: %r failed: %s", partition.topic, partition.index, proposal, code.name)
            self._unsent.setdefault(partition, proposal)
