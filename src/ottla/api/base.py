"""The declaration of an API, and the request that its handler answers. Every API file is written against this.

A handler is a plain function `(broker, ctx, request) -> response`. It returns the response message at once, or
`PARKED` and calls `ctx.respond` later on the event loop, or `NO_RESPONSE`. It may raise `ApiException`.
Memory views inside `request` (record batches) are valid only until the handler returns: copy what is kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping
from enum import Enum
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from ottla.api.throttling import Meter
from ottla.errors import ApiException, ErrorCode
from ottla.security.grants import Grants
from ottla.wire.apis import API_VERSIONS
from ottla.wire.classes import WireRequest, WireResponse
from ottla.wire.enums import AclOperation, ResourceType
from ottla.wire.messages import response_class


class Outcome(Enum):
    """What a handler returns instead of a response."""

    PARKED = "parked"
    NO_RESPONSE = "no response"


PARKED: Final = Outcome.PARKED
"""The response comes later, through `ctx.respond`."""

NO_RESPONSE: Final = Outcome.NO_RESPONSE
"""The client expects no response (Produce with acks=0)."""


class RequestContext(ABC):
    """One request in flight: its client, its version, and the one way to respond."""

    __slots__ = ()

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    principal: str
    client_host: str
    listener_name: str
    local_host: str
    """The address by which the client reached this node. It is advertised if `advertised.listeners` is unset."""
    local_port: int
    on_controller_listener: bool
    """The request arrived on a listener of `controller.listener.names`."""
    forwarded: bool = False
    """A broker forwarded the request in an envelope."""
    token_authenticated: bool = False
    """The client has logged in with a delegation token."""
    node_ids: frozenset[int] = frozenset()
    """The nodes that the client's certificate names."""
    meter: Meter | None = None
    """Measures the request against quotas; None while there are none."""
    metered: bool = False
    """There is a meter. Fetch asks here first: most of its requests need none of their own."""
    client_software: tuple[str, str] = ("unknown", "unknown")
    """The name and version of the client's library, as it reported them with ApiVersions."""
    connection_id: str
    received_at: float
    """On the monotonic clock, in seconds."""

    @property
    def grants(self) -> Grants:
        """Who the client is for the authorizer; connections keep what it has decided before."""
        return Grants(self.principal, self.client_host)

    def known_topics(self, generation: int) -> Mapping[str | bytes, int]:
        """The operations that the client may do with topics, as bits `1 << code`, by name and by id.

        Only what was decided before, by the ACLs of this generation; nothing while the audit log gets every decision.
        """
        return {}

    def max_fetch_bytes(self) -> int | None:
        """The most that a fetch may return: a larger one would be throttled for ever. None without a quota."""
        return None

    def fetched(self, size: int) -> int:
        """Count the bytes of an answer to Fetch; how long the client has to wait, in ms.

        If it has to wait it gets an empty answer, and the bytes do not count.
        """
        return 0

    @abstractmethod
    def respond(self, response: WireResponse) -> None:
        """Answer the request, once. Later calls, and calls after the client has disconnected, do nothing."""

    def note_error(self, code: int) -> None:  # noqa: B027 - only requests of clients are counted
        """Count an error code of the response. APIs whose responses are too large to be searched call it."""

    def note_software(self, name: str, version: str) -> None:  # noqa: B027 - as above
        """The client has said which library it uses."""

    def from_follower(self) -> None:  # noqa: B027 - as above
        """Count the request as a follower's, not a consumer's."""

    @abstractmethod
    def abort(self) -> None:
        """Close the connection instead of answering: the only way to report an error to an acks=0 producer."""

    @property
    @abstractmethod
    def closed(self) -> bool:
        """The client has disconnected: a parked request no longer needs a response."""

    @abstractmethod
    def on_close(self, callback: Callable[[], None]) -> None:
        """Call back once if the client disconnects before the response (to drop what the request parked)."""

    @abstractmethod
    def on_disconnect(self, key: Hashable, callback: Callable[[], None]) -> None:
        """Call back when the client disconnects, before or after the response.

        Use it to drop state that lives as long as the connection. A later callback with the same key replaces the
        earlier one.
        """


class Right(NamedTuple):
    """An operation on a resource whose name is in a field of the request; without a field, on the cluster."""

    operation: AclOperation
    kind: ResourceType = ResourceType.CLUSTER
    field: str | None = None


class Unchecked(Enum):
    """Why the dispatcher checks no right."""

    NOTHING = "every authenticated client may send it"
    BY_HANDLER = "the handler checks the items of the request"


NOTHING: Final = Unchecked.NOTHING
BY_HANDLER: Final = Unchecked.BY_HANDLER
Needs = tuple[Right, ...] | Unchecked | None


N = TypeVar("N")
"""What the handler works on: `Broker`, or `Node` if the API is served on controller listeners too."""
Req = TypeVar("Req", bound=WireRequest[WireResponse])
Resp = TypeVar("Resp", bound=WireResponse)

Handler = Callable[[N, RequestContext, Req], Resp | Outcome]
ErrorAnswer = Callable[[RequestContext, Req, ApiException], Resp]


class Api(msgspec.Struct, Generic[N, Req, Resp], frozen=True):
    """An API that this node serves, in the versions that `API_VERSIONS` calls stable."""

    key: int
    handle: Handler[N, Req, Resp]
    on_error: ErrorAnswer[Req, Resp] | None = None
    """Builds the response for an error that concerns the whole request. Without it, the response's own
    `error_code` (and `error_message`) is set; an API whose response has none must give one."""
    forward: bool = False
    """The active controller answers it: a broker forwards the request unchanged."""
    needs: Needs = None
    """The rights that the whole request needs, in the order in which they are checked; `NOTHING`, or `BY_HANDLER`
    where the handler checks the items of the request. An API that declares none is refused while there is an
    authorizer: a forgotten check must not let anyone in."""
    claims: Callable[[Req], Iterable[int]] | None = None
    """Only nodes send it: the ids of the nodes that a request says it is from. None for APIs that clients use."""
    throttled: bool = True
    """Client quotas count for it. False for requests of other nodes that must not wait."""
    gated: bool = False
    """It appends clients' records: requests wait while the node cannot write as fast as clients send."""

    @property
    def versions(self) -> range:
        """The versions that are answered: those that Kafka calls stable.

        ApiVersions reports more for Produce: Kafka advertises it from version 0 for old librdkafka clients, but
        answers from 3.
        """
        known = API_VERSIONS[self.key]
        return range(known.min_version, known.max_stable_version + 1)

    @property
    def unstable_versions(self) -> range:
        """The versions in development, which are answered only with `unstable.api.versions.enable`."""
        known = API_VERSIONS[self.key]
        return range(known.max_stable_version + 1, known.max_version + 1)

    def error_answer(self, ctx: RequestContext, request: Req, error: ApiException) -> WireResponse:
        """The response that reports that the whole request failed."""
        if self.on_error is not None:
            return self.on_error(ctx, request, error)
        cls = response_class(self.key)
        if error.message and "error_message" in cls.__struct_fields__:
            return cls(error_code=error.code, error_message=error.message)
        return cls(error_code=error.code)


AnyApi = Api[Any, Any, Any]
"""An API whose messages the caller does not know: the registry and the dispatcher hold these."""

UNSTABLE_VERSIONS: Final = "unstable.api.versions.enable"
"""The broker key that adds versions in development: of Kafka 4.3, only version 6 of InitProducerId."""

UNEXPECTED: Final = ApiException(
    ErrorCode.UNKNOWN_SERVER_ERROR, "The server experienced an unexpected error."
)
