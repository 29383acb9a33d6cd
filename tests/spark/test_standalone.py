"""The processes of a standalone Spark cluster."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.pipeline import standalone
from ottla.pipeline.class_archive import archive_path
from ottla.pipeline.failures import PipelineError
from ottla.pipeline.java import find_java
from ottla.pipeline.standalone import StandaloneCluster

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]

REST_PORT = 6066
"""Where every master accepts submissions by REST, unless that is switched off."""


def test_a_port_that_was_taken_after_it_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    choose = standalone._choose_ports
    with socket.socket() as taken, socket.socket() as rest:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        # Another master of this machine may have it already.
        with contextlib.suppress(OSError):
            rest.bind(("127.0.0.1", REST_PORT))
            rest.listen()
        port: int = taken.getsockname()[1]
        asked = [(port, 0), (0, port), (0, 0)]
        monkeypatch.setattr(standalone, "_choose_ports", lambda host, *_: choose(host, *asked.pop(0)))
        with StandaloneCluster(workers=1) as cluster:
            assert asked == []
            assert cluster.state()["aliveworkers"] == 1


def test_a_port_that_was_asked_for_and_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port: int = taken.getsockname()[1]
        cluster = StandaloneCluster(workers=1, port=port, web_port=port)
        with pytest.raises(PipelineError, match=f"the master cannot listen on 127.0.0.1:{port}"):
            cluster.start()


WAITING = """
import sys
from ottla.pipeline import spark_session

spark = spark_session("waiting", master=sys.argv[1], settings={"spark.ui.enabled": "false"})
print("answer", spark.range(10).count(), flush=True)
sys.stdin.read()
"""
"""A driver that keeps its executors until it is ended."""


def test_all_jvms_of_a_cluster_start_from_the_archive_of_classes(tmp_path: Path) -> None:
    archive = archive_path(find_java())
    if not archive.exists():
        pytest.skip("no archive of Spark's classes: make setup-spark")
    with StandaloneCluster(workers=1, directory=tmp_path / "cluster") as cluster:
        with subprocess.Popen(
            [sys.executable, "-c", WAITING, cluster.master],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as driver:
            assert driver.stdout is not None
            assert "answer 10\n" in driver.stdout
            daemons = [process.pid for process in cluster._processes]
            executors = cluster.executor_pids()
            mapped = {
                pid: str(archive) in Path(f"/proc/{pid}/maps").read_text() for pid in daemons + executors
            }
            driver.communicate("")
    assert len(executors) == 1
    assert mapped == dict.fromkeys(daemons + executors, True)


ASKED = """
import sys
from ottla.pipeline import spark_session

spark = spark_session("asked", master=sys.argv[1], settings={"spark.ui.enabled": "false"})
for line in sys.stdin:
    print("answer", spark.range(int(line)).count(), flush=True)
"""
"""A driver that runs a job for each line."""


def test_a_master_that_died_goes_on_with_its_workers_and_applications(tmp_path: Path) -> None:
    with (
        StandaloneCluster(workers=1, directory=tmp_path / "cluster") as cluster,
        subprocess.Popen(
            [sys.executable, "-c", ASKED, cluster.master],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as driver,
    ):
        assert driver.stdin is not None and driver.stdout is not None

        def answer(count: int) -> str:
            driver.stdin.write(f"{count}\n")
            driver.stdin.flush()
            return next(line for line in driver.stdout if line.startswith("answer"))

        try:
            assert answer(10) == "answer 10\n"
            cluster.lose_master()
            assert answer(11) == "answer 11\n", "an executor needs no master"
            cluster.start_master()
            for pid in cluster.executor_pids():
                os.kill(pid, signal.SIGKILL)
            assert answer(12) == "answer 12\n", "the master gives the application another executor"
            cluster.lose_worker(1)
            cluster.start_worker(1)
            assert answer(13) == "answer 13\n", "and one on a worker that came back"
            driver.stdin.close()
            assert driver.wait(60) == 0
        finally:
            driver.kill()
