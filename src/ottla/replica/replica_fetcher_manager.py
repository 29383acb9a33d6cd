"""The ways to the leaders that this broker copies from: one fetcher for each, or a few (`num.replica.fetchers`).

`ottla.replica.replica_fetcher` decides what to request and applies the responses. This module sends the requests,
one at a time except for those that cannot wait for new records, and retries failed fetches after a back-off.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.clock import Clock, Timer
from ottla.errors import ErrorCode
from ottla.peers import Endpoint, Peer, PeerFailure, Peers
from ottla.replica.replica_fetcher import EARLIEST, LATEST, FetchState, ReplicaFetcher

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.log.write_gate import WriteGate
    from ottla.replica.partition import Partition
    from ottla.replica.throttle import ReplicationThrottle

_logger = logging.getLogger(__name__)

Message = Any

_FIRST_PAUSE_S: Final = 0.05
_MAX_IN_FLIGHT: Final = 2
"""One that waits at the leader, and one that tells it of changes meanwhile."""


class LeaderConnection:
    """One fetcher and its connection."""

    __slots__ = (
        "_asking_bounds",
        "_broker_epoch",
        "_clock",
        "_gate",
        "_in_flight",
        "_max_pause_s",
        "_pause_s",
        "_paused",
        "_peer",
        "_scheduled",
        "_stopped",
        "_timeout_s",
        "_waking",
        "fetcher",
    )

    def __init__(
        self,
        clock: Clock,
        peer: Peer,
        fetcher: ReplicaFetcher,
        broker_epoch: Callable[[], int],
        timeout_s: float,
        max_pause_s: float,
        gate: WriteGate | None,
    ) -> None:
        self.fetcher = fetcher
        self._gate = gate
        self._clock = clock
        self._peer = peer
        self._broker_epoch = broker_epoch
        self._timeout_s = timeout_s
        self._max_pause_s = max_pause_s
        self._pause_s = 0.0
        self._paused = False
        self._in_flight = 0
        self._asking_bounds = False
        self._scheduled = False
        self._stopped = False
        self._waking: Timer | None = None

    def schedule(self) -> None:
        """Look what there is to ask for, on the loop's next turn."""
        if not self._scheduled and not self._stopped:
            self._scheduled = True
            self._clock.call_later(0.0, self._run)

    def _run(self) -> None:
        self._scheduled = False
        self._pump()

    def stop(self) -> None:
        self._stopped = True
        self._cancel_waking()
        if self._gate is not None:
            self._gate.forget(self.schedule)
        self._peer.close()

    def _now_ms(self) -> float:
        return self._clock.monotonic() * 1000

    def _pump(self) -> None:
        if self._stopped or self._paused:
            return
        broker_epoch = self._broker_epoch()
        if broker_epoch < 0:
            return  # the leader would not count this broker; its registration wakes it
        fetcher = self.fetcher
        now_ms = self._now_ms()
        self._wake_at(fetcher.wake(now_ms), now_ms)
        if fetcher.out_of_range and not self._asking_bounds:
            self._ask_bounds(LATEST)
        if (self._in_flight == 0 and fetcher.has_work) or (
            self._in_flight < _MAX_IN_FLIGHT and fetcher.has_changes
        ):
            if not self._may_write():
                return  # it is woken when more can be written
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
        """More is only asked for while it can be written without a wait."""
        if self._gate is None:
            return True
        size, self.fetcher.appended_bytes = self.fetcher.appended_bytes, 0
        if self._gate.admits(size):
            return True
        self._gate.wait(self.schedule)
        return False

    def _wake_at(self, due_ms: float | None, now_ms: float) -> None:
        self._cancel_waking()
        if due_ms is not None:
            self._waking = self._clock.call_later(max(due_ms - now_ms, 0.0) / 1000, self._awake)

    def _awake(self) -> None:
        self._waking = None
        self._pump()

    def _cancel_waking(self) -> None:
        if self._waking is not None:
            self._waking.cancel()
            self._waking = None

    def _answered(self, sequence: int, response: Message) -> None:
        self._in_flight -= 1
        if self._stopped:
            return
        error = self.fetcher.answered(sequence, response, self._now_ms())
        if error is not ErrorCode.NONE:
            self._sleep(error.name)
            return
        self._pause_s = 0.0
        self._pump()

    def _failed(self, why: PeerFailure) -> None:
        self._in_flight -= 1
        if not self._stopped:
            self.fetcher.reset()
            self._sleep(why.value)

    def _sleep(self, why: str) -> None:
        if self._paused:
            return
        _logger.info("Broker %d cannot be fetched from: %s", self._peer.endpoint.node_id, why)
        self._paused = True
        self._pause_s = min(max(2 * self._pause_s, _FIRST_PAUSE_S), max(self._max_pause_s, _FIRST_PAUSE_S))
        self._clock.call_later(self._pause_s, self._go_on)

    def _go_on(self) -> None:
        self._paused = False
        self._pump()

    # -- logs that do not fit the leader's

    def _ask_bounds(self, timestamp: int) -> None:
        request, asked = self.fetcher.bounds_request(timestamp)
        self._asking_bounds = True
        self._peer.send(
            request,
            partial(self._bounds, timestamp, asked),
            partial(self._no_bounds, asked),
            timeout_s=self._timeout_s,
        )

    def _bounds(self, timestamp: int, asked: dict[tuple[str, int], FetchState], response: Message) -> None:
        self._asking_bounds = False
        if self._stopped:
            return
        self.fetcher.bounds_answered(asked, response, timestamp, self._now_ms())
        left = [each for each in asked.values() if self.fetcher.out_of_range.get(each.key) is each]
        if left and timestamp == LATEST:
            self._ask_bounds(EARLIEST)
        elif left:
            self.fetcher.bounds_failed(left, self._now_ms())
        self._pump()

    def _no_bounds(self, asked: dict[tuple[str, int], FetchState], why: PeerFailure) -> None:
        self._asking_bounds = False
        if not self._stopped:
            self.fetcher.bounds_failed(list(asked.values()), self._now_ms())
            self._pump()


