"""Finding out at once that a broker's process is gone, where the operating system can say so.

When a broker's heartbeat connection is lost its listener is tried. Only a connection that is refused, twice, proves
that nobody is there; a machine that is silent, slow or cut off keeps its whole session.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.peers import Endpoint, PeerFailure

if TYPE_CHECKING:
    from ottla.clock import Clock, Timer
    from ottla.peers import Peers

_BETWEEN_REFUSALS_S: Final = 0.01
_REFUSALS_NEEDED: Final = 2
_PAUSES_S: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0)
"""Between probes that prove nothing: a process that ends closes its sockets one after the other."""
_PROBE_TIMEOUT_S: Final = 1.0

Gone = Callable[[int, int], object]
"""Told (broker id, broker epoch) of a broker whose process is gone."""


@dataclass(slots=True)
class _Watch:
    broker_id: int
    epoch: int
    endpoint: Endpoint
    refusals: int = 0
    in_vain: int = 0
    timer: Timer | None = None


class LivenessWatch:
    """Probes brokers that were not heard of, until they are or are found to be gone."""

    def __init__(
        self, clock: Clock, peers: Peers | None, gone: Gone, has_session: Callable[[int, int], bool]
    ) -> None:
        """`has_session` tells whether a broker of this id and epoch still counts as alive."""
        self._clock = clock
        self._peers = peers
        self._gone = gone
        self._has_session = has_session
        self._watched: dict[int, _Watch] = {}

    def watch(self, broker_id: int, epoch: int, endpoint: Endpoint) -> None:
        """Begin to probe, unless this incarnation is being probed already."""
        current = self._watched.get(broker_id)
        if self._peers is None or (current is not None and current.epoch == epoch):
            return
        self.heard(broker_id)
        watch = self._watched[broker_id] = _Watch(broker_id, epoch, endpoint)
        self._probe(watch)

    def heard(self, broker_id: int) -> None:
        """The broker spoke, or its session is over: no more probes."""
        watch = self._watched.pop(broker_id, None)
        if watch is not None and watch.timer is not None:
            watch.timer.cancel()

    def stop(self) -> None:
        for broker_id in list(self._watched):
            self.heard(broker_id)

    def _probe(self, watch: _Watch) -> None:
        assert self._peers is not None
        watch.timer = None
        if not self._has_session(watch.broker_id, watch.epoch):
            self.heard(watch.broker_id)
            return

        def answered(failure: PeerFailure | None) -> None:
            self._answered(watch, failure)

        self._peers.probe(watch.endpoint, answered, timeout_s=_PROBE_TIMEOUT_S)

    def _answered(self, watch: _Watch, failure: PeerFailure | None) -> None:
        if self._watched.get(watch.broker_id) is not watch:
            return
        if failure is PeerFailure.CLOSED:
            self.heard(watch.broker_id)
        elif failure is PeerFailure.REFUSED:
            watch.refusals += 1
            if watch.refusals < _REFUSALS_NEEDED:
                watch.timer = self._clock.call_later(_BETWEEN_REFUSALS_S, self._probe, watch)
            else:
                self.heard(watch.broker_id)
                self._gone(watch.broker_id, watch.epoch)
        else:
            watch.refusals = 0
            pause_s = _PAUSES_S[min(watch.in_vain, len(_PAUSES_S) - 1)]
            watch.in_vain += 1
            watch.timer = self._clock.call_later(pause_s, self._probe, watch)
