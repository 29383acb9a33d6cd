"""A node that runs as a child process: started again when it dies, restarted on request, stopped in order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from ottla.cli.in_sync_report import IN_SYNC, REPORT_IN_SYNC
from ottla.parent_process import STOP_WITH_STDIN

_LIVED_S: Final = 5.0
"""A node that ran for this long was no failed start."""
_FAILURES: Final = 5
"""Starts in a row that may fail before the supervisor gives up."""
_FIRST_PAUSE_S: Final = 0.25
_LONGEST_PAUSE_S: Final = 8.0
_STOP_TIMEOUT_S: Final = 60.0
_LAST_WORDS: Final = 2000


class GaveUp(Exception):
    """A node fails again and again; the text says which one and why."""


class ChildNode:
    """One node and its process, over all restarts. `arguments` follow `ottla start`."""

    def __init__(
        self,
        node_id: int,
        arguments: Sequence[str],
        *,
        votes: bool = False,
        log: Path | None = None,
        pid_file: Path | None = None,
        core: int | None = None,
    ) -> None:
        """Without `log` its log lines go where those of this process go; `core` is the one that it may use."""
        self.node_id = node_id
        self.votes = votes
        self.ready = asyncio.Event()
        self.in_sync = asyncio.Event()
        """Since its last start all its replicas have been in sync."""
        self._arguments = arguments
        self._log = log
        self._pid_file = pid_file
        self._core = core
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False
        self._restarting = False
        self._failures = 0

    async def run(self) -> None:
        """Keep it running until it is asked to stop. Raises GaveUp."""
        while not self._stopping:
            began = asyncio.get_running_loop().time()
            code = await self._live()
            if self._stopping:
                return
            if self._restarting:
                self._restarting, self._failures = False, 0
                continue
            lived_s = asyncio.get_running_loop().time() - began
            self._failures = self._failures + 1 if lived_s < _LIVED_S else 0
            name = f"node {self.node_id}"
            if self._failures >= _FAILURES:
                raise GaveUp(
                    f"{name} failed {self._failures} times in a row right after its start "
                    f"({_how(code)}); {self._last_words()}"
                )
            pause_s = 0.0
            if self._failures > 1:
                pause_s = min(_FIRST_PAUSE_S * 2 ** (self._failures - 2), _LONGEST_PAUSE_S)
            when = f"in {pause_s:g} s" if pause_s else "at once"
            click.echo(f"ottla: {name} ended ({_how(code)}); starting it again {when}", err=True)
            await asyncio.sleep(pause_s)

    async def _live(self) -> int:
        """One life of the process, to its end."""
        with contextlib.ExitStack() as files:
            self._process = process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "ottla", "start", *self._arguments),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=None if self._log is None else files.enter_context(self._log.open("ab")),
                env={**os.environ, **STOP_WITH_STDIN, REPORT_IN_SYNC: "1"},
                # Ctrl-C in a terminal goes to the whole group; nodes are to stop one after the other.
                start_new_session=True,
            )
        if self._core is not None:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(process.pid, {self._core})
        if self._pid_file is not None:
            self._pid_file.write_text(f"{process.pid}\n")
        assert process.stdout is not None
        async for line in process.stdout:
            self.ready.set()
            if line.strip().decode() == IN_SYNC:
                self.in_sync.set()
        code = await process.wait()
        self.in_sync.clear()
        if self._pid_file is not None:
            self._pid_file.unlink(missing_ok=True)
        return code

    def pass_on(self, number: int) -> None:
        """Send a signal to its process, if it runs."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    async def restart(self) -> None:
        """Stop it in order; `run` starts it again."""
        if self._process is not None and self._process.returncode is None:
            self.in_sync.clear()
            self._restarting = True
            await self._end()

    async def stop(self) -> None:
        self._stopping = True
        await self._end()

    async def _end(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), _STOP_TIMEOUT_S)
        except TimeoutError:
            click.echo(f"ottla: node {self.node_id} does not stop; it is killed", err=True)
            process.kill()
            await process.wait()

    def _last_words(self) -> str:
        if self._log is None:
            return "its last lines in this log say why"
        text = self._log.read_bytes()[-_LAST_WORDS:].decode("utf-8", "replace").strip()
        return f"its log is {self._log} and ends with: {text.splitlines()[-1] if text else 'nothing'}"


def _how(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
