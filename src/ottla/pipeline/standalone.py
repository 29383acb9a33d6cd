"""A standalone Spark cluster on one machine, from the Python package: one master and some workers, as processes."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Final, TypedDict

from ottla.pipeline.class_archive import archive_flags
from ottla.pipeline.failures import PipelineError
from ottla.pipeline.jars import spark_home
from ottla.pipeline.java import find_java

_POLL_S: Final = 0.1
_STOP_S: Final = 10.0
_PORT_ATTEMPTS: Final = 3
_MASTER_OPTIONS: Final = (
    # A master that moves on to the next port is not where its workers look for it.
    "-Dspark.port.maxRetries=0",
    # Its REST server has one port for all masters of a machine, and a master that cannot have it accepts no workers.
    "-Dspark.master.rest.enabled=false",
)


class _PortTaken(PipelineError):
    """Another process listens where the master was to listen."""


class MasterState(TypedDict):
    """The part of the master's state that is used here."""

    aliveworkers: int


class StandaloneCluster:
    """A master and its workers; after `start()` applications use `.master`.

    Executors are child processes of the workers: `executor_pids()` returns their ids, for tests that kill one. The
    master keeps a list of workers and applications on disk. One that died and is started again goes on with them.
    """

    def __init__(
        self,
        *,
        workers: int = 2,
        cores: int = 1,
        memory: str = "1g",
        host: str = "127.0.0.1",
        port: int = 0,
        web_port: int = 0,
        directory: Path | None = None,
    ) -> None:
        self.host = host
        self._asked = (port, web_port)
        self.port, self.web_port = _choose_ports(host, *self._asked)
        self._workers = workers
        self._cores = cores
        self._memory = memory
        self._kept = directory
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def master(self) -> str:
        """The address for `spark_session(master=...)`."""
        return f"spark://{self.host}:{self.port}"

    @property
    def web_address(self) -> str:
        """The address of the master's web page."""
        return f"http://{self.host}:{self.web_port}"

    def start(self, timeout_s: float = 120.0) -> StandaloneCluster:
        """Starts the processes and waits until the master knows all of its workers.

        Ports that were not asked for are chosen again when another process took them in the meantime.
        """
        deadline = time.monotonic() + timeout_s
        for attempts_left in reversed(range(_PORT_ATTEMPTS)):
            try:
                self._start_all(deadline, timeout_s)
                break
            except _PortTaken:
                if not attempts_left or all(self._asked):
                    raise
                self.port, self.web_port = _choose_ports(self.host, *self._asked)
        return self

    def _start_all(self, deadline: float, timeout_s: float) -> None:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((self.host, self.port))
            except OSError as error:
                raise _PortTaken(
                    f"the master cannot listen on {self.host}:{self.port}: {error.strerror}"
                ) from None
        # What another cluster left in a directory that was kept is not this one's.
        shutil.rmtree(self._recovery, ignore_errors=True)
        self._processes.append(self._master_process())
        self._processes += [self._worker_process(number) for number in range(1, self._workers + 1)]
        try:
            self._wait_for_workers(deadline, timeout_s)
        except BaseException:
            self.stop()
            raise

    def _wait_for_workers(self, deadline: float, timeout_s: float) -> None:
        while self._known_workers() < self._workers:
            self._check_running()
            if time.monotonic() > deadline:
                raise PipelineError(
                    f"the workers did not reach the master within {timeout_s:g} s; see {self._directory}"
                )
            time.sleep(_POLL_S)

    def _master_process(self) -> subprocess.Popen[bytes]:
        return self._start_process(
            "master",
            "org.apache.spark.deploy.master.Master",
            *("--host", self.host, "--port", str(self.port), "--webui-port", str(self.web_port)),
        )

    def _worker_process(self, number: int) -> subprocess.Popen[bytes]:
        return self._start_process(
            f"worker-{number}",
            "org.apache.spark.deploy.worker.Worker",
            *("--host", self.host, "--cores", str(self._cores), "--memory", self._memory),
            *("--webui-port", "0", "--work-dir", str(self._directory / f"work-{number}"), self.master),
        )

    @property
    def _recovery(self) -> Path:
        """Where the master keeps its list of workers and applications."""
        return self._directory / "recovery"

    @property
    def _directory(self) -> Path:
        if self._kept is not None:
            self._kept.mkdir(parents=True, exist_ok=True)
            return self._kept
        if self._temporary is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="ottla-spark-")
        return Path(self._temporary.name)

    def _start_process(self, name: str, main_class: str, *arguments: str) -> subprocess.Popen[bytes]:
        home, java = spark_home(), find_java()
        kept = (
            "-Dspark.deploy.recoveryMode=FILESYSTEM",
            f"-Dspark.deploy.recoveryDirectory={self._recovery}",
        )
        environment = {
            **os.environ,
            "JAVA_HOME": str(java.home),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": self.host,
            "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
            "SPARK_DAEMON_JAVA_OPTS": _with_options("SPARK_DAEMON_JAVA_OPTS", archive_flags(java)),
            "SPARK_MASTER_OPTS": _with_options("SPARK_MASTER_OPTS", (*_MASTER_OPTIONS, *kept)),
        }
        with (self._directory / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [str(home / "bin" / "spark-class"), main_class, *arguments],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                # Only this process gets Ctrl-C; it then stops the others in order.
                start_new_session=True,
            )

    def state(self) -> MasterState:
        """The master's report about its workers and applications."""
        with urllib.request.urlopen(f"{self.web_address}/json/", timeout=10) as response:
            state: MasterState = json.load(response)
            return state

    def _known_workers(self) -> int:
        try:
            return int(self.state()["aliveworkers"])
        except (urllib.error.URLError, ConnectionError, TimeoutError, json.JSONDecodeError):
            # A master that is still starting responds with nothing, or with something other than its state.
            return 0

    def _check_running(self) -> None:
        for process in self._processes:
            if process.poll() is not None:
                logs = {log.name: log.read_text() for log in sorted(self._directory.glob("*.log"))}
                last = "".join(f"\n{name}: {text.strip()[-500:]}" for name, text in logs.items())
                taken = any("java.net.BindException" in text for text in logs.values())
                kind = _PortTaken if taken else PipelineError
                raise kind(f"a process of the Spark cluster ended with {process.returncode}:{last}")

    def executor_pids(self) -> list[int]:
        """The processes that the workers have started to run tasks."""
        pids: list[int] = []
        for process in self._processes[1:]:
            if process.poll() is not None:
                continue
            pids += _children(process.pid)
        return pids

    def lose_worker(self, number: int) -> None:
        """Kills a worker and its executors at once, as if its machine were gone. The first worker is 1."""
        self._lose(number)

    def start_worker(self, number: int) -> None:
        """Starts a worker again that was lost; it registers with the master by itself."""
        self._processes[number] = self._worker_process(number)

    def lose_master(self) -> None:
        """Kills the master. Executors that run go on; nobody gets new ones until it is there again."""
        self._lose(0)

    def start_master(self, timeout_s: float = 120.0) -> None:
        """Starts the master again, and waits until its workers have come back to it."""
        self._processes[0] = self._master_process()
        self._wait_for_workers(time.monotonic() + timeout_s, timeout_s)

    def _lose(self, index: int) -> None:
        process = self._processes[index]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def wait(self) -> None:
        """Waits until one of the processes ends, and raises then; they do not end by themselves."""
        while True:
            self._check_running()
            time.sleep(1)

    def stop(self) -> None:
        """Stops all processes; those that do not stop within 10 s are killed."""
        for process in reversed(self._processes):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + _STOP_S
        for process in self._processes:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._processes.clear()
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def __enter__(self) -> StandaloneCluster:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _with_options(variable: str, options: Iterable[str]) -> str:
    """The options of an environment variable, and further ones."""
    return " ".join((os.environ.get(variable, ""), *options)).strip()


def _children(pid: int) -> list[int]:
    try:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:
        return []
    # Any thread of a JVM may start a process.
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found += (task / "children").read_text().split()
    return sorted({int(one) for one in found})


def _choose_ports(host: str, *asked: int) -> list[int]:
    """The ports that were asked for, and a free one for each 0: different ones, since all are held until the end."""
    with contextlib.ExitStack() as held:
        chosen = []
        for port in asked:
            if not port:
                probe = held.enter_context(socket.socket())
                probe.bind((host, 0))
                port = probe.getsockname()[1]
            chosen.append(port)
        return chosen
