"""A bare connection that speaks any version of any API: for tests that look at the protocol itself."""

from __future__ import annotations

import itertools
import socket
import struct
from types import TracebackType
from typing import Any

from ottla.wire.codec import decode, decode_prefix, encode
from ottla.wire.headers import request_header_version, response_header_version
from ottla.wire.messages import RequestHeader, ResponseHeader, response_class


class RawClient:
    """Requests may be sent ahead of reading their answers."""

    def __init__(self, host: str, port: int, timeout_s: float = 60.0) -> None:
        self._socket = socket.create_connection((host, port), timeout_s)
        self._ids = itertools.count(1)
        self._asked: dict[int, tuple[int, int]] = {}

    def send(self, request: Any, version: int, client_id: str = "raw") -> int:
        """Send a request; its correlation id."""
        correlation_id = next(self._ids)
        api_key = type(request).API_KEY
        header = RequestHeader(
            request_api_key=api_key,
            request_api_version=version,
            correlation_id=correlation_id,
            client_id=client_id,
        )
        body = encode(header, request_header_version(api_key, version)) + encode(request, version)
        self._socket.sendall(struct.pack(">i", len(body)) + body)
        self._asked[correlation_id] = (api_key, version)
        return correlation_id

    def receive(self) -> tuple[int, Any]:
        """The next answer with its correlation id; ConnectionError when there is none."""
        size = struct.unpack(">i", self._read(4))[0]
        frame = self._read(size)
        correlation_id = struct.unpack_from(">i", frame)[0]
        api_key, version = self._asked.pop(correlation_id)
        _, offset = decode_prefix(ResponseHeader, response_header_version(api_key, version), frame, 0)
        return correlation_id, decode(response_class(api_key), version, memoryview(frame)[offset:])

    def ask(self, request: Any, version: int) -> Any:
        """Send a request and wait for its answer."""
        sent = self.send(request, version)
        correlation_id, response = self.receive()
        assert correlation_id == sent
        return response

    def _read(self, size: int) -> bytes:
        parts = []
        while size:
            part = self._socket.recv(size)
            if not part:
                raise ConnectionError("the broker closed the connection")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
