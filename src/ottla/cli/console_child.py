"""A console beside a broker: a process of its own, which ends with the process that started it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from typing import Final

from ottla.parent_process import STOP_WITH_STDIN

DEFAULT_CONSOLE: Final = "localhost:9021"
_STOPS_S: Final = 5.0


def console_command(bootstrap: str, listen: str) -> list[str]:
    """The command that runs a console for a cluster."""
    return [sys.executable, "-m", "ottla", "console", "--bootstrap-server", bootstrap, "--listen", listen]


@contextlib.asynccontextmanager
async def console_beside(bootstrap: str, listen: str | None) -> AsyncIterator[None]:
    """Run a console while the block runs; nothing without an address. It prints its own line."""
    if listen is None:
        yield
        return
    process = await asyncio.create_subprocess_exec(
        *console_command(bootstrap, listen),
        stdin=asyncio.subprocess.PIPE,
        env={**os.environ, **STOP_WITH_STDIN},
        start_new_session=True,
    )
    try:
        yield
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            try:
                await asyncio.wait_for(process.wait(), _STOPS_S)
            except TimeoutError:
                process.kill()
                await process.wait()
