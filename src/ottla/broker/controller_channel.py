"""Requests to the active controller: finds it, sends to it, and tries again when it is not active or is gone.

On the active controller's own node the same handlers answer without a connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from ottla.broker.response_errors import reports
from ottla.errors import ApiException, ErrorCode
from ottla.limits import MAX_WAITING_FOR_CONTROLLER
from ottla.peers import Endpoint, Peer, PeerFailure, Peers
from ottla.wire.classes import WireRequest, WireResponse

if TYPE_CHECKING:
    from ottla.clock import Clock, Timer
    from ottla.ids import BrokerId

Resp = TypeVar("Resp", bound=WireResponse)

Failed = Callable[[ApiException], object]


class Serve(Protocol):
    """Handles a request in this process, as a controller listener of this node would."""

    def __call__(self, request: WireRequest[Resp], done: Callable[[Resp], object], /) -> None: ...


_RETRY_S: Final = 0.05
"""Pause before the next attempt while no new leader is known."""
_GIVEN_UP: Final = {
    PeerFailure.UNSUPPORTED_VERSION: ErrorCode.UNSUPPORTED_VERSION,
    PeerFailure.OVERLOADED: ErrorCode.REQUEST_TIMED_OUT,
}
"""Failures that another attempt would not fix."""


class Quorum(Protocol):
    """The part of the raft driver that the channel uses."""

    @property
    def is_leader(self) -> bool: ...

    @property
    def leader_endpoint(self) -> Endpoint | None: ...

    def on_leader_change(self, callback: Callable[[BrokerId | None, int], object]) -> None: ...


class _Waiting(Generic[Resp]):
    """A request without a response yet."""

    __slots__ = ("deadline", "done", "failed", "request")

    def __init__(
        self, request: WireRequest[Resp], done: Callable[[Resp], object], failed: Failed, deadline: float
    ) -> None:
        self.request = request
        self.done = done
        self.failed = failed
        self.deadline = deadline


class ControllerChannel:
    """Requests of this node to the active controller. One of the two callbacks is called, on the event loop.

    When this node is the controller, the callback may be called before `send` has returned.
    """

    def __init__(self, quorum: Quorum, peers: Peers, clock: Clock, serve: Serve | None) -> None:
        """`serve` is None on a node without the controller role."""
        self._quorum = quorum
        self._peers = peers
        self._clock = clock
        self._serve = serve
        self._peer: Peer | None = None
        self._waiting: list[_Waiting[Any]] = []
        """Requests to send again when there is a new leader, or after a pause."""
        self._timer: Timer | None = None
        self._closed = False
        quorum.on_leader_change(self._leader_changed)

    def send(
        self,
        request: WireRequest[Resp],
        done: Callable[[Resp], object],
        failed: Failed,
        *,
        timeout_s: float,
    ) -> None:
        """Try until there is a response or the time is over (REQUEST_TIMED_OUT)."""
        self._send(_Waiting(request, done, failed, self._clock.monotonic() + timeout_s))

    def close(self) -> None:
        """Fail all waiting requests."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._peer is not None:
            self._peer.close()
        waiting, self._waiting = self._waiting, []
        for request in waiting:
            request.failed(_closed())

    def _send(self, waiting: _Waiting[Resp]) -> None:
        left_s = waiting.deadline - self._clock.monotonic()
        if self._closed:
            waiting.failed(_closed())
        elif left_s <= 0:
            waiting.failed(
                ApiException(ErrorCode.REQUEST_TIMED_OUT, "No active controller answered in time.")
            )
        elif self._serve is not None and self._quorum.is_leader:
            self._serve(waiting.request, lambda response: self._answered(waiting, response))
        elif (endpoint := self._quorum.leader_endpoint) is not None:
            self._peer_at(endpoint).send(
                waiting.request,
                lambda response: self._answered(waiting, response),
                lambda failure: self._failed(waiting, failure),
                timeout_s=left_s,
            )
        else:
            self._wait(waiting)

    def _peer_at(self, endpoint: Endpoint) -> Peer:
        peer = self._peer
        if peer is None or peer.endpoint != endpoint:
            self._peer = self._peers.open(endpoint, "to-controller")
            if peer is not None:
                # Its open requests fail, and are sent to the new one.
                peer.close()
            peer = self._peer
        return peer

    def _answered(self, waiting: _Waiting[Resp], response: Resp) -> None:
        if reports(response, ErrorCode.NOT_CONTROLLER):
            self._wait(waiting)
        else:
            waiting.done(response)

    def _failed(self, waiting: _Waiting[Resp], failure: PeerFailure) -> None:
        code = _GIVEN_UP.get(failure)
        if code is None:
            self._wait(waiting)
        else:
            waiting.failed(ApiException(code, f"The request did not reach the controller: {failure.value}."))

    def _wait(self, waiting: _Waiting[Resp]) -> None:
        if self._closed or len(self._waiting) >= MAX_WAITING_FOR_CONTROLLER:
            waiting.failed(
                _closed()
                if self._closed
                else ApiException(ErrorCode.REQUEST_TIMED_OUT, "Too many requests wait for a controller.")
            )
            return
        self._waiting.append(waiting)
        if self._timer is None:
            self._timer = self._clock.call_later(_RETRY_S, self._send_again)

    def _leader_changed(self, leader_id: int | None, epoch: int) -> None:
        endpoint = self._quorum.leader_endpoint
        if self._peer is not None and self._peer.endpoint != endpoint:
            peer, self._peer = self._peer, None
            peer.close()
        if leader_id is not None and self._waiting and self._timer is not None:
            # In a later turn of the loop: the quorum is still notifying others.
            self._timer.cancel()
            self._timer = self._clock.call_later(0, self._send_again)

    def _send_again(self) -> None:
        self._timer = None
        waiting, self._waiting = self._waiting, []
        for request in waiting:
            self._send(request)


def _closed() -> ApiException:
    return ApiException(ErrorCode.NOT_CONTROLLER, "This node is stopping.")
