"""Request and response headers, and whole messages with their header and length prefix.

A header's version follows from the API and its version. Responses to ApiVersions always have the oldest one,
since the client does not know the broker's versions yet.
"""

from __future__ import annotations

import struct
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from ottla.wire import messages, schema
from ottla.wire.apis import ApiKey
from ottla.wire.classes import WireRequest, WireResponse
from ottla.wire.codec import decode_prefix, encode_into
from ottla.wire.errors import DecodeError
from ottla.wire.primitives import Buffer

if TYPE_CHECKING:
    from ottla.wire.messages import RequestHeader, ResponseHeader

_KEY_AND_VERSION = struct.Struct(">hh")
_UP_TO_CLIENT_ID = struct.Struct(">hhih")
_SIZE = struct.Struct(">i")
_SIZE_AND_ID = struct.Struct(">ii")
_FLEXIBLE_HEADER = 2


@lru_cache(maxsize=1024)
def request_header_version(api_key: int, api_version: int) -> int:
    """The version of the header that precedes such a request. DecodeError for an unknown API key."""
    return _FLEXIBLE_HEADER if api_version >= _first_flexible("request", api_key) else 1


@cache
def _first_flexible(kind: str, api_key: int) -> int:
    name = schema.api_message_names().get((kind, api_key))
    if name is None:
        raise DecodeError(f"there is no API with the key {api_key}")
    return schema.first_flexible(name)


@lru_cache(maxsize=1024)
def response_header_version(api_key: int, api_version: int) -> int:
    """The version of the header that precedes the response. DecodeError for an unknown API key."""
    if api_key == ApiKey.API_VERSIONS:
        return 0
    return 1 if api_version >= _first_flexible("response", api_key) else 0


def decode_request_header(buf: Buffer, offset: int = 0) -> tuple[RequestHeader, int]:
    """A request's header (`request_api_key`, `request_api_version`, `correlation_id`, `client_id`) and where
    the request itself begins."""
    if len(buf) - offset < 4:
        raise DecodeError(f"a frame of {len(buf) - offset} bytes is too short for a request header")
    api_key, api_version = _KEY_AND_VERSION.unpack_from(buf, offset)
    version = request_header_version(api_key, api_version)
    return decode_prefix(messages.RequestHeader, version, buf, offset)


def read_request_start(buf: Buffer) -> tuple[int, int, int, str | None, int]:
    """The fields of `decode_request_header`, read faster: every request passes here. Raises DecodeError.

    (API key, version, correlation id, client id, where the request itself begins)
    """
    size = len(buf)
    if size >= _UP_TO_CLIENT_ID.size:
        api_key, api_version, correlation_id, length = _UP_TO_CLIENT_ID.unpack_from(buf)
        offset = _UP_TO_CLIENT_ID.size + length
        if length >= 0 and offset < size:
            flexible = request_header_version(api_key, api_version) == _FLEXIBLE_HEADER
            if not flexible or buf[offset] == 0:
                try:
                    client_id = str(buf[_UP_TO_CLIENT_ID.size : offset], "utf-8")
                except UnicodeDecodeError as error:
                    raise DecodeError(f"a client id is not valid UTF-8: {error}") from error
                return api_key, api_version, correlation_id, client_id, offset + flexible
    # No client id, tags, or an invalid frame: these are rare enough for the compiled decoder.
    header, offset = decode_request_header(buf)
    return (
        header.request_api_key,
        header.request_api_version,
        header.correlation_id,
        header.client_id,
        offset,
    )


def decode_response_header(
    api_key: int, api_version: int, buf: Buffer, offset: int = 0
) -> tuple[ResponseHeader, int]:
    """A response's header (`correlation_id`) and where the response itself begins."""
    version = response_header_version(api_key, api_version)
    return decode_prefix(messages.ResponseHeader, version, buf, offset)


def encode_response(correlation_id: int, response: WireResponse, version: int) -> list[Buffer]:
    """A whole frame: size, header and response, as buffers to be written one after the other."""
    flexible = response_header_version(response.API_KEY, version)
    buffers: list[Buffer] = []
    first = bytearray(9 if flexible else 8)
    buffers.append(encode_into(response, version, first, buffers))
    size = len(first) if len(buffers) == 1 else sum(map(len, buffers))
    _SIZE_AND_ID.pack_into(first, 0, size - 4, correlation_id)
    return buffers


def encode_request(
    correlation_id: int, client_id: str | None, request: WireRequest[WireResponse], version: int
) -> list[Buffer]:
    """A whole frame: size, header and request, as buffers to be written one after the other."""
    header = messages.RequestHeader(request.API_KEY, version, correlation_id, client_id)
    first = bytearray(4)
    encode_into(header, request_header_version(request.API_KEY, version), first, None)
    buffers: list[Buffer] = []
    buffers.append(encode_into(request, version, first, buffers))
    _SIZE.pack_into(first, 0, sum(map(len, buffers)) - 4)
    return buffers
