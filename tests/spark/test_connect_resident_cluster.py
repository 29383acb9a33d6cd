"""Resident tasks of Connect on a standalone Spark cluster that loses a worker, executors and Python workers.

`make test-connect-faults` strikes more often, and also pauses processes until they are given up.
"""

import os
import signal
import threading

import pytest

from chaos.connect_workers import WorkerProcess
from integration.connect_rest import STRINGS, eventually
from ottla.pipeline.standalone import StandaloneCluster
from ottla.testing.ports import free_ports
from spark.killing import python_workers

pytestmark = [pytest.mark.java, pytest.mark.timeout(1800)]

LONG = "OTTLA_CONNECT_KILLS" in os.environ
PATIENCE_S = 240


def keys(bootstrap, port, master):
    return {
        **STRINGS,
        "bootstrap.servers": bootstrap,
        "listeners": f"http://127.0.0.1:{port}",
        "ottla.spark.master": master,
        "ottla.spark.conf.spark.executor.memory": "500m",
        "ottla.resident.tasks": "-1",
        "ottla.restart.backoff.ms": "100",
        "ottla.restart.backoff.max.ms": "1000",
        "ottla.cycle.max.bytes": "2000",
    }


class Growing(threading.Thread):
    """A file that grows until `ended` is set."""

    def __init__(self, file):
        super().__init__()
        self._file = file
        self.ended = threading.Event()
        self.lines = 0

    def run(self):
        with self._file.open("a", buffering=1) as file:
            while not self.ended.wait(0.005):
                file.write(f"line {self.lines}\n")
                self.lines += 1


def strikes(cluster):
    """What happens to the cluster, one after the other. A pause gives the way to end it, others give None."""

    def paused(pids):
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        return lambda: [_signal(pid, signal.SIGCONT) for pid in pids]

    def killed(pids):
        for pid in pids:
            _signal(pid, signal.SIGKILL)

    yield lambda: killed(python_workers(cluster)[:1])
    if LONG:
        yield lambda: paused(cluster.executor_pids()[:1])
    yield lambda: cluster.lose_worker(1)
    if LONG:
        yield lambda: killed(cluster.executor_pids())
        yield lambda: paused(python_workers(cluster))
        yield lambda: killed(python_workers(cluster))


def _signal(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def test_lost_workers_and_processes_of_the_cluster_lose_and_repeat_nothing(ottla_kafka, name, tmp_path):
    source, out = tmp_path / "in.txt", tmp_path / "out.txt"
    source.touch()
    topic = name("grow")
    (port,) = free_ports(1)
    growing = Growing(source)
    with StandaloneCluster(workers=2, cores=2, memory="700m", directory=tmp_path / "cluster") as cluster:
        worker = WorkerProcess(tmp_path, port, keys(ottla_kafka.bootstrap, port, cluster.master))
        try:
            rest = worker.start().ready().rest
            rest.create(f"{topic}-in", connector_class="FileStreamSource", file=str(source), topic=topic)
            rest.create(f"{topic}-out", connector_class="FileStreamSink", file=str(out), topics=topic)
            growing.start()

            def grown(by):
                before = out.stat().st_size if out.exists() else 0
                eventually(lambda: out.exists() and out.stat().st_size > before + by, PATIENCE_S)

            grown(200)
            for strike in strikes(cluster):
                wake = strike()
                grown(2000)
                if wake is not None:
                    wake()
            growing.ended.set()
            growing.join()
            eventually(lambda: out.read_bytes() == source.read_bytes(), PATIENCE_S)
            for end in ("in", "out"):
                assert rest.call("GET", f"/ottla/connectors/{topic}-{end}")[1]["resident_cycles"] > 0
        finally:
            growing.ended.set()
            worker.kill()
            print(worker.log.read_text()[-6000:])
    assert [one.value().decode() for one in ottla_kafka.read(topic)] == [
        f"line {number}" for number in range(growing.lines)
    ]
