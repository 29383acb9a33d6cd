"""A child process of the demo: reads its output line by line, and stops it with its whole process group."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from typing import IO, Final

_POLL_S: Final = 0.05
_MAX_LINE: Final = 1 << 20


class Child:
    """A process in its own session, so that Ctrl-C in a terminal reaches only the demo, which stops all parts in order.

    Its standard input stays open and unused: when it closes, the child knows that the demo has ended.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(
        cls,
        words: Sequence[str],
        *,
        stderr: int | IO[bytes] = asyncio.subprocess.PIPE,
        environment: Mapping[str, str] | None = None,
    ) -> Child:
        return cls(
            await asyncio.create_subprocess_exec(
                *words,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
                limit=_MAX_LINE,
            )
        )

    @property
    def running(self) -> bool:
        return self._process.returncode is None

    async def wait(self) -> int:
        return await self._process.wait()

    async def line(self) -> str:
        """Return the next line of standard output with its newline; empty at the end."""
        assert self._process.stdout is not None
        return _text(await self._process.stdout.readline())

    async def complaint(self) -> str:
        """Return the next line of standard error, if that is not a file."""
        assert self._process.stderr is not None
        return _text(await self._process.stderr.readline())

    async def stop(self, timeout_s: float) -> bool:
        """Ask the process to end, then kill what is left of its group. Returns False if a kill was needed."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
        willing = True
        try:
            async with asyncio.timeout(timeout_s):
                await self._process.wait()
                while self._group_lives():  # noqa: ASYNC110 - grandchildren end without an event for us
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            willing = False
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()
        return willing

    def _group_lives(self) -> bool:
        try:
            os.killpg(self._process.pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return True


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace")
