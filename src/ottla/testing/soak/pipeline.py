"""A pipeline on Spark beside a soak: a driver that copies a topic exactly once, and is killed now and then.

A driver that ends by itself, because the cluster was away for too long, is started again, as a supervisor would do.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ottla.testing.checks.history import FilledTable, Recorder
from ottla.testing.cluster import Cluster
from ottla.testing.soak.copies import read_committed
from ottla.testing.soak.pipeline_job import EDGE

TARGET: Final = "soak-piped"
_PARTITIONS: Final = 2
_KILL_EACH_S: Final = 300.0
_PAUSE_S: Final = 2.0
_PATIENCE_S: Final = 300.0


class PipelineCopy:
    """The driver, and what it has done."""

    def __init__(
        self, bootstrap: str, directory: Path, topic: str, partitions: int, kill_each_s: float
    ) -> None:
        self.kills = 0
        self.ends = 0
        """How often the driver ended by itself."""
        self._bootstrap = bootstrap
        self._log = directory / "pipeline.log"
        self._topic = topic
        self._partitions = tuple(f"{topic}-{number}" for number in range(partitions))
        self._command = [sys.executable, "-m", "ottla.testing.soak.pipeline_job", bootstrap, topic, TARGET]
        self._command.append(str(directory.resolve() / "pipeline-checkpoint"))
        self._kill_each_s = kill_each_s
        self._stopping = threading.Event()
        self._process = self._run()
        self._thread = threading.Thread(target=self._supervise, name="soak-pipeline")
        self._thread.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _run(self, *words: str) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            # Driver and JVM are one group, and end together.
            return subprocess.Popen([*self._command, *words], stdout=log, stderr=log, start_new_session=True)

    def _supervise(self) -> None:
        strike_at = time.monotonic() + self._kill_each_s
        while not self._stopping.wait(_PAUSE_S):
            if time.monotonic() > strike_at:
                self._end()
                self.kills += 1
                strike_at = time.monotonic() + self._kill_each_s
            elif self._process.poll() is None:
                continue
            else:
                self._end()
                self.ends += 1
            self._process = self._run()

    def _end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """End the supervisor, and kill the driver."""
        self._stopping.set()
        self._thread.join()
        self._end()

    def finish(self, recorder: Recorder) -> None:
        """Kill the driver, let another one copy what is left, and record what the target has."""
        self.stop()
        self._process = self._run("--once")
        if self._process.wait(_PATIENCE_S) != 0:
            raise RuntimeError(f"the pipeline failed, see {self._log}")
        found = read_committed(self._bootstrap, [(TARGET, number) for number in range(_PARTITIONS)])
        rows = []
        for records in found.values():
            for _, text in records:
                partition, offset, value = text.split(EDGE, 2)
                rows.append((f"{self._topic}-{partition}", int(offset), value))
        recorder.add(FilledTable("soak-pipeline", self._partitions, tuple(rows)))


@contextlib.contextmanager
def running_pipeline(
    cluster: Cluster,
    directory: Path,
    topic: str,
    partitions: int,
    *,
    kill_each_s: float = _KILL_EACH_S,
    replicas: int = 3,
) -> Iterator[PipelineCopy]:
    """Run the copy of a topic until the block ends."""
    cluster.create_topic(TARGET, _PARTITIONS, replicas)
    copy = PipelineCopy(cluster.bootstrap, directory, topic, partitions, kill_each_s)
    try:
        yield copy
    finally:
        copy.stop()
