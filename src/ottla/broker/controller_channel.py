"""Sends requests to the active controller: finds it, and retries if another node has become the controller.

On the active controller's own node the same handlers answer without the network.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from ottla.errors import ApiException, ErrorCode
from ottla.limits import MAX_WAITING_FOR_CONTROLLER
from ottla.peers import Endpoint, Peer, PeerFailure, Peers, Resp
from ottla.wire.classes import WireRequest, WireResponse, WireStruct

if TYPE_CHECKING:
    from ottla.clock import Clock, Timer

Failed = Callable[[ApiException], object]
Serve = Callable[[WireRequest[WireResponse], Callable[[WireResponse], object]], None]
"""Answers a request in this process, as a controller listener of this node would."""

_RETRY_S: Final = 0.05
"""The back-off before a retry, unless a new leader is elected earlier."""
_FINAL_FAILURES: Final = {
    PeerFailure.UNSUPPORTED_VERSION: ErrorCode.UNSUPPORTED_VERSION,
    PeerFailure.OVERLOADED: ErrorCode.REQUEST_TIMED_OUT,
}
"""Failures that a retry would not fix."""


class Quorum(Protocol):
    """The state of the metadata quorum that the channel uses."""

    @property
    def is_leader(self) -> bool: ...

    @property
    def leader_endpoint(self) -> Endpoint | None: ...

    def on_leader_change(self, callback: Callable[[int | None, int], object]) -> None: ...


class _Pending:
    """A request without a response so far."""

    __slots__ = ("deadline", "done", "failed", "request")

    def __init__(
        self,
        request: WireRequest[Resp],
        done: Callable[[Resp], object],
        failed: Failed,
        deadline: float,
    ) -> None:
        self.request: WireRequest[WireResponse] = request
        # The response of this request is of the type that `done` takes.
        self.done: Callable[[WireResponse], object] = done  # type: ignore[assignment]
        self.failed = failed
        self.deadline = deadline


class ControllerChannel:
    """Requests of this node to the active controller. One of two callbacks is called, on the event loop.

    It can be called before `send` returns if this node is the controller.
    """

    def __init__(self, quorum: Quorum, peers: Peers, clock: Clock, serve: Serve | None) -> None:
        """`serve` is None on a node without the controller role."""
        self._quorum = quorum
        self._peers = peers
        self._clock = clock
        self._serve = serve
        self._peer: Peer | None = None
        self._waiting: list[_Pending] = []
        """Requests to retry when there is a new leader, or after the back-off."""
        self._timer: Timer | None = None
        self._closed = False
        quorum.on_leader_change(self._leader_changed)

    def send(
        self, request: WireRequest[Resp], done: Callable[[Resp], object], failed: Failed, *, timeout_s: float
    ) -> None:
        """Retry until there is a response or the time is up (REQUEST_TIMED_OUT)."""
        self._send(_Pending(request, done, failed, self._clock.monotonic() + timeout_s))

    def close(self) -> None:
        """Fail the requests that wait."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._peer is not None:
            self._peer.close()
        waiting, self._waiting = self._waiting, []
        for pending in waiting:
            pending.failed(_closed())

    def _send(self, pending: _Pending) -> None:
        left_s = pending.deadline - self._clock.monotonic()
        if self._closed:
            pending.failed(_closed())
        elif left_s <= 0:
            pending.failed(
                ApiException(ErrorCode.REQUEST_TIMED_OUT, "No active controller answered in time.")
            )
        elif self._serve is not None and self._quorum.is_leader:
            self._serve(pending.request, lambda response: self._answered(pending, response))
        elif (endpoint := self._quorum.leader_endpoint) is not None:
            self._peer_at(endpoint).send(
                pending.request,
                lambda response: self._answered(pending, response),
                lambda failure: self._failed(pending, failure),
                timeout_s=left_s,
            )
        else:
            self._wait(pending)

    def _peer_at(self, endpoint: Endpoint) -> Peer:
        peer = self._peer
        if peer is None or peer.endpoint != endpoint:
            self._peer = self._peers.open(endpoint, "to-controller")
            if peer is not None:
                # Its unanswered requests fail, and are sent to the new controller.
                peer.close()
            peer = self._peer
        return peer

    def _answered(self, pending: _Pending, response: WireResponse) -> None:
        if mentions(response, ErrorCode.NOT_CONTROLLER):
            self._wait(pending)
        else:
            pending.done(response)

    def _failed(self, pending: _Pending, failure: PeerFailure) -> None:
        code = _FINAL_FAILURES.get(failure)
        if code is None:
            self._wait(pending)
        else:
            pending.failed(
                ApiException(code, f"The request cannot be sent to the controller: {failure.value}.")
            )

    def _wait(self, pending: _Pending) -> None:
        if self._closed or len(self._waiting) >= MAX_WAITING_FOR_CONTROLLER:
            pending.failed(
                _closed()
                if self._closed
                else ApiException(
                    ErrorCode.REQUEST_TIMED_OUT, "Too many requests wait for an active controller."
                )
            )
            return
        self._waiting.append(pending)
        if self._timer is None:
            self._timer = self._clock.call_later(_RETRY_S, self._retry)

    def _leader_changed(self, leader_id: int | None, epoch: int) -> None:
        endpoint = self._quorum.leader_endpoint
        if self._peer is not None and self._peer.endpoint != endpoint:
            peer, self._peer = self._peer, None
            peer.close()
        if leader_id is not None and self._waiting and self._timer is not None:
            # In a separate turn, because other listeners have not seen this change yet.
            self._timer.cancel()
            self._timer = self._clock.call_later(0, self._retry)

    def _retry(self) -> None:
        self._timer = None
        waiting, self._waiting = self._waiting, []
        for pending in waiting:
            self._send(pending)


def _closed() -> ApiException:
    return ApiException(ErrorCode.NOT_CONTROLLER, "This node is stopping.")


def mentions(response: WireStruct, code: ErrorCode) -> bool:
    """Whether a response contains this error, as its own error or in a struct inside."""
    if getattr(response, "error_code", ErrorCode.NONE) == code:
        return True
    for name in response.__struct_fields__:
        value = getattr(response, name)
        if type(value) is list and any(
            hasattr(item, "__struct_fields__") and mentions(item, code) for item in value
        ):
            return True
    return False
