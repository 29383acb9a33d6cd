"""A DStream program whose driver is killed with kill -9: state and output go on, each record counted once."""

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
KINDS = ("direct", "received")
VALUES = 5
RECORDS = 100
DEADLINE_S = 500.0


def fill(kafka: Any, sources: dict[str, str]) -> None:
    for kind, topic in sources.items():
        kafka.fill(topic, ((None, f"{kind}-{number % VALUES}") for number in range(RECORDS)))


def results(kafka: Any, target: str) -> list[tuple[str, int, int]]:
    """(value, batch, count) of all committed records."""
    found = []
    for message in kafka.read(target):
        batch, count = message.value().decode().split(" ")
        found.append((message.key().decode(), int(batch), int(count)))
    return found


def wait_for(kafka: Any, target: str, job: Job, total: int) -> None:
    """Return when the newest counts of each kind add up to this many records or more."""
    consumer = watcher(kafka.bootstrap, target, "read_committed")
    deadline = time.monotonic() + DEADLINE_S
    newest: dict[str, int] = {}
    counted = dict.fromkeys(KINDS, 0)
    try:
        while min(counted.values()) < total:
            message: Any = consumer.poll(0.5)
            if message is not None and not message.error():
                newest[message.key().decode()] = int(message.value().split()[1])
                counted = {
                    kind: sum(count for value, count in newest.items() if value.startswith(kind))
                    for kind in KINDS
                }
            assert job.poll() is None, said(job)
            assert time.monotonic() < deadline, (newest, said(job))
    finally:
        consumer.close()


def said(job: Job) -> str:
    """What the program complained of: the first words, which have the cause, and the last."""
    lines = [line for line in job.output().splitlines() if not line.startswith("\tat ")]
    return "\n".join(lines if len(lines) < 120 else [*lines[:80], "...", *lines[-40:]])


def test_counts_go_on_after_the_driver_is_killed(ottla_kafka: Any, name: Any, tmp_path: Path) -> None:
    sources = {kind: ottla_kafka.make(name(kind), 2) for kind in KINDS}
    target = ottla_kafka.make(name("out"), 1)
    command = [
        *(sys.executable, str(PROGRAM), "--bootstrap-server", ottla_kafka.bootstrap, "--master", "local[2]"),
        *("--source", sources["direct"], "--received", sources["received"], "--target", target),
        *("--checkpoint", (tmp_path / "checkpoint").as_uri(), "--interval", "3", "--rate", "7"),
    ]
    job = Job(command, tmp_path / "driver.log")
    fill(ottla_kafka, sources)
    job.start()
    try:
        # In the middle: the direct stream reads 21 records of a partition in a batch.
        wait_for(ottla_kafka, target, job, 40)
        job.kill()
        fill(ottla_kafka, sources)
        job.start()
        wait_for(ottla_kafka, target, job, 2 * RECORDS)
    finally:
        job.kill()
    found = results(ottla_kafka, target)
    for kind in KINDS:
        assert max(count for value, _, count in found if value.startswith(kind)) == 2 * RECORDS // VALUES
    written = Counter((value, batch) for value, batch, _ in found)
    assert set(written.values()) == {1}, "each batch is in the target once"
    for wanted in {value for value, _, _ in found}:
        counts = [count for value, _, count in sorted(found, key=lambda one: one[1]) if value == wanted]
        assert counts == sorted(counts)
