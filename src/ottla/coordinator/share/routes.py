"""Routes share state requests to the broker that keeps a share partition's state: this one, or another over the wire.

Requests to one broker about one group in one turn of the loop share a message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.clock import Clock
from ottla.coordinator.outbox import Outbox
from ottla.coordinator.runtime import partition_for
from ottla.coordinator.share.service import (
    AnyStateApi,
    PartitionData,
    PartitionResult,
    ShareCoordinator,
    StateResponse,
)
from ottla.coordinator.share.state import StateKey
from ottla.errors import ApiException, ErrorCode
from ottla.ids import BrokerId
from ottla.metadata.image import NO_LEADER
from ottla.peers import BrokerPeers, PeerFailure
from ottla.promise import Done
from ottla.wire.classes import WireRequest


class _Destination(NamedTuple):
    broker: BrokerId
    api: AnyStateApi
    group_id: str


class _PendingRequest:
    """The part of a request that concerns one share partition. Completed once."""

    __slots__ = ("_done", "key", "part")

    def __init__(self, key: StateKey, part: PartitionData, done: Done[PartitionResult]) -> None:
        self.key = key
        self.part = part
        self._done: Done[PartitionResult] | None = done

    @property
    def open(self) -> bool:
        return self._done is not None

    def complete(self, result: PartitionResult) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(result)


class ShareStateRoutes:
    """Asks for state that any broker keeps; NOT_COORDINATOR when that broker does not respond or no longer keeps it."""

    __slots__ = ("_brokers", "_in_flight", "_local", "_node_id", "_outbox", "_timeout_s")

    def __init__(
        self, node_id: int, clock: Clock, local: ShareCoordinator, brokers: BrokerPeers, timeout_s: float
    ) -> None:
        self._node_id = node_id
        self._local = local
        self._brokers = brokers
        self._timeout_s = timeout_s
        self._outbox: Outbox[_Destination, _PendingRequest] = Outbox(clock, self._send)
        self._in_flight: dict[_Destination, dict[_PendingRequest, None]] = {}
        """By destination, in the order of sending, in which they are also sent again."""

    def ask(self, api: AnyStateApi, key: StateKey, part: PartitionData, done: Done[PartitionResult]) -> None:
        """See `ottla.coordinator.share.service.Ask`."""
        leader = self._leader(key)
        if leader == self._node_id or leader is None:
            # Without the topic, the local coordinator responds that it does not exist.
            self._local.ask(api, key, part, done)
        elif leader == NO_LEADER:
            done(_lost(api, key, "no broker leads the partition that keeps it"))
        else:
            destination = _Destination(leader, api, key.group_id)
            pending = _PendingRequest(key, part, done)
            self._in_flight.setdefault(destination, {})[pending] = None
            self._outbox.add(destination, pending)

    def leaders_changed(self) -> None:
        """New metadata was published: fail requests to brokers that are no longer the coordinator."""
        for destination, requests in list(self._in_flight.items()):
            for pending in [each for each in requests if self._leader(each.key) != destination.broker]:
                pending.complete(_lost(destination.api, pending.key, "another broker keeps it now"))

    def close(self) -> None:
        self._brokers.close()

    def _leader(self, key: StateKey) -> BrokerId | None:
        runtime = self._local.runtime
        count = runtime.partition_count
        return runtime.leader_of(partition_for(key.coordinator_key, count)) if count else None

    def _send(self, destination: _Destination, requests: list[_PendingRequest]) -> None:
        api = destination.api

        def responded(response: StateResponse) -> None:
            results = {
                (topic.topic_id, result.partition): result
                for topic in response.results
                for result in topic.partitions
            }
            settle(
                lambda pending: (
                    results.get((pending.key.topic_id, pending.key.partition))
                    or _lost(api, pending.key, "the response of the share coordinator lacks it")
                )
            )

        def failed(failure: PeerFailure) -> None:
            settle(lambda pending: _lost(api, pending.key, failure.value))

        def settle(result_of: Callable[[_PendingRequest], PartitionResult]) -> None:
            waiting = self._in_flight[destination]
            for pending in requests:
                del waiting[pending]
            if not waiting:
                del self._in_flight[destination]
            for pending in requests:
                pending.complete(result_of(pending))

        peer = self._brokers.to(destination.broker)
        wanted = [pending for pending in requests if pending.open]
        if peer is None or not wanted:
            failed(PeerFailure.UNREACHABLE)
        else:
            peer.send(_request(destination, wanted), responded, failed, timeout_s=self._timeout_s)


def _lost(api: AnyStateApi, key: StateKey, why: str) -> PartitionResult:
    return api.partition_result(
        key.partition, ApiException(ErrorCode.NOT_COORDINATOR, f"The share state cannot be reached: {why}")
    )


def _request(destination: _Destination, requests: list[_PendingRequest]) -> WireRequest[Any]:
    by_topic: dict[bytes, list[PartitionData]] = {}
    for pending in requests:
        by_topic.setdefault(pending.key.topic_id, []).append(pending.part)
    api = destination.api
    request: WireRequest[Any] = api.request(
        group_id=destination.group_id,
        topics=[
            api.topic_data(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in by_topic.items()
        ],
    )
    return request
