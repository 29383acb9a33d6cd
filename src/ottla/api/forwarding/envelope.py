"""Envelope (key 58), version 0.

A client's request that a broker passes on to the active controller, with who the client is.

The request inside is handled as if the client had asked here; its whole answer, header and all, goes back inside
the envelope. If it is not ours to answer, the envelope itself says NOT_CONTROLLER and the broker looks further.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.api.base import PARKED, Api, Message, Outcome, RequestContext
from ottla.api.forwarding.serving import InnerRequest, serve
from ottla.broker.controller_channel import mentions
from ottla.errors import ApiException, ErrorCode
from ottla.wire.apis import API_VERSIONS, ApiKey
from ottla.wire.codec import decode, decode_prefix, encode
from ottla.wire.errors import DecodeError
from ottla.wire.headers import (
    decode_request_header,
    decode_response_header,
    encode_request,
    encode_response,
)
from ottla.wire.messages import (
    DefaultPrincipalData,
    EnvelopeRequest,
    EnvelopeResponse,
    request_class,
    response_class,
)

if TYPE_CHECKING:
    from ottla.broker.services import Node

_VERSION = struct.Struct(">h")
_SIZE_BYTES = 4


def pass_on(
    node: Node,
    ctx: RequestContext,
    frame: bytes,
    done: Callable[[bytes], object],
    failed: Callable[[ApiException], object],
) -> None:
    """Have the active controller answer this request (header and body); gives the answer's bytes without their size."""

    def answered(response: Message) -> None:
        code = response.error_code
        if code == ErrorCode.NONE and response.response_data is not None:
            done(response.response_data)
        elif code == ErrorCode.UNSUPPORTED_VERSION:
            failed(ApiException(ErrorCode.UNSUPPORTED_VERSION, "the controller does not serve this version"))
        else:
            # What goes wrong between nodes is not the client's mistake.
            failed(ApiException(ErrorCode.UNKNOWN_SERVER_ERROR, f"the controller answered {code}"))

    request = EnvelopeRequest(
        request_data=frame,
        request_principal=_encode_principal(ctx.principal),
        client_host_address=_encode_address(ctx.client_host),
    )
    timeout_s = node.config.int("request.timeout.ms") / 1000
    node.to_controller.send(request, answered, failed, timeout_s=timeout_s)


def pass_on_part(
    node: Node,
    ctx: RequestContext,
    request: Message,
    done: Callable[[Message], object],
    failed: Callable[[ApiException], object],
) -> None:
    """Have the active controller answer what is left of this request when this node has done its own part."""
    version = ctx.version
    frame = b"".join(encode_request(ctx.correlation_id, ctx.client_id, request, version))

    def answered(data: bytes) -> None:
        key = request.API_KEY
        try:
            _, offset = decode_response_header(key, version, data)
            response, _ = decode_prefix(response_class(key), version, data, offset)
        except DecodeError as error:
            failed(
                ApiException(
                    ErrorCode.UNKNOWN_SERVER_ERROR, f"the controller's answer cannot be read: {error}"
                )
            )
            return
        done(response)

    pass_on(node, ctx, frame[_SIZE_BYTES:], answered, failed)


def handle(node: Node, ctx: RequestContext, request: EnvelopeRequest) -> EnvelopeResponse | Outcome:
    # Imported here because the registry lists this module.
    from ottla.api.registry import supported

    try:
        header, offset = decode_request_header(request.request_data)
        key, version = header.request_api_key, header.request_api_version
        api = supported(on_controller_listener=True).get(key)
        if api is None or not API_VERSIONS[key].forwardable:
            raise ApiException(ErrorCode.INVALID_REQUEST, f"API {key} cannot be passed on in an envelope")
        if version not in api.versions:
            raise ApiException(ErrorCode.UNSUPPORTED_VERSION, f"version {version} of API {key} is not served")
        message, _ = decode_prefix(request_class(key), version, request.request_data, offset)
        principal = _decode_principal(request.request_principal)
        host = _decode_address(request.client_host_address)
    except (DecodeError, ValueError) as error:
        raise ApiException(ErrorCode.INVALID_REQUEST, f"the envelope cannot be opened: {error}") from error

    def answered(response: Message) -> None:
        if mentions(response, ErrorCode.NOT_CONTROLLER):
            ctx.respond(EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER))
            return
        frame = b"".join(encode_response(header.correlation_id, response, version))
        ctx.respond(EnvelopeResponse(response_data=frame[_SIZE_BYTES:]))

    inner = InnerRequest(
        answered,
        api_key=key,
        version=version,
        correlation_id=header.correlation_id,
        client_id=header.client_id,
        principal=principal,
        client_host=host,
        received_at=ctx.received_at,
        outer=ctx,
    )
    serve(node, api, inner, message)
    return PARKED


def _encode_principal(principal: str) -> bytes:
    kind, _, name = principal.partition(":")
    return _VERSION.pack(0) + encode(DefaultPrincipalData(type=kind, name=name, token_authenticated=False), 0)


def _decode_principal(data: bytes | None) -> str:
    if data is None or len(data) < _VERSION.size:
        raise DecodeError("the envelope does not say whose request it holds")
    version = _VERSION.unpack_from(data)[0]
    if version != 0:
        raise DecodeError(f"version {version} of principals is not known")
    principal = decode(DefaultPrincipalData, version, data[_VERSION.size :])
    return f"{principal.type}:{principal.name}"


def _encode_address(host: str) -> bytes:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).packed
    except ValueError:
        return ipaddress.IPv4Address(0).packed


def _decode_address(data: bytes) -> str:
    return str(ipaddress.ip_address(bytes(data)))


API = Api(ApiKey.ENVELOPE, handle)