class ReplicaFetcherManager:
    """All sources. A partition is copied from one of them at a time."""

    __slots__ = (
        "_broker_epoch",
        "_clock",
        "_config",
        "_endpoint_of",
        "_gate",
        "_node_id",
        "_peers",
        "_source_of",
        "_sources",
        "_stopped",
        "_throttle",
        "_waiting",
    )

    def __init__(
        self,
        clock: Clock,
        peers: Peers,
        node_id: int,
        config: BrokerConfig,
        broker_epoch: Callable[[], int],
        endpoint_of: Callable[[int], Endpoint | None],
        throttle: ReplicationThrottle,
        gate: WriteGate | None = None,
    ) -> None:
        self._clock = clock
        self._peers = peers
        self._node_id = node_id
        self._config = config
        self._broker_epoch = broker_epoch
        self._endpoint_of = endpoint_of
        self._throttle = throttle
        self._gate = gate
        self._sources: dict[tuple[int, int], tuple[Endpoint, LeaderConnection]] = {}
        """By leader and number."""
        self._source_of: dict[Partition, tuple[int, int]] = {}
        self._waiting: dict[Partition, None] = {}
        """Those whose leader is not known to listen anywhere."""
        self._stopped = False

    def follow(self, partition: Partition) -> None:
        """Copy a partition from the leader that it has now."""
        if self._stopped:
            return
        number = partition.index % self._config.int("num.replica.fetchers")
        key = (partition.leader, number)
        before = self._source_of.get(partition)
        if before is not None and before != key:
            self.unfollow(partition)
        source = self._source(key)
        if source is None:
            self._waiting[partition] = None
            return
        self._source_of[partition] = key
        source.fetcher.follow(partition)
        source.schedule()

    def unfollow(self, partition: Partition) -> None:
        """Copy it no more."""
        self._waiting.pop(partition, None)
        key = self._source_of.pop(partition, None)
        if key is None:
            return
        _, source = self._sources[key]
        source.fetcher.unfollow(partition)
        if source.fetcher.followed:
            source.schedule()
        else:
            source.stop()
            del self._sources[key]

    def metadata_changed(self) -> None:
        """Brokers have come, gone or moved, or this one has registered."""
        for key, (endpoint, source) in list(self._sources.items()):
            if self._endpoint_of(key[0]) not in (None, endpoint):
                followed = [each.partition for each in source.fetcher.followed.values()]
                source.stop()
                del self._sources[key]
                for partition in followed:
                    del self._source_of[partition]
                    self.follow(partition)
            else:
                source.schedule()
        waiting, self._waiting = self._waiting, {}
        for partition in waiting:
            self.follow(partition)

    def update_config(self, config: BrokerConfig) -> None:
        """From now on for new connections; with another number of fetchers everything is dealt anew."""
        dealt_anew = config.int("num.replica.fetchers") != self._config.int("num.replica.fetchers")
        self._config = config
        if dealt_anew:
            for partition in list(self._source_of):
                self.follow(partition)

    def stop(self) -> None:
        self._stopped = True
        for _, source in self._sources.values():
            source.stop()
        self._sources.clear()
        self._source_of.clear()

    def _source(self, key: tuple[int, int]) -> LeaderConnection | None:
        known = self._sources.get(key)
        if known is not None:
            return known[1]
        leader, number = key
        endpoint = self._endpoint_of(leader)
        if endpoint is None:
            return None
        config = self._config
        max_pause_ms = config.int("replica.fetch.backoff.ms")
        fetcher = ReplicaFetcher(
            self._node_id,
            self._throttle,
            max_bytes=config.int("replica.fetch.response.max.bytes"),
            partition_bytes=config.int("replica.fetch.max.bytes"),
            min_bytes=config.int("replica.fetch.min.bytes"),
            max_wait_ms=config.int("replica.fetch.wait.max.ms"),
            max_rest_ms=max_pause_ms,
        )
        source = LeaderConnection(
            self._clock,
            self._peers.open(endpoint, f"fetcher-{number}"),
            fetcher,
            self._broker_epoch,
            config.int("replica.socket.timeout.ms") / 1000,
            max_pause_ms / 1000,
            self._gate,
        )
        self._sources[key] = (endpoint, source)
        return source
