"""A broker as its own process, as users run it: start it, wait for it, stop it, kill it."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

_READY = re.compile(r"ready on (?P<host>\[[^\]]+\]|[^\s:]+):(?P<port>\d+)")


def end_process(process: subprocess.Popen[bytes] | subprocess.Popen[str], timeout_s: float = 60.0) -> None:
    """Ask a process to end (SIGTERM), and kill it if it takes longer than that.

    >>> import subprocess
    >>> sleeper = subprocess.Popen(["sleep", "1000"])
    >>> end_process(sleeper)
    >>> sleeper.returncode
    -15
    """
    process.terminate()
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class BrokerFailed(Exception):
    """The broker process ended, or was not ready in time. The message has what it printed.

    >>> from pathlib import Path
    >>> try:
    ...     BrokerProcess(Path(tmp) / "refused", settings={"node.id": "none"}).start()
    ... except BrokerFailed as failed:
    ...     print(str(failed).splitlines()[0])
    the broker ended with code 1 before it was ready
    """


class BrokerProcess:
    """`ottla start` on a data directory. After `start()` the broker serves clients on `bootstrap`.

    With `config` it starts from that properties file, which then gives its listeners and its data directory. The words
    of `launcher` come before the command; the launcher must replace itself by the command (`exec`).

    >>> from pathlib import Path
    >>> with BrokerProcess(Path(tmp) / "alone", settings={"num.partitions": 3}) as alone:
    ...     alone.running
    True
    """

    def __init__(
        self,
        data: Path,
        *,
        listen: str = "127.0.0.1:0",
        settings: Mapping[str, object] | None = None,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        config: Path | None = None,
        launcher: Sequence[str] = (),
    ) -> None:
        self.data = data
        self.launcher = list(launcher)
        self.config = config
        self.listen = listen
        self.settings = dict(settings or {})
        self.arguments = list(arguments)
        self.environment = dict(environment or {})
        self.host = ""
        self.port = 0
        self.ready_line = ""
        self.paused = False
        self._process: subprocess.Popen[str] | None = None
        self._log_path = data.with_name(data.name + ".stderr")

    @property
    def bootstrap(self) -> str:
        """The address for clients, `host:port`.

        >>> broker.bootstrap
        '127.0.0.1:...'
        """
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        """The process id.

        >>> broker.pid > 0
        True
        """
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process runs; a paused process counts as running.

        >>> broker.running
        True
        """
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """Everything that the broker has written to standard error so far.

        >>> "Traceback" in broker.log
        False
        """
        return self._log_path.read_text() if self._log_path.exists() else ""

    def command(self) -> list[str]:
        """Return the command that starts the broker.

        >>> broker.command()[1:4]
        ['-m', 'ottla', 'start']
        """
        words = [*self.launcher, sys.executable, "-m", "ottla", "start"]
        if self.config is not None:
            words += ["--config", str(self.config)]
        else:
            words += ["--data", str(self.data), "--listen", self.listen]
        for key, value in self.settings.items():
            words += ["--set", f"{key}={value}"]
        return words + self.arguments

    def start(self, timeout_s: float = 120.0) -> BrokerProcess:
        """Start the broker and wait until it is ready. A second start uses the port of the first.

        For example::

            broker.kill()
            broker.start()
        """
        self.launch()
        return self.wait_ready(timeout_s)

    def launch(self) -> None:
        """Start the process without waiting for it.

        For example::

            broker.launch()
            broker.wait_ready()
        """
        self.paused = False
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **self.environment},
            )

    def wait_ready(self, timeout_s: float = 120.0) -> BrokerProcess:
        """Wait until a launched process is ready to serve clients.

        >>> broker.kill()
        >>> broker.launch()
        >>> broker.wait_ready(timeout_s=60).ready_line
        '...ready on 127.0.0.1:...'
        """
        self.ready_line = self._wait_for_line(timeout_s)
        found = _READY.search(self.ready_line)
        if found is None:
            self.kill()
            raise BrokerFailed(f"unexpected first line {self.ready_line!r}\n{self.log}")
        self.host, self.port = found["host"], int(found["port"])
        self.listen = f"{self.host}:{self.port}"
        return self

    def _wait_for_line(self, timeout_s: float) -> str:
        assert self._process is not None and self._process.stdout is not None
        deadline = time.monotonic() + timeout_s
        while (left := deadline - time.monotonic()) > 0:
            readable, _, _ = select.select([self._process.stdout], [], [], left)
            if readable:
                if line := self._process.stdout.readline():
                    return line.strip()
                code = self._process.wait()
                self._close_pipe()
                raise BrokerFailed(f"the broker ended with code {code} before it was ready\n{self.log}")
        self.kill()
        raise BrokerFailed(f"the broker was not ready within {timeout_s} s\n{self.log}")

    def stop(self, timeout_s: float = 60.0) -> int:
        """Stop the broker as Ctrl-C does, and return its exit code.

        For example::

            assert broker.stop() == 0
        """
        if self._process is None:
            return 0
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerFailed(f"the broker did not stop within {timeout_s} s\n{self.log}") from None
        finally:
            self._close_pipe()

    def kill(self) -> None:
        """Kill the process with SIGKILL: nothing is flushed.

        For example::

            broker.kill()
            assert not broker.running
        """
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            self._process.wait()
            self._close_pipe()

    def pause(self) -> None:
        """Pause the process (SIGSTOP): it stops responding, and its connections stay open.

        >>> broker.pause()
        >>> broker.paused
        True
        >>> broker.resume()
        """
        os.kill(self.pid, signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        """Let a paused process go on (SIGCONT).

        >>> broker.pause()
        >>> broker.resume()
        >>> broker.paused
        False
        """
        os.kill(self.pid, signal.SIGCONT)
        self.paused = False

    def restart(self, timeout_s: float = 120.0) -> BrokerProcess:
        """Stop the broker if it runs, and start it again on the same data and port.

        >>> before = broker.bootstrap
        >>> broker.restart().bootstrap == before
        True
        """
        if self.running:
            self.stop(timeout_s)
        return self.start(timeout_s)

    def _close_pipe(self) -> None:
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> BrokerProcess:
        return self if self.running else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.running:
            self.stop()
