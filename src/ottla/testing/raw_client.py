"""A client that says exactly what a test wants said: one blocking socket, messages in any version, raw bytes."""

from __future__ import annotations

import itertools
import socket
import struct
from types import TracebackType
from typing import Any

from ottla.wire.codec import decode
from ottla.wire.headers import decode_response_header, encode_request
from ottla.wire.messages import response_class


class RawClient:
    """`ask` is `send` and `receive`; several `send`s pipeline, and `receive` checks that answers keep the order."""

    def __init__(self, host: str, port: int, *, timeout_s: float = 30.0) -> None:
        self.socket = socket.create_connection((host, port), timeout_s)
        self._ids = itertools.count(1)
        self._pending: list[tuple[int, int, int]] = []

    def send(self, request: Any, version: int, *, expects_answer: bool = True) -> None:
        correlation_id = next(self._ids)
        self.socket.sendall(b"".join(encode_request(correlation_id, "raw", request, version)))
        if expects_answer:
            self._pending.append((correlation_id, request.API_KEY, version))

    def receive(self) -> Any:
        """The next answer; ConnectionError where the broker has closed the connection."""
        expected, api_key, version = self._pending.pop(0)
        size = struct.unpack(">i", self._read(4))[0]
        frame = self._read(size)
        header, offset = decode_response_header(api_key, version, frame)
        if header.correlation_id != expected:
            raise AssertionError(f"the answer to {header.correlation_id} came in the place of {expected}")
        return decode(response_class(api_key), version, frame[offset:])

    def ask(self, request: Any, version: int) -> Any:
        self.send(request, version)
        return self.receive()

    def closed_by_broker(self) -> bool:
        """Wait for the broker to close the connection; False if it says something instead."""
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
