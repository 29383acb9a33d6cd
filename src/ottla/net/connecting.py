"""Opens a connection to another node, and classifies failures.

Only a refusal proves that no process listens there any more.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable

from ottla.peers import PeerFailure

_NOT_OURS = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.ENETUNREACH})
"""This machine has no address of that family, which says nothing about the other node."""


class ConnectFailed(Exception):
    """The connection could not be made."""

    def __init__(self, failure: PeerFailure, text: str) -> None:
        super().__init__(text)
        self.failure = failure


Connect = Callable[[Callable[[], asyncio.BaseProtocol], str, int], Awaitable[None]]
"""Connects a new protocol to host and port. Raises ConnectFailed or OSError."""


async def connect_socket(new_protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> None:
    """Connect by TCP. Every address of the host is tried in turn.

    The event loop creates the sockets: uvloop closes a given socket twice if the connection is lost while it is being
    opened, and the second time its descriptor may belong to another socket.
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
            # No process listens, but the system chose the same port on both sides: the socket is connected to itself.
            transport.abort()
            errors.append(ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"))
    raise ConnectFailed(_classify(errors), str(errors[0]) if errors else "the host has no address")


async def _addresses(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[str]:
    try:
        # A numeric address needs no resolver and no thread.
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise ConnectFailed(PeerFailure.UNREACHABLE, f"cannot resolve {host}: {error}") from None
    return list(dict.fromkeys(str(address[0]) for _, _, _, _, address in found))


def _classify(errors: list[OSError]) -> PeerFailure:
    telling = [error for error in errors if error.errno not in _NOT_OURS]
    if telling and all(error.errno == errno.ECONNREFUSED for error in telling):
        return PeerFailure.REFUSED
    return PeerFailure.UNREACHABLE
