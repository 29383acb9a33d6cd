"""Ports for nodes that must be told theirs before they start, and keep them while they are down."""

from __future__ import annotations

import itertools
import random
import socket
from typing import Final

_HOST: Final = "127.0.0.1"
_PORTS: Final = range(20_000, 32_000)
"""Below what systems give to outgoing connections: a node that is down must find its port free when it returns."""
_walk: Final = itertools.count(random.SystemRandom().randrange(len(_PORTS)))
"""Every process goes through the ports from a place of its own: none is given out twice before all have been, and
processes that look at the same time are not at the same place."""


def free_ports(count: int) -> list[int]:
    """Ports that nobody has, and that no outgoing connection will get; one after the other where all are free."""
    found: list[int] = []
    while len(found) < count:
        port = _PORTS[next(_walk) % len(_PORTS)]
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind((_HOST, port))
                # Without this the system lets others bind it, too, who do not listen yet.
                sock.listen()
            except OSError:
                continue
        found.append(port)
    return found
