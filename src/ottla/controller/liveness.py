"""Finds out quickly that a broker's process is gone, where the operating system reports it.

When a broker's heartbeat connection is lost, its listener is probed. Only two refused connections prove that the
process is gone. A machine that is silent, slow or disconnected keeps its whole session.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.ids import BrokerId
from ottla.peers import Endpoint, PeerFailure

if TYPE_CHECKING:
    from ottla.clock import Clock, Timer
    from ottla.peers import Peers

_BETWEEN_REFUSALS_S: Final = 0.01
_REFUSALS_NEEDED: Final = 2
_PAUSES_S: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0)
"""Between inconclusive probes: a process that ends closes its sockets one by one."""
_PROBE_TIMEOUT_S: Final = 1.0

Gone = Callable[[BrokerId, int], object]
"""Called with the id and epoch of a broker whose process is gone."""


@dataclass(slots=True)
class _Watch:
    broker_id: BrokerId
    epoch: int
    endpoint: Endpoint
    refusals: int = 0
    inconclusive: int = 0
    timer: Timer | None = None


class LivenessWatch:
    """Probes silent brokers until they send a heartbeat or their processes are found to be gone."""

    def __init__(
        self, clock: Clock, peers: Peers | None, gone: Gone, has_session: Callable[[BrokerId, int], bool]
    ) -> None:
        """`has_session` returns whether a broker of this id and epoch still has a session."""
        self._clock = clock
        self._peers = peers
        self._gone = gone
        self._has_session = has_session
        self._watched: dict[BrokerId, _Watch] = {}

    def watch(self, broker_id: BrokerId, epoch: int, endpoint: Endpoint) -> None:
        """Start to probe, unless this incarnation is being probed already."""
        current = self._watched.get(broker_id)
        if self._peers is None or (current is not None and current.epoch == epoch):
            return
        self.stop_watching(broker_id)
        watch = self._watched[broker_id] = _Watch(broker_id, epoch, endpoint)
        self._probe(watch)

    def stop_watching(self, broker_id: BrokerId) -> None:
        """Stop to probe: the broker sent a heartbeat, or its session is over."""
        watch = self._watched.pop(broker_id, None)
        if watch is not None and watch.timer is not None:
            watch.timer.cancel()

    def stop(self) -> None:
        for broker_id in list(self._watched):
            self.stop_watching(broker_id)

    def _probe(self, watch: _Watch) -> None:
        assert self._peers is not None
        watch.timer = None
        if not self._has_session(watch.broker_id, watch.epoch):
            self.stop_watching(watch.broker_id)
            return

        def answered(failure: PeerFailure | None) -> None:
            self._answered(watch, failure)

        self._peers.probe(watch.endpoint, answered, timeout_s=_PROBE_TIMEOUT_S)

    def _answered(self, watch: _Watch, failure: PeerFailure | None) -> None:
        if self._watched.get(watch.broker_id) is not watch:
            return
        if failure is PeerFailure.CLOSED:
            self.stop_watching(watch.broker_id)
        elif failure is PeerFailure.REFUSED:
            watch.refusals += 1
            if watch.refusals < _REFUSALS_NEEDED:
                watch.timer = self._clock.call_later(_BETWEEN_REFUSALS_S, self._probe, watch)
            else:
                self.stop_watching(watch.broker_id)
                self._gone(watch.broker_id, watch.epoch)
        else:
            watch.refusals = 0
            pause_s = _PAUSES_S[min(watch.inconclusive, len(_PAUSES_S) - 1)]
            watch.inconclusive += 1
            watch.timer = self._clock.call_later(pause_s, self._probe, watch)
