"""kill -9 for the parts of a running Spark job: its driver, its executors, their Python workers."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import cycle
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from ottla.pipeline.standalone import StandaloneCluster

_QUIET_S = 600.0
_FAILED_RUNS = "failed runs"
KILLS_FILE = "OTTLA_KILLS_FILE"


class Job:
    """The driver as a process group: its JVM and its workers end with it."""

    def __init__(self, command: list[str], log: Path) -> None:
        self.command = command
        self.log = log
        self.starts = 0
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Job:
        self.starts += 1
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                self.command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
            )
        return self

    def poll(self) -> int | None:
        assert self.process is not None
        return self.process.poll()

    def wait(self, timeout_s: float) -> int:
        assert self.process is not None
        return self.process.wait(timeout_s)

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        os.killpg(self.process.pid, number)

    def kill(self) -> None:
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            self.signal(signal.SIGKILL)
        self.process.wait()

    def output(self) -> str:
        return self.log.read_text()


def kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
        return True
    except ProcessLookupError:
        return False


def report_kills(done: Mapping[str, int]) -> None:
    """Say what a test killed, once it has held: `make spark-kills` counts it."""
    file = os.environ.get(KILLS_FILE)
    if file:
        with Path(file).open("a") as out:
            out.write(
                json.dumps({what.lower(): count for what, count in done.items() if what != _FAILED_RUNS})
                + "\n"
            )


def children_of(pid: int) -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(status.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(status.parent.name))
    return found


def python_workers(cluster: StandaloneCluster) -> list[int]:
    """The processes that run Python for the executors; the forking daemon is between them."""
    workers = []
    for executor in cluster.executor_pids():
        for daemon in children_of(executor):
            workers += children_of(daemon)
    return workers


def kill_while_it_runs(
    bootstrap: str,
    target: str,
    job: Job,
    cluster: StandaloneCluster,
    kills: int,
    every: int,
    look: Callable[[], object],
) -> Counter[str]:
    """Run the job to its end; after each `every` records that arrive in the target, committed or not, kill something,
    and have a `look`.

    A Python worker, an executor, the driver, a worker with all that runs on it, and the master take turns. A driver
    that dies is started again. Besides the kills the "failed runs" are counted: those that ended by themselves, with an
    error.
    """
    done: Counter[str] = Counter()

    def killed_driver() -> bool:
        job.kill()
        return True

    def killed_worker() -> bool:
        cluster.lose_worker(1)
        cluster.start_worker(1)
        return True

    def killed_master() -> bool:
        cluster.lose_master()
        cluster.start_master()
        return True

    turn: Iterator[tuple[str, Callable[[], bool]]] = cycle(
        [
            ("python worker", lambda: any(kill(pid) for pid in python_workers(cluster)[:1])),
            ("executor", lambda: any(kill(pid) for pid in cluster.executor_pids()[:1])),
            ("driver", killed_driver),
            ("worker", killed_worker),
            ("master", killed_master),
        ]
    )
    what, strike = next(turn)
    consumer = watcher(bootstrap, target)
    arrived = 0
    quiet = 0.0
    job.start()
    try:
        while True:
            message: Any = consumer.poll(0.5)
            if message is None:
                quiet += 0.5
                assert quiet < _QUIET_S, f"nothing came for {_QUIET_S} s\n{job.output()[-4000:]}"
            else:
                quiet = 0.0
                arrived += 1
                killed = done.total() - done[_FAILED_RUNS]
                if killed < kills and arrived >= every and strike():
                    done[what] += 1
                    arrived = 0
                    what, strike = next(turn)
                    look()
            code = job.poll()
            if code == 0:
                return done
            if code is not None:
                if code > 0:
                    # A kill may take the query with it; the next run goes on.
                    done[_FAILED_RUNS] += 1
                    assert done[_FAILED_RUNS] <= 2 + kills // 4, job.output()[-6000:]
                job.start()
    finally:
        consumer.close()
        job.kill()


def watcher(bootstrap: str, topic: str, isolation: str = "read_uncommitted") -> Consumer:
    """Reads records from the first one on, as soon as they are written: committed or not, unless it says otherwise."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "watcher",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "fetch.wait.max.ms": 10,
        }
    )
    partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    return consumer
