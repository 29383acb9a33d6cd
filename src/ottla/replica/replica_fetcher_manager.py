"""The fetcher manager: the connections to the leaders that this broker replicates from.

Each leader has one fetcher, or a few (`num.replica.fetchers`). `ottla.replica.replica_fetcher` decides what to
request and applies the responses. This module sends the requests, one at a time except for changes that cannot wait
for new records, and retries failed fetches after a back-off.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.clock import Clock, Timer
from ottla.errors import ErrorCode
from ottla.peers import Endpoint, Peer, PeerFailure, Peers
from ottla.wire.enums import OffsetSpec

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.ids import BrokerId
    from ottla.log.write_gate import WriteGate
    from ottla.replica.partition import Partition
    from ottla.replica.replica_fetcher import Bounds, ReplicaFetcher
    from ottla.replica.throttle import ReplicationThrottle
    from ottla.wire.messages import FetchResponse, ListOffsetsResponse

_logger = logging.getLogger(__name__)

_FIRST_BACKOFF_S: Final = 0.05
_MAX_IN_FLIGHT: Final = 2
"""One that waits at the leader, and one that sends it changes meanwhile."""


class LeaderConnection:
    """One fetcher and its connection to a leader."""

    __slots__ = (
        "_backing_off",
        "_backoff_s",
        "_bounds_requested",
        "_broker_epoch",
        "_clock",
        "_gate",
        "_in_flight",
        "_max_backoff_s",
        "_peer",
        "_scheduled",
        "_stopped",
        "_timeout_s",
        "_wake_timer",
        "fetcher",
    )

    def __init__(
        self,
        clock: Clock,
        peer: Peer,
        fetcher: ReplicaFetcher,
        broker_epoch: Callable[[], int],
        timeout_s: float,
        max_backoff_s: float,
        gate: WriteGate,
    ) -> None:
        self.fetcher = fetcher
        self._gate = gate
        self._clock = clock
        self._peer = peer
        self._broker_epoch = broker_epoch
        self._timeout_s = timeout_s
        self._max_backoff_s = max_backoff_s
        self._backoff_s = 0.0
        self._backing_off = False
        self._in_flight = 0
        self._bounds_requested = False
        self._scheduled = False
        self._stopped = False
        self._wake_timer: Timer | None = None

    def schedule(self) -> None:
        """Send what there is to request, on the loop's next turn."""
        if not self._scheduled and not self._stopped:
            self._scheduled = True
            self._clock.call_later(0.0, self._run)

    def _run(self) -> None:
        self._scheduled = False
        self._pump()

    def stop(self) -> None:
        self._stopped = True
        self._cancel_wake_timer()
        self._gate.forget(self.schedule)
        self._peer.close()

    def _now_ms(self) -> float:
        return self._clock.monotonic() * 1000

    def _pump(self) -> None:
        if self._stopped or self._backing_off:
            return
        broker_epoch = self._broker_epoch()
        if broker_epoch < 0:
            return  # the leader would refuse this broker; the registration schedules it again
        fetcher = self.fetcher
        now_ms = self._now_ms()
        self._wake_at(fetcher.wake(now_ms), now_ms)
        if fetcher.out_of_range and not self._bounds_requested:
            self._request_bounds(OffsetSpec.LATEST)
        if (self._in_flight == 0 and fetcher.has_work) or (
            self._in_flight < _MAX_IN_FLIGHT and fetcher.has_changes
        ):
            if not self._may_write():
                return  # the gate schedules it again
            request = fetcher.request(broker_epoch, now_ms)
            if request.topics or request.forgotten_topics_data or request.session_epoch > 0:
                self._in_flight += 1
                self._peer.send(
                    request,
                    partial(self._answered, fetcher.sequence),
                    self._failed,
                    timeout_s=self._timeout_s,
                )
            else:
                self._wake_at(fetcher.wake(now_ms), now_ms)

    def _may_write(self) -> bool:
        """More is requested only while it can be written without blocking."""
        size, self.fetcher.appended_bytes = self.fetcher.appended_bytes, 0
        if self._gate.admits(size):
            return True
        self._gate.wait(self.schedule)
        return False

    def _wake_at(self, due_ms: float | None, now_ms: float) -> None:
        self._cancel_wake_timer()
        if due_ms is not None:
            self._wake_timer = self._clock.call_later(max(due_ms - now_ms, 0.0) / 1000, self._awake)

    def _awake(self) -> None:
        self._wake_timer = None
        self._pump()

    def _cancel_wake_timer(self) -> None:
        if self._wake_timer is not None:
            self._wake_timer.cancel()
            self._wake_timer = None

    def _answered(self, sequence: int, response: FetchResponse) -> None:
        self._in_flight -= 1
        if self._stopped:
            return
        error = self.fetcher.answered(sequence, response, self._now_ms())
        if error is not ErrorCode.NONE:
            self._back_off(error.name)
            return
        self._backoff_s = 0.0
        self._pump()

    def _failed(self, why: PeerFailure) -> None:
        self._in_flight -= 1
        if not self._stopped:
            self.fetcher.reset()
            self._back_off(why.value)

    def _back_off(self, why: str) -> None:
        if self._backing_off:
            return
        _logger.info("Cannot fetch from broker %d: %s", self._peer.endpoint.node_id, why)
        self._backing_off = True
        self._backoff_s = min(
            max(2 * self._backoff_s, _FIRST_BACKOFF_S), max(self._max_backoff_s, _FIRST_BACKOFF_S)
        )
        self._clock.call_later(self._backoff_s, self._go_on)

    def _go_on(self) -> None:
        self._backing_off = False
        self._pump()

    # -- logs out of the leader's range

    def _request_bounds(self, timestamp: int) -> None:
        request, asked = self.fetcher.bounds_request(timestamp)
        self._bounds_requested = True
        self._peer.send(
            request,
            partial(self._bounds, timestamp, asked),
            partial(self._no_bounds, asked),
            timeout_s=self._timeout_s,
        )

    def _bounds(self, timestamp: int, asked: Bounds, response: ListOffsetsResponse) -> None:
        self._bounds_requested = False
        if self._stopped:
            return
        self.fetcher.bounds_answered(asked, response, timestamp, self._now_ms())
        left = [each for each in asked.values() if self.fetcher.out_of_range.get(each.key) is each]
        if left and timestamp == OffsetSpec.LATEST:
            self._request_bounds(OffsetSpec.EARLIEST)
        elif left:
            self.fetcher.bounds_failed(left, self._now_ms())
        self._pump()

    def _no_bounds(self, asked: Bounds, why: PeerFailure) -> None:
        self._bounds_requested = False
        if not self._stopped:
            self.fetcher.bounds_failed(list(asked.values()), self._now_ms())
            self._pump()


