"""The HTTP server: uvicorn, which says when it is ready and ends its streams when it is asked to stop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn

from ottla.admin.settings import ClusterSettings
from ottla.console import garbage
from ottla.console.app import application
from ottla.console.connections import MAX_BUSY, Connection
from ottla.console.settings import ConsoleSettings
from ottla.parent_process import on_loop_when_parent_ends


class Server(uvicorn.Server):
    """Ends its streams when it stops, so that no browser holds it up."""

    def __init__(
        self, config: uvicorn.Config, on_ready: Callable[[], None], on_stop: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._on_ready = on_ready
        self._on_stop = on_stop

    def stop(self) -> None:
        self.should_exit = True
        self._on_stop()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.stop()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        garbage.settle()
        if not self.should_exit:
            self._on_ready()


async def serve(
    settings: ConsoleSettings,
    targets: dict[str, ClusterSettings],
    listener: socket.socket,
    on_ready: Callable[[], None],
) -> None:
    """Serve until a signal, or until standard input ends where that is the parent's sign."""
    app, console = application(settings, targets)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=3,
        http=Connection,
        limit_concurrency=MAX_BUSY,
        ws="none",
    )
    loop = asyncio.get_running_loop()

    def end_streams() -> None:
        loop.call_soon_threadsafe(console.stopping.set)

    server = Server(config, on_ready, end_streams)
    on_loop_when_parent_ends(loop, server.stop)
    await server.serve([listener])
