"""Opening a connection to another node, and what it means when that fails.

A refusal is told apart from everything else: it alone proves that nobody listens there any more.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from ottla.peers import PeerFailure

_NOT_OURS = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.ENETUNREACH})
"""This machine has no address of that kind: it says nothing about the other node."""


class ConnectFailed(Exception):
    """No connection came about."""

    def __init__(self, failure: PeerFailure, text: str) -> None:
        super().__init__(text)
        self.failure = failure


Connect = Callable[[Callable[[], asyncio.BaseProtocol], str, int], Awaitable[Any]]
"""Connects a new protocol to host and port; ConnectFailed or OSError if that cannot be."""


async def connect_socket(new_protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> None:
    """Connect by TCP. Every address of the host is tried in turn.

    The event loop makes the sockets: handed one of ours, uvloop would close it twice if the connection is lost while
    it is being opened, and the second time it may be somebody else's.
    """
    loop = asyncio.get_running_loop()
    errors: list[OSError] = []
    for address in await _addresses(loop, host, port):
        try:
            transport, _ = await loop.create_connection(new_protocol, address, port)
        except OSError as error:
            errors.append(error)
        else:
            if transport.get_extra_info("sockname") != transport.get_extra_info("peername"):
                return
            # Nobody listens, and the system gave us the very port we called: we would talk to ourselves.
            transport.abort()
            errors.append(ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"))
    raise ConnectFailed(_meaning(errors), str(errors[0]) if errors else "it has no address")


async def _addresses(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[str]:
    try:
        # A numeric address needs no resolver, and no thread to ask it in.
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise ConnectFailed(PeerFailure.UNREACHABLE, f"{host} is not known: {error}") from None
    return list(dict.fromkeys(str(address[0]) for _, _, _, _, address in found))


def _meaning(errors: list[OSError]) -> PeerFailure:
    telling = [error for error in errors if error.errno not in _NOT_OURS]
    if telling and all(error.errno == errno.ECONNREFUSED for error in telling):
        return PeerFailure.REFUSED
    return PeerFailure.UNREACHABLE
