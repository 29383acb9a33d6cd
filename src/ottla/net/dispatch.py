"""From a frame to a handler: headers, versions, decoding, errors.

The connection cuts frames and writes responses; the handlers know what a request means.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, cast

from ottla.api.audit import note_change
from ottla.api.authorization import check
from ottla.api.base import BY_HANDLER, NO_RESPONSE, PARKED, UNEXPECTED, UNSTABLE_VERSIONS, AnyApi
from ottla.api.forwarding.request_forwarding import forward_request
from ottla.api.node_requests import check_sender
from ottla.counters import NodeCounters, RequestCounters
from ottla.errors import ApiException, ErrorCode
from ottla.net.metered_request import MeteredRequest
from ottla.net.produce_turn import ProduceTurn
from ottla.net.request import Request
from ottla.wire.apis import ApiKey
from ottla.wire.classes import WireRequest, WireResponse
from ottla.wire.codec import decode_prefix
from ottla.wire.errors import DecodeError
from ottla.wire.headers import decode_request_header, read_request_start
from ottla.wire.messages import request_class

if TYPE_CHECKING:
    from ottla.broker.services import Broker, Node
    from ottla.log.write_gate import WriteGate
    from ottla.net.connection import Connection
    from ottla.wire.messages import OffsetCommitRequest, ProduceRequest

_logger = logging.getLogger(__name__)
_PRODUCE: Final = int(ApiKey.PRODUCE)
_OFFSET_COMMIT: Final = int(ApiKey.OFFSET_COMMIT)
_LEARNED: Final = (_PRODUCE, _OFFSET_COMMIT)
_LEARN_EACH: Final = 64
"""One request in this many that are not like the one before is looked at for what the next ones may share."""


_Served = tuple[AnyApi, type[WireRequest[WireResponse]], "WriteGate | None", RequestCounters]
"""An API, the class of its requests, the gate that they have to pass, if any, and what counts them."""


class Dispatcher:
    """Serves the APIs of one kind of listener."""

    __slots__ = ("_apis", "_counters", "_gate", "_node", "_quotas", "_served", "_turn")

    def __init__(
        self,
        node: Node,
        apis: Mapping[int, AnyApi],
        gate: WriteGate | None = None,
        counters: NodeCounters | None = None,
    ) -> None:
        self._node = node
        self._quotas = node.quotas
        self._counters = counters or NodeCounters()
        self._apis = apis
        self._gate = gate
        """Holds back requests of gated APIs while the disk cannot keep up."""
        self._turn = ProduceTurn(cast("Broker", node), self._dispatch_admitted)
        self._served: dict[tuple[int, int], _Served] = {}
        """The APIs that were asked for so far, by key and version."""

    def api(self, key: int) -> AnyApi:
        """An API that this listener serves. KeyError for others."""
        return self._apis[key]

    def counters(self, key: int) -> RequestCounters:
        """What counts the requests of an API."""
        return self._counters.request(key, with_followers=key == ApiKey.FETCH)

    def dispatch(self, connection: Connection, frame: memoryview, now: float) -> None:
        """Take one request: answer it, park it, hold its connection, or close it."""
        began = connection.monotonic() if self._quotas.enabled else None
        if connection.repeated_produce is not None:
            if connection.waits_for_turn:
                self._turn.append_all()
            if self._repeats(connection, frame, now, began):
                return
        elif (
            connection.repeated_commit is not None
            and began is None
            and self._repeats_commit(connection, frame, now)
        ):
            return
        self._dispatch_whole(connection, frame, now, began)

    def _dispatch_admitted(self, connection: Connection, frame: memoryview, now: float) -> None:
        """Take a request that has passed the gate: it is no longer in its connection's buffer."""
        self._dispatch_whole(connection, frame, now, None, admitted=True)

    def _dispatch_whole(
        self,
        connection: Connection,
        frame: memoryview,
        now: float,
        began: float | None,
        *,
        admitted: bool = False,
    ) -> None:
        try:
            key, version, correlation_id, client_id, offset = read_request_start(frame)
            served = self._served.get((key, version)) or self._look_up(connection, key, version)
            if served is None:
                if key == ApiKey.API_VERSIONS:
                    self._answer_unknown_version(connection, correlation_id, now)
                return
            api, asked, gate, counters = served
            if gate is not None and not admitted and not gate.admits(len(frame)):
                connection.hold(gate)
                return
            # As in Kafka, trailing bytes are ignored: librdkafka sends three when it asks for all topics.
            message, _ = decode_prefix(asked, version, frame, offset)
        except DecodeError as error:
            _logger.warning("Closing %s: %s", connection.client.connection_id, error.message)
            connection.close()
            return
        request: Request
        if began is None or not api.throttled:
            request = Request(connection, api, version, correlation_id, client_id, now, counters)
        else:
            measures = connection.measures
            if not measures.in_force or measures.client_id != client_id:
                measures = self._quotas.measures(connection.client.principal, client_id, began)
                connection.measures = measures
            measures.used_s = began
            request = metered = MeteredRequest(
                connection, api, version, correlation_id, client_id, now, counters
            )
            metered.known_meter = None
            metered.produced_bytes = len(frame) if key == _PRODUCE else 0
        connection.add(request)
        if api.forward and not request.on_controller_listener:
            request.frame = bytes(frame)
            if not self._node.is_controller:
                self.forward(request)
                return
        if counters.sampled():
            request.began = connection.monotonic()
            self._handle(request, message)
            if request.buffers is None:
                request.handled_at = connection.monotonic()
        else:
            self._handle(request, message)
        if key in _LEARNED and not connection.pending:
            self._learn(connection, request, frame, message)

    def _repeats(self, connection: Connection, frame: memoryview, now: float, began: float | None) -> bool:
        """Answer a Produce request that is like those before it. False: it needs `dispatch`."""
        repeated = connection.repeated_produce
        if repeated is None or connection.pending or connection.closing:
            return False
        authorizer = self._node.authorizer
        if authorizer is not None and not connection.may_write(repeated.key, authorizer.generation):
            return False
        measures = connection.measures
        if began is not None and not (measures.in_force and measures.client_id == repeated.client_id):
            return False
        _, _, gate, counters = self._served[_PRODUCE, repeated.version]
        if not counters.unsampled() or (gate is not None and not gate.admits(len(frame))):
            return False
        # A right may be taken away before the turn ends, and a client above its quota is muted at once. So requests
        # of clients with rights or quotas are answered now.
        if (
            authorizer is None
            and began is None
            and self._turn.takes(connection, repeated, frame, now, counters)
        ):
            return True
        response = repeated.answer(cast("Broker", self._node), frame)
        if response is None:
            return False
        if began is None:
            connection.answered_at_once(response, repeated.version, now, counters)
            return True
        # The request counts against the quotas of its client as a `MeteredRequest` does.
        charged_at = measures.used_s = connection.monotonic()
        throttle_ms = measures.charge(measures.produce, len(frame), charged_at - began, charged_at)
        if throttle_ms:
            connection.mute(throttle_ms / 1000)
            response = repeated.throttled(response, throttle_ms)
        connection.answered_at_once(response, repeated.version, now, counters)
        if measures.request is not None:
            measures.carried_s += connection.monotonic() - charged_at
        return True

    def _repeats_commit(self, connection: Connection, frame: memoryview, now: float) -> bool:
        """Answer an OffsetCommit request that is like those before it. False: it needs `dispatch`."""
        repeated = connection.repeated_commit
        if repeated is None or self._node.authorizer is not None or connection.pending or connection.closing:
            return False
        if not repeated.reads(frame):
            return False
        counters = self._served[_OFFSET_COMMIT, repeated.version][3]
        if not counters.unsampled():
            return False
        response = repeated.answer(cast("Broker", self._node))
        if response is None:
            return False
        connection.answered_at_once(response, repeated.version, now, counters)
        return True

    def _learn(
        self,
        connection: Connection,
        request: Request,
        frame: memoryview,
        message: WireRequest[WireResponse],
    ) -> None:
        connection.requests_until_learning -= 1
        if connection.requests_until_learning:
            return
        connection.requests_until_learning = _LEARN_EACH
        # The first answer of a node needs neither of these modules.
        if request.api_key == _PRODUCE:
            from ottla.api.data.produce_repeated import repeated_produce

            produced = cast("ProduceRequest", message)
            connection.repeated_produce = repeated_produce(
                request.version, frame, produced, request.client_id
            )
        else:
            from ottla.api.groups.offset_commit_repeated import repeated_offset_commit

            commit = cast("OffsetCommitRequest", message)
            connection.repeated_commit = repeated_offset_commit(
                cast("Broker", self._node), request, frame, commit
            )

    def _look_up(self, connection: Connection, key: int, version: int) -> _Served | None:
        """The API, if it is served in this version. As in Kafka, the connection of other clients is closed."""
        api = self._apis.get(key)
        if api is not None and (version in api.versions or self._offers(api, version)):
            gate = self._gate if api.gated else None
            served = self._served[key, version] = api, request_class(key), gate, self.counters(key)
            return served
        if key != ApiKey.API_VERSIONS:
            name = ApiKey(key).name if key in ApiKey.__members__.values() else str(key)
            _logger.warning(
                "Closing %s: it sent a request of API %s in version %d, which this listener does not serve",
                connection.client.connection_id,
                name,
                version,
            )
            connection.close()
        return None

    def _offers(self, api: AnyApi, version: int) -> bool:
        """Whether a version is in development and this node offers those."""
        return version in api.unstable_versions and self._node.config.bool(UNSTABLE_VERSIONS)

    def _answer_unknown_version(self, connection: Connection, correlation_id: int, now: float) -> None:
        api = self._apis[ApiKey.API_VERSIONS]
        request = Request(connection, api, 0, correlation_id, None, now, self.counters(ApiKey.API_VERSIONS))
        connection.add(request)
        error = ApiException(ErrorCode.UNSUPPORTED_VERSION, "this version of ApiVersions is not supported")
        self._fail(request, None, error)

    def _handle(self, request: Request, message: WireRequest[WireResponse]) -> None:
        node, api = self._node, request.api
        try:
            if node.authorizer is not None and api.needs is not BY_HANDLER:
                check(node, api, request, message)
            if api.forward and node.audit is not None:
                note_change(node, request, message)
            if api.claims is not None:
                check_sender(node, api, request, message)
            answer = api.handle(node, request, message)
        except ApiException as error:
            self._fail(request, message, error)
        except Exception:
            # An error in one request must not stop the broker.
            _logger.exception("Unexpected error in a request of API %s", request)
            self._fail(request, message, UNEXPECTED)
        else:
            if answer is NO_RESPONSE:
                request.no_response()
            elif answer is PARKED:
                request.parked()
            else:
                request.respond(answer)

    def forward(self, request: Request) -> None:
        """Have the active controller answer the request."""
        frame, request.frame = request.frame, None
        assert frame is not None
        request.parked()

        def answered(answer: bytes) -> None:
            if request.buffers is None and not request.closed:
                request.forwarded_answer(answer)

        def failed(error: ApiException) -> None:
            if request.closed:
                return
            _, offset = decode_request_header(frame)
            message, _ = decode_prefix(request_class(request.api_key), request.version, frame, offset)
            self._fail(request, message, error)

        forward_request(self._node, request, frame, answered, failed)

    def _fail(self, request: Request, message: WireRequest[WireResponse] | None, error: ApiException) -> None:
        if request.buffers is not None:
            return
        try:
            answer = request.api.error_answer(request, message, error)
        except Exception:
            _logger.exception(
                "The error of a request of API %s cannot be reported; closing its connection", request
            )
            request.complete([], 0)
            request.abort()
        else:
            request.respond(answer)
