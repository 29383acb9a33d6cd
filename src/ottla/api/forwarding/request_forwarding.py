"""Forwards clients' requests from a broker to the active controller, each in an envelope with the client's identity."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar, cast

from ottla.errors import ApiException, ErrorCode
from ottla.wire.codec import decode, decode_prefix, encode
from ottla.wire.errors import DecodeError
from ottla.wire.headers import decode_response_header, encode_request
from ottla.wire.messages import DefaultPrincipalData, EnvelopeRequest, response_class

if TYPE_CHECKING:
    from ottla.api.base import RequestContext
    from ottla.broker.services import Node
    from ottla.wire.classes import WireRequest, WireResponse
    from ottla.wire.messages import EnvelopeResponse

Resp = TypeVar("Resp", bound="WireResponse")

SIZE_BYTES: Final = 4
"""The length of the size in front of a frame."""

_VERSION: Final = struct.Struct(">h")


def forward_request(
    node: Node,
    ctx: RequestContext,
    frame: bytes,
    done: Callable[[bytes], object],
    failed: Callable[[ApiException], object],
) -> None:
    """Send a request (header and body) to the active controller. `done` gets the response's frame without its size."""

    def on_response(response: EnvelopeResponse) -> None:
        code = response.error_code
        if code == ErrorCode.NONE and response.response_data is not None:
            done(response.response_data)
        elif code == ErrorCode.UNSUPPORTED_VERSION:
            failed(
                ApiException(ErrorCode.UNSUPPORTED_VERSION, "the controller does not support this version")
            )
        else:
            # An error between nodes is not the client's fault.
            failed(ApiException(ErrorCode.UNKNOWN_SERVER_ERROR, f"the controller answered {code}"))

    request = EnvelopeRequest(
        request_data=frame,
        request_principal=_encode_principal(ctx.principal, ctx.token_authenticated),
        client_host_address=_encode_address(ctx.client_host),
    )
    timeout_s = node.config.int("request.timeout.ms") / 1000
    node.to_controller.send(request, on_response, failed, timeout_s=timeout_s)


def forward_part(
    node: Node,
    ctx: RequestContext,
    request: WireRequest[Resp],
    done: Callable[[Resp], object],
    failed: Callable[[ApiException], object],
) -> None:
    """Send the part of a client's request that this node has not handled itself to the active controller."""
    version = ctx.version
    frame = b"".join(encode_request(ctx.correlation_id, ctx.client_id, request, version))

    def on_frame(data: bytes) -> None:
        key = request.API_KEY
        try:
            _, offset = decode_response_header(key, version, data)
            response, _ = decode_prefix(response_class(key), version, data, offset)
        except DecodeError as error:
            failed(
                ApiException(
                    ErrorCode.UNKNOWN_SERVER_ERROR, f"the controller's response cannot be decoded: {error}"
                )
            )
            return
        done(cast("Resp", response))

    forward_request(node, ctx, frame[SIZE_BYTES:], on_frame, failed)


# The client's identity in an envelope


def _encode_principal(principal: str, token_authenticated: bool) -> bytes:
    kind, _, name = principal.partition(":")
    data = DefaultPrincipalData(type=kind, name=name, token_authenticated=token_authenticated)
    return _VERSION.pack(0) + encode(data, 0)


def decode_principal(data: bytes | None) -> tuple[str, bool]:
    """The client's principal, and whether it has logged in with a delegation token. Raises DecodeError."""
    if data is None or len(data) < _VERSION.size:
        raise DecodeError("the envelope has no principal")
    version = _VERSION.unpack_from(data)[0]
    if version != 0:
        raise DecodeError(f"version {version} of principals is not supported")
    principal = decode(DefaultPrincipalData, version, data[_VERSION.size :])
    return f"{principal.type}:{principal.name}", principal.token_authenticated


def _encode_address(host: str) -> bytes:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).packed
    except ValueError:
        return ipaddress.IPv4Address(0).packed


def decode_address(data: bytes) -> str:
    """The client's address. Raises ValueError."""
    return str(ipaddress.ip_address(bytes(data)))
