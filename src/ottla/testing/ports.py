"""Ports for nodes whose port must be known before they start, and stay reserved while they are down."""

from __future__ import annotations

import itertools
import random
import socket
from typing import Final

_HOST: Final = "127.0.0.1"
_PORTS: Final = range(20_000, 32_000)
"""Below the range for outgoing connections: a node that was down must find its port free."""
_walk: Final = itertools.count(random.SystemRandom().randrange(len(_PORTS)))
"""Every process walks through the ports from its own random start, so that concurrent processes rarely collide
and no port is reused before all others were."""


def free_ports(count: int) -> list[int]:
    """Return free ports outside the range for outgoing connections."""
    found: list[int] = []
    while len(found) < count:
        port = _PORTS[next(_walk) % len(_PORTS)]
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind((_HOST, port))
                # Without this the system lets other processes bind it before they listen.
                sock.listen()
            except OSError:
                continue
        found.append(port)
    return found


def free_block(count: int) -> int:
    """Return the first of some free ports in a row."""
    while True:
        ports = free_ports(count)
        if ports[-1] - ports[0] == count - 1:
            return ports[0]
