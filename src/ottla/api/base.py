"""What every API file is written against: the declaration of an API, and the request it answers.

A handler is a plain function `(broker, ctx, request) -> Answer`. It returns the response message at once, or
`PARKED` and calls `ctx.respond` later on the event loop, or `NO_RESPONSE`. It may raise `ApiException`.
Memory views inside `request` (record batches) are valid only until the handler returns: copy what is kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from enum import Enum
from typing import Any, Final

import msgspec

from ottla.errors import ApiException, ErrorCode
from ottla.wire.apis import API_VERSIONS
from ottla.wire.messages import response_class


class _Outcome(Enum):
    PARKED = "parked"
    NO_RESPONSE = "no response"


PARKED = _Outcome.PARKED
"""The answer comes later, through `ctx.respond`."""

NO_RESPONSE = _Outcome.NO_RESPONSE
"""The client expects no answer (Produce with acks=0)."""

Message = Any
"""A message class instance compiled from the schema table (see `ottla.wire.messages`)."""

Answer = Message | _Outcome
Handler = Callable[[Any, "RequestContext", Message], Answer]
"""Called with a `Broker`, or on a controller listener with a `Node`."""
ErrorAnswer = Callable[["RequestContext", Message, ApiException], Message]


class RequestContext(ABC):
    """One request in flight: who asks, in which version, and the one way to answer."""

    __slots__ = ()

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    principal: str
    client_host: str
    listener_name: str
    local_host: str
    """The address by which the client reached us: what an unset `advertised.listeners` answers."""
    local_port: int
    on_controller_listener: bool
    """The request came in on a listener of `controller.listener.names`."""
    forwarded: bool = False
    """A broker has passed it on, in an envelope."""
    connection_id: str
    received_at: float
    """On the monotonic clock, in seconds."""

    @abstractmethod
    def respond(self, response: Message) -> None:
        """Answer the request, once. Later calls and calls after the client has gone do nothing."""

    @abstractmethod
    def abort(self) -> None:
        """Close the connection instead of answering: the only way to tell an acks=0 producer of an error."""

    @property
    @abstractmethod
    def closed(self) -> bool:
        """The client has gone: a parked request need not be answered any more."""

    @abstractmethod
    def on_close(self, callback: Callable[[], None]) -> None:
        """Call back once when the client goes away before the answer (to drop what the request parked)."""

    @abstractmethod
    def on_disconnect(self, key: Hashable, callback: Callable[[], None]) -> None:
        """Call back when the client goes away, whenever that is (to drop what lives as long as its connection).

        A later callback with the same key takes the place of the earlier one.
        """


class Api(msgspec.Struct, frozen=True):
    """An API that this broker serves. `min_version`/`max_version` are what ApiVersions tells clients."""

    key: int
    min_version: int
    max_version: int
    handle: Handler
    on_error: ErrorAnswer | None = None
    """Builds the answer for an error that concerns the whole request. Left out, the response's own
    `error_code` (and `error_message`) is set; an API whose response has none must give one."""
    forward: bool = False
    """The active controller answers it: a broker passes it on as it came."""

    def serves(self, version: int) -> bool:
        """Whether requests of this version are answered.

        Narrower than what ApiVersions tells for Produce: Kafka advertises it from 0 for the sake of old
        librdkafka clients, but answers from 3.
        """
        return max(self.min_version, API_VERSIONS[self.key].min_version) <= version <= self.max_version

    def error_answer(self, ctx: RequestContext, request: Message, error: ApiException) -> Message:
        """The answer that says that the whole request failed."""
        if self.on_error is not None:
            return self.on_error(ctx, request, error)
        cls = response_class(self.key)
        fields: dict[str, Any] = {"error_code": error.code}
        if "error_message" in cls.__struct_fields__:
            fields["error_message"] = error.message
        return cls(**fields)


UNEXPECTED: Final = ApiException(
    ErrorCode.UNKNOWN_SERVER_ERROR, "The server experienced an unexpected error."
)
