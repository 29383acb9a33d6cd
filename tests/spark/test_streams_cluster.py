"""One application file, unchanged: on local Spark until its driver falls asleep, then on a standalone cluster of one
master and two workers, which goes on counting; the driver that wakes up is fenced.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from ottla.pipeline.standalone import StandaloneCluster
from ottla.testing.ports import free_ports
from spark.applications import COUNTS, run_command, written
from spark.killing import Job, watcher

pytestmark = [pytest.mark.java, pytest.mark.timeout(1200)]

LINES = 600
PER_BATCH = 100
_LONGEST_S = 500.0


def fall_asleep_in_a_transaction(job: Job, kafka: Any, target: str) -> None:
    """Stops the driver and all its processes while its writes wait for the commit."""
    consumer = watcher(kafka.bootstrap, target)
    deadline = time.monotonic() + _LONGEST_S
    try:
        while True:
            assert job.poll() is None, f"it ended before it could be stopped\n{job.output()[-4000:]}"
            assert time.monotonic() < deadline, "it wrote nothing"
            if consumer.poll(0.5) is None:
                continue
            job.signal(signal.SIGSTOP)
            if kafka.ends(target) != kafka.ends(target, "read_uncommitted"):
                return
            job.signal(signal.SIGCONT)
    finally:
        consumer.close()


def test_an_application_goes_on_elsewhere_and_its_stale_driver_is_fenced(
    ottla_kafka: Any, name: Any, tmp_path: Path
) -> None:
    kafka, application, state = ottla_kafka, name("app"), tmp_path / "state"
    source, target = kafka.make(name("lines"), 2), kafka.make(name("counts"), 2)
    rng = random.Random(5)
    lines = [" ".join(rng.choices(["One", "two", "three", "four", "FIVE"], k=4)) for _ in range(LINES)]
    kafka.fill(source, [(None, line) for line in lines])
    file = written(COUNTS, tmp_path, source, target)
    more = ("--once", "--batch-records", str(PER_BATCH))
    # Spark is not to think, when it wakes up, that its own threads have died.
    patient = ("--conf", f"spark.network.timeout={2 * _LONGEST_S:.0f}s", "--master", "local[2]")
    stale = Job(run_command(file, kafka, application, state, *more, *patient), tmp_path / "local.log")
    port, web_port = free_ports(2)
    with StandaloneCluster(
        workers=2, cores=1, memory="700m", port=port, web_port=web_port, directory=tmp_path / "cluster"
    ) as cluster:
        fresh = Job(
            run_command(file, kafka, application, state, *more, "--master", cluster.master),
            tmp_path / "cluster.log",
        )
        stale.start()
        try:
            fall_asleep_in_a_transaction(stale, kafka, target)
            fresh.start()
            assert fresh.wait(_LONGEST_S) == 0, fresh.output()[-4000:]
            before = kafka.ends(target)
            stale.signal(signal.SIGCONT)
            assert stale.wait(_LONGEST_S) == 1
        finally:
            stale.kill()
            if fresh.process is not None:
                fresh.kill()
    fenced = f"Error: transactional id {application} was taken over by another driver"
    assert any(line.startswith(fenced) for line in stale.output().splitlines()), stale.output()[-4000:]
    assert "Traceback" not in stale.output()

    assert kafka.ends(target) == before
    output = defaultdict(list)
    for one in kafka.read(target):
        output[one.key().decode()].append(int.from_bytes(one.value(), "big"))
    expected = Counter(word for line in lines for word in line.lower().split())
    assert {word: counts[-1] for word, counts in output.items()} == expected
    for counts in output.values():
        assert counts == sorted(set(counts)), "a count was written twice, or out of order"
        assert len(counts) > 1
    assert kafka.committed(application, source) == kafka.ends(source)
