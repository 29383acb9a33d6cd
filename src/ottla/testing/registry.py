"""A schema registry as its own process, as users run it."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from types import TracebackType
from typing import Final

_READY: Final = re.compile(r"Schema registry on (?P<url>\S+),")
_TIMEOUT_S: Final = 60.0


class RegistryProcess:
    """`ottla registry` on a cluster. After `start()` it answers at `url`."""

    def __init__(self, bootstrap: str, *arguments: str, listen: str = "127.0.0.1:0") -> None:
        self._command = [sys.executable, "-m", "ottla", "registry", "--bootstrap-server", bootstrap]
        self._command += ["--listen", listen, *arguments]
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""
        self.output = b""

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> RegistryProcess:
        """Start the registry, and wait until it answers."""
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ}
        )
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        deadline = time.monotonic() + _TIMEOUT_S
        while time.monotonic() < deadline:
            select.select([self._process.stdout], [], [], 1.0)
            self.output += self._process.stdout.read() or b""
            found = _READY.search(self.output.decode(errors="replace"))
            if found:
                self.url = found["url"]
                return self
            if self._process.poll() is not None:
                break
        text = self.output.decode(errors="replace")
        raise RuntimeError(f"the registry did not start: {text}")

    def kill(self) -> None:
        """End the process at once, as a crash does."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stop the registry cleanly."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(how)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> RegistryProcess:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
