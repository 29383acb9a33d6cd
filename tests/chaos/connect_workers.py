"""A Connect worker in a process of its own, which can be killed and started again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from integration.connect_rest import Rest, eventually


class WorkerProcess:
    def __init__(
        self, folder: Path, port: int, keys: dict[str, str], connectors: tuple[Path, ...] = ()
    ) -> None:
        self.rest = Rest(f"http://127.0.0.1:{port}")
        self._file = folder / f"worker-{port}.properties"
        self._file.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
        self._words = [
            sys.executable,
            "-m",
            "ottla",
            "connect",
            "run",
            str(self._file),
            *map(str, connectors),
        ]
        self.log = folder / f"worker-{port}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> WorkerProcess:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._words, stdout=log, stderr=log)
        return self

    def ready(self) -> WorkerProcess:
        def healthy() -> bool:
            try:
                return self.rest.call("GET", "/health")[0] == 200
            except OSError:
                return False

        eventually(healthy, 60)
        return self

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