class ReplicaFetcherManager:
    """All connections to leaders. A partition is replicated over one of them at a time."""

    __slots__ = (
        "_broker_epoch",
        "_clock",
        "_config",
        "_connection_of",
        "_connections",
        "_endpoint_of",
        "_gate",
        "_node_id",
        "_peers",
        "_stopped",
        "_throttle",
        "_waiting",
    )

    def __init__(
        self,
        clock: Clock,
        peers: Peers,
        node_id: BrokerId,
        config: BrokerConfig,
        broker_epoch: Callable[[], int],
        endpoint_of: Callable[[BrokerId], Endpoint | None],
        throttle: ReplicationThrottle,
        gate: WriteGate,
    ) -> None:
        self._clock = clock
        self._peers = peers
        self._node_id = node_id
        self._config = config
        self._broker_epoch = broker_epoch
        self._endpoint_of = endpoint_of
        self._throttle = throttle
        self._gate = gate
        self._connections: dict[tuple[BrokerId, int], tuple[Endpoint, LeaderConnection]] = {}
        """By leader and number, with the endpoint that each is connected to."""
        self._connection_of: dict[Partition, tuple[BrokerId, int]] = {}
        self._waiting: dict[Partition, None] = {}
        """Partitions whose leader has no known endpoint."""
        self._stopped = False

    def follow(self, partition: Partition) -> None:
        """Replicate a partition from its current leader."""
        if self._stopped:
            return
        number = partition.index % self._config.int("num.replica.fetchers")
        key = (partition.leader, number)
        before = self._connection_of.get(partition)
        if before is not None and before != key:
            self.unfollow(partition)
        connection = self._connection(key)
        if connection is None:
            self._waiting[partition] = None
            return
        self._connection_of[partition] = key
        connection.fetcher.follow(partition)
        connection.schedule()

    def unfollow(self, partition: Partition) -> None:
        """Stop replicating a partition."""
        self._waiting.pop(partition, None)
        key = self._connection_of.pop(partition, None)
        if key is None:
            return
        _, connection = self._connections[key]
        connection.fetcher.unfollow(partition)
        if connection.fetcher.followed:
            connection.schedule()
        else:
            connection.stop()
            del self._connections[key]

    def metadata_changed(self) -> None:
        """Brokers were registered, removed or moved, or this one has registered."""
        for key, (endpoint, connection) in list(self._connections.items()):
            if self._endpoint_of(key[0]) not in (None, endpoint):
                followed = [each.partition for each in connection.fetcher.followed.values()]
                connection.stop()
                del self._connections[key]
                for partition in followed:
                    del self._connection_of[partition]
                    self.follow(partition)
            else:
                connection.schedule()
        waiting, self._waiting = self._waiting, {}
        for partition in waiting:
            self.follow(partition)

    def update_config(self, config: BrokerConfig) -> None:
        """Use the configuration for new connections; redistribute partitions if the number of fetchers changed."""
        redistribute = config.int("num.replica.fetchers") != self._config.int("num.replica.fetchers")
        self._config = config
        if redistribute:
            for partition in list(self._connection_of):
                self.follow(partition)

    def lag(self) -> tuple[int, int]:
        """The most records that a followed partition is behind its leader, and how many cannot be fetched now."""
        most = failed = 0
        for _, connection in self._connections.values():
            fetcher = connection.fetcher
            failed += len(fetcher.out_of_range)
            for followed in fetcher.followed.values():
                log = followed.partition.log
                failed += followed.backoff_ms > 0
                if log is not None and followed.leader_end - log.log_end_offset > most:
                    most = followed.leader_end - log.log_end_offset
        return most, failed

    def stop(self) -> None:
        self._stopped = True
        for _, connection in self._connections.values():
            connection.stop()
        self._connections.clear()
        self._connection_of.clear()

    def _connection(self, key: tuple[BrokerId, int]) -> LeaderConnection | None:
        known = self._connections.get(key)
        if known is not None:
            return known[1]
        leader, number = key
        endpoint = self._endpoint_of(leader)
        if endpoint is None:
            return None
        # Loaded where this broker follows another one.
        from ottla.replica.replica_fetcher import ReplicaFetcher

        config = self._config
        max_backoff_ms = config.int("replica.fetch.backoff.ms")
        fetcher = ReplicaFetcher(
            self._node_id,
            self._throttle,
            max_bytes=config.int("replica.fetch.response.max.bytes"),
            partition_bytes=config.int("replica.fetch.max.bytes"),
            min_bytes=config.int("replica.fetch.min.bytes"),
            max_wait_ms=config.int("replica.fetch.wait.max.ms"),
            max_backoff_ms=max_backoff_ms,
        )
        connection = LeaderConnection(
            self._clock,
            self._peers.open(endpoint, f"fetcher-{number}"),
            fetcher,
            self._broker_epoch,
            config.int("replica.socket.timeout.ms") / 1000,
            max_backoff_ms / 1000,
            self._gate,
        )
        self._connections[key] = (endpoint, connection)
        return connection
