"""Envelope (key 58), version 0.

A client's request that a broker forwards to the active controller, with the client's identity.

The request inside is handled as if the client had sent it here. Its whole response, with the header, goes back inside
the envelope. When this node is not the active controller, the envelope's own error is NOT_CONTROLLER, and the broker
looks for another node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import PARKED, Api, Outcome, RequestContext, Right
from ottla.api.forwarding.local_requests import InnerRequest, serve
from ottla.api.forwarding.request_forwarding import SIZE_BYTES, decode_address, decode_principal
from ottla.api.throttling import Meter
from ottla.broker.response_errors import reports
from ottla.errors import ApiException, ErrorCode
from ottla.wire.apis import API_VERSIONS, ApiKey
from ottla.wire.codec import decode_prefix
from ottla.wire.enums import AclOperation
from ottla.wire.errors import DecodeError
from ottla.wire.headers import decode_request_header, encode_response
from ottla.wire.messages import EnvelopeResponse, request_class

if TYPE_CHECKING:
    from ottla.broker.services import Node
    from ottla.wire.classes import WireResponse
    from ottla.wire.messages import EnvelopeRequest


def handle(node: Node, ctx: RequestContext, request: EnvelopeRequest) -> EnvelopeResponse | Outcome:
    # Imported here because the registry lists this module.
    from ottla.api.registry import supported

    try:
        # In the order in which Kafka looks at them.
        principal, by_token = _principal(request)
        host = decode_address(request.client_host_address)
        header, offset = decode_request_header(request.request_data)
        key, version = header.request_api_key, header.request_api_version
        api = supported(on_controller_listener=True).get(key)
        if api is None or not API_VERSIONS[key].forwardable:
            raise ApiException(ErrorCode.INVALID_REQUEST, f"API {key} cannot be forwarded in an envelope")
        if version not in api.versions:
            raise ApiException(
                ErrorCode.UNSUPPORTED_VERSION, f"version {version} of API {key} is not supported"
            )
        message, _ = decode_prefix(request_class(key), version, request.request_data, offset)
    except (DecodeError, ValueError) as error:
        raise ApiException(ErrorCode.INVALID_REQUEST, f"the envelope cannot be decoded: {error}") from error

    def respond(response: WireResponse) -> None:
        if reports(response, ErrorCode.NOT_CONTROLLER):
            ctx.respond(EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER))
            return
        frame = b"".join(encode_response(header.correlation_id, response, version))
        ctx.respond(EnvelopeResponse(response_data=frame[SIZE_BYTES:]))

    inner = InnerRequest(
        respond,
        api_key=key,
        version=version,
        correlation_id=header.correlation_id,
        client_id=header.client_id,
        principal=principal,
        client_host=host,
        received_at=ctx.received_at,
        outer=ctx,
        token_authenticated=by_token,
        meter=_meter(node, principal, header.client_id) if api.throttled else None,
    )
    serve(node, api, inner, message)
    return PARKED


def _principal(request: EnvelopeRequest) -> tuple[str, bool]:
    try:
        return decode_principal(request.request_principal)
    except (DecodeError, ValueError) as error:
        raise ApiException(
            ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE,
            f"the envelope's principal cannot be decoded: {error}",
        ) from error


def _meter(node: Node, principal: str, client_id: str | None) -> Meter | None:
    """Measures the client's request here; the broker only keeps it waiting."""
    if not node.quotas.enabled:
        return None
    monotonic = node.clock.monotonic
    now = monotonic()
    return Meter(node.quotas.measures(principal, client_id, now), monotonic, now)


API = Api(
    ApiKey.ENVELOPE,
    handle,
    throttled=False,
    needs=(Right(AclOperation.CLUSTER_ACTION),),
    claims=lambda request: (),
)
