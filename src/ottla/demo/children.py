"""A process of the demo's own: what it says, line by line, and an end that leaves nobody of its group behind."""

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
    """Lives in a session of its own, so that Ctrl-C in a terminal reaches the demo alone, which stops all in order.

    Its standard input is held open and nothing is said there: its end tells a child that the demo is gone.
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
        """The next line of its standard output, with its end; empty when there is no more."""
        assert self._process.stdout is not None
        return _text(await self._process.stdout.readline())

    async def complaint(self) -> str:
        """The same of its standard error, if that is not a file."""
        assert self._process.stderr is not None
        return _text(await self._process.stderr.readline())

    async def stop(self, timeout_s: float) -> bool:
        """Ask it to end, and kill whoever of its group is still there afterwards; False if that was needed."""
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
