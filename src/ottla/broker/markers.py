"""Writes transaction markers to the partitions that this broker leads.

Implements the transaction coordinator's `MarkerWriter`. Markers of `__consumer_offsets` go through the group
coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.clock import Clock
from ottla.errors import ApiException, ErrorCode
from ottla.log.types import TopicPartition
from ottla.metadata.topic_names import OFFSETS_TOPIC
from ottla.records.control import build_end_txn_marker

if TYPE_CHECKING:
    from ottla.coordinator.transaction.marker_manager import MarkersDone, TxnMarker
    from ottla.replica.manager import ReplicaManager
    from ottla.replica.partition import Partition

_ONLY_EVENTS: Final = 1 << 62
"""More bytes than will ever be appended: only a moved high watermark or a change of leader ends the wait."""

_REPLICATION_TIMEOUT_S: Final = 30.0

_NOT_READY: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)

Settle = Callable[[ErrorCode], None]

EndOffsets = Callable[..., None]
"""The group coordinator's `complete_transaction`."""


class LocalMarkerWriter:
    """Appends markers and reports them when they are replicated."""

    __slots__ = ("_clock", "_end_offsets", "_replicas")

    def __init__(self, replicas: ReplicaManager, clock: Clock, end_offsets: EndOffsets) -> None:
        self._replicas = replicas
        self._clock = clock
        self._end_offsets = end_offsets

    def write(self, marker: TxnMarker, partitions: Iterable[TopicPartition], done: MarkersDone) -> None:
        """Call `done` with an error code for each partition."""
        wanted = list(dict.fromkeys(partitions))
        results: dict[TopicPartition, ErrorCode] = {}
        if not wanted:
            done(results)
            return

        def settle(tp: TopicPartition, code: ErrorCode) -> None:
            results[tp] = code
            if len(results) == len(wanted):
                done(results)

        now_ms = self._clock.now_ms()
        batch = build_end_txn_marker(
            commit=marker.commit,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp=now_ms,
        )
        for tp in wanted:
            if tp.topic == OFFSETS_TOPIC:
                self._end_group_offsets(marker, tp.partition, partial(settle, tp))
            else:
                self._append(tp, batch, now_ms, marker.transaction_version, partial(settle, tp))

    def _append(
        self, tp: TopicPartition, batch: bytes, now_ms: int, transaction_version: int, settle: Settle
    ) -> None:
        try:
            partition = self._replicas.find(tp)
            info = partition.append_own(batch, now_ms, transaction_version)
        except ApiException as error:
            settle(error.code)
            return
        # The marker is small, but it may make many records stable that readers wait for.
        partition.wake_all()
        self._await(partition, info.last_offset + 1, settle)

    def _await(self, partition: Partition, end_offset: int, settle: Settle) -> None:
        leader_epoch = partition.leader_epoch

        def check(expired: bool) -> int:
            log = partition.log
            code: ErrorCode | None = ErrorCode.NOT_LEADER_OR_FOLLOWER
            # In a later epoch another record may have the marker's offset.
            if log is not None and partition.is_leader and partition.leader_epoch == leader_epoch:
                code = partition.replicated(log, end_offset)
            if code is None and not expired:
                return _ONLY_EVENTS
            settle(ErrorCode.REQUEST_TIMED_OUT if code is None else code)
            return 0

        if (
            check(False)
            and self._replicas.delayed_requests.park(
                [partition.high_watermark_waiters], _ONLY_EVENTS, _REPLICATION_TIMEOUT_S, check
            )
            is None
        ):
            check(True)

    def _end_group_offsets(self, marker: TxnMarker, partition: int, settle: Settle) -> None:
        def failed(error: ApiException) -> None:
            # The transaction coordinator retries on the codes that the leader of a partition may return.
            settle(ErrorCode.NOT_LEADER_OR_FOLLOWER if error.code in _NOT_READY else error.code)

        self._end_offsets(
            partition,
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.commit,
            lambda _: settle(ErrorCode.NONE),
            failed,
            marker.transaction_version,
        )
