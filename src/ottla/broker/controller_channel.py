"""The way to the active controller: finds it, asks it, and looks again when it was not the one or has gone.

On the active controller's own node nothing goes over the network, but the same handlers answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from ottla.errors import ApiException, ErrorCode
from ottla.limits import MAX_WAITING_FOR_CONTROLLER
from ottla.peers import Endpoint, Message, Peer, PeerFailure, Peers

if TYPE_CHECKING:
    from ottla.clock import Clock, Timer

Done = Callable[[Message], object]
Failed = Callable[[ApiException], object]
Serve = Callable[[Message, Done], None]
"""Answers a request in this process, as a controller listener of this node would."""

_LOOK_AGAIN_S: Final = 0.05
"""Pause before asking again where nothing tells of a new leader."""
_GIVEN_UP: Final = {
    PeerFailure.UNSUPPORTED_VERSION: ErrorCode.UNSUPPORTED_VERSION,
    PeerFailure.OVERLOADED: ErrorCode.REQUEST_TIMED_OUT,
}
"""Failures that another attempt would not mend."""


class Quorum(Protocol):
    """What is to be known of the metadata quorum."""

    @property
    def is_leader(self) -> bool: ...

    @property
    def leader_endpoint(self) -> Endpoint | None: ...

    def on_leader_change(self, callback: Callable[[int | None, int], object]) -> None: ...


class _Asked:
    __slots__ = ("deadline", "done", "failed", "request")

    def __init__(self, request: Message, done: Done, failed: Failed, deadline: float) -> None:
        self.request = request
        self.done = done
        self.failed = failed
        self.deadline = deadline


class ControllerChannel:
    """Requests of this node to the active controller. One of the two callbacks comes, on the event loop.

    It may come before `send` has returned when this node is the controller.
    """

    def __init__(self, quorum: Quorum, peers: Peers, clock: Clock, serve: Serve | None) -> None:
        """`serve` is None on a node without the controller role."""
        self._quorum = quorum
        self._peers = peers
        self._clock = clock
        self._serve = serve
        self._peer: Peer | None = None
        self._waiting: list[_Asked] = []
        """To be asked again when there is a new leader, or after a pause."""
        self._timer: Timer | None = None
        self._closed = False
        quorum.on_leader_change(self._leader_changed)

    def send(self, request: Message, done: Done, failed: Failed, *, timeout_s: float) -> None:
        """Ask until there is an answer or the time is up (REQUEST_TIMED_OUT)."""
        self._ask(_Asked(request, done, failed, self._clock.monotonic() + timeout_s))

    def close(self) -> None:
        """Fail what waits."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._peer is not None:
            self._peer.close()
        waiting, self._waiting = self._waiting, []
        for asked in waiting:
            asked.failed(_closed())

    def _ask(self, asked: _Asked) -> None:
        left_s = asked.deadline - self._clock.monotonic()
        if self._closed:
            asked.failed(_closed())
        elif left_s <= 0:
            asked.failed(
                ApiException(ErrorCode.REQUEST_TIMED_OUT, "No active controller has answered in time.")
            )
        elif self._serve is not None and self._quorum.is_leader:
            self._serve(asked.request, lambda response: self._answered(asked, response))
        elif (endpoint := self._quorum.leader_endpoint) is not None:
            self._peer_at(endpoint).send(
                asked.request,
                lambda response: self._answered(asked, response),
                lambda failure: self._failed(asked, failure),
                timeout_s=left_s,
            )
        else:
            self._wait(asked)

    def _peer_at(self, endpoint: Endpoint) -> Peer:
        peer = self._peer
        if peer is None or peer.endpoint != endpoint:
            self._peer = self._peers.open(endpoint, "to-controller")
            if peer is not None:
                # What it has not answered fails, and is asked of the new one.
                peer.close()
            peer = self._peer
        return peer

    def _answered(self, asked: _Asked, response: Message) -> None:
        if mentions(response, ErrorCode.NOT_CONTROLLER):
            self._wait(asked)
        else:
            asked.done(response)

    def _failed(self, asked: _Asked, failure: PeerFailure) -> None:
        code = _GIVEN_UP.get(failure)
        if code is None:
            self._wait(asked)
        else:
            asked.failed(ApiException(code, f"The controller cannot be asked: {failure.value}."))

    def _wait(self, asked: _Asked) -> None:
        if self._closed or len(self._waiting) >= MAX_WAITING_FOR_CONTROLLER:
            asked.failed(
                _closed()
                if self._closed
                else ApiException(ErrorCode.REQUEST_TIMED_OUT, "Too many requests wait for a controller.")
            )
            return
        self._waiting.append(asked)
        if self._timer is None:
            self._timer = self._clock.call_later(_LOOK_AGAIN_S, self._ask_again)

    def _leader_changed(self, leader_id: int | None, epoch: int) -> None:
        endpoint = self._quorum.leader_endpoint
        if self._peer is not None and self._peer.endpoint != endpoint:
            peer, self._peer = self._peer, None
            peer.close()
        if leader_id is not None and self._waiting and self._timer is not None:
            # In a turn of its own: whoever tells us is still telling others.
            self._timer.cancel()
            self._timer = self._clock.call_later(0, self._ask_again)

    def _ask_again(self) -> None:
        self._timer = None
        waiting, self._waiting = self._waiting, []
        for asked in waiting:
            self._ask(asked)


def _closed() -> ApiException:
    return ApiException(ErrorCode.NOT_CONTROLLER, "This node is stopping.")


def mentions(response: Message, code: ErrorCode) -> bool:
    """Whether a response tells this error, for itself or for something in it."""
    if getattr(response, "error_code", ErrorCode.NONE) == code:
        return True
    for name in response.__struct_fields__:
        value = getattr(response, name)
        if type(value) is list and any(
            hasattr(item, "__struct_fields__") and mentions(item, code) for item in value
        ):
            return True
    return False
