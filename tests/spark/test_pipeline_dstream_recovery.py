"""DStream programs whose driver is killed with kill -9: state and output go on, each record counted once."""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from spark.killing import Job, watcher

pytestmark = [pytest.mark.java, pytest.mark.timeout(1800)]

PROGRAM = Path(__file__).parents[2] / "examples" / "dstream_counts.py"
VALUES = 5
DEADLINE_S = 500.0


def fill(kafka: Any, topic: str, records: int) -> None:
    kafka.fill(topic, ((None, f"v{number % VALUES}") for number in range(records)))


def results(kafka: Any, target: str) -> list[tuple[str, int, int]]:
    """(value, batch, count) of all committed records."""
    found = []
    for message in kafka.read(target):
        batch, count = message.value().decode().split(" ")
        found.append((message.key().decode(), int(batch), int(count)))
    return found


def wait_for(kafka: Any, target: str, job: Job, total: int) -> None:
    """Return when the newest counts add up to this many records or more."""
    consumer = watcher(kafka.bootstrap, target, "read_committed")
    deadline = time.monotonic() + DEADLINE_S
    newest: dict[bytes, int] = {}
    try:
        while sum(newest.values()) < total:
            message: Any = consumer.poll(0.5)
            if message is not None and not message.error():
                newest[message.key()] = int(message.value().split()[1])
            assert job.poll() is None, job.output()[-3000:]
            assert time.monotonic() < deadline, (newest, job.output()[-3000:])
    finally:
        consumer.close()


@pytest.mark.parametrize("kind", ["direct", "receiver"])
def test_counts_go_on_after_the_driver_is_killed(
    ottla_kafka: Any, name: Any, tmp_path: Path, kind: str
) -> None:
    source, target = ottla_kafka.make(name("in"), 2), ottla_kafka.make(name("out"), 1)
    command = [
        *(sys.executable, str(PROGRAM), "--bootstrap-server", ottla_kafka.bootstrap, "--interval", "1"),
        *("--source", source, "--target", target, "--checkpoint", (tmp_path / "checkpoint").as_uri()),
        *("--rate", "20", "--receivers", "0" if kind == "direct" else "1"),
    ]
    job = Job(command, tmp_path / "driver.log")
    fill(ottla_kafka, source, 100)
    job.start()
    try:
        # In the middle: the direct stream reads 20 records a batch.
        wait_for(ottla_kafka, target, job, 40)
        job.kill()
        fill(ottla_kafka, source, 100)
        job.start()
        wait_for(ottla_kafka, target, job, 200)
    finally:
        job.kill()
    found = results(ottla_kafka, target)
    assert max(count for _, _, count in found) == 200 // VALUES
    written = Counter((value, batch) for value, batch, _ in found)
    assert set(written.values()) == {1}, "each batch is in the target once"
    for wanted in {value for value, _, _ in found}:
        counts = [count for value, _, count in sorted(found, key=lambda one: one[1]) if value == wanted]
        assert counts == sorted(counts)
