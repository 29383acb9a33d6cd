"""Many connections over TLS that stay open and do nothing: what they cost the broker in memory."""

from __future__ import annotations

import signal
import ssl
import sys

from bench.load import Load
from bench.load.sockets import connect


def idle_tls(load: Load) -> dict[str, float]:
    """Open the connections one after the other, say so, and hold them until a signal ends this process."""
    host = load.bootstrap.rpartition(":")[0]
    context = ssl.create_default_context(cafile=load.security["ssl.ca.location"])
    held = [
        context.wrap_socket(connect(load.bootstrap), server_hostname=host) for _ in range(load.connections)
    ]
    print("ready", file=sys.stderr, flush=True)
    signal.pause()
    return {"connections": len(held)}
