"""A client that sends exactly what a test wants: one blocking socket, messages in any version, raw bytes."""

from __future__ import annotations

import itertools
import socket
import ssl
import struct
from types import TracebackType
from typing import Any, TypeVar

from ottla.wire.classes import WireRequest, WireResponse
from ottla.wire.codec import decode
from ottla.wire.headers import decode_response_header, encode_request
from ottla.wire.messages import response_class

Resp = TypeVar("Resp", bound=WireResponse)


class RawClient:
    """`ask` is `send` and `receive`. Several `send`s pipeline; `receive` checks that responses keep the order."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        timeout_s: float = 60.0,
        tls: ssl.SSLContext | None = None,
        source: str | None = None,
    ) -> None:
        """`source` is the address to connect from."""
        self.socket = socket.create_connection(
            (host, port), timeout_s, source_address=None if source is None else (source, 0)
        )
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname=host)
        self._ids = itertools.count(1)
        self._pending: dict[int, tuple[int, int]] = {}

    def send(self, request: WireRequest[WireResponse], version: int, *, expects_answer: bool = True) -> int:
        """Send a request and return its correlation id. A produce with acks=0 expects no answer."""
        correlation_id = next(self._ids)
        self.socket.sendall(b"".join(encode_request(correlation_id, "raw", request, version)))
        if expects_answer:
            self._pending[correlation_id] = (request.API_KEY, version)
        return correlation_id

    def receive(self) -> Any:
        """Return the next response. Raises ConnectionError if the broker has closed the connection."""
        return self.receive_with_id()[1]

    def receive_with_id(self) -> tuple[int, Any]:
        """Return the correlation id of the next response, and the response."""
        size = struct.unpack(">i", self._read(4))[0]
        frame = self._read(size)
        expected = next(iter(self._pending))
        api_key, version = self._pending.pop(expected)
        header, offset = decode_response_header(api_key, version, frame)
        if header.correlation_id != expected:
            raise AssertionError(f"expected the response to {expected}, got that to {header.correlation_id}")
        return expected, decode(response_class(api_key), version, frame[offset:])

    def ask(self, request: WireRequest[Resp], version: int) -> Resp:
        """Send a request and wait for its response."""
        self.send(request, version)
        response: Resp = self.receive()
        return response

    def closed_by_broker(self) -> bool:
        """Wait for the broker to close the connection; False if it sends something instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _read(self, size: int) -> bytes:
        chunks: list[bytes] = []
        while size:
            chunk = self.socket.recv(min(size, 1 << 20))
            if not chunk:
                raise ConnectionError("the broker closed the connection")
            chunks.append(chunk)
            size -= len(chunk)
        return b"".join(chunks)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
