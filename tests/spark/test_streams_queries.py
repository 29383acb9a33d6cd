"""A running application seen from outside: stores over HTTP, status, stop and reset."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark.applications import run_command
from spark.killing import Job

pytestmark = [pytest.mark.java, pytest.mark.timeout(900)]

_LONGEST_S = 300.0

APPLICATION = """
from __future__ import annotations

from dataclasses import dataclass

from neighbour import words
from ottla.streams import StreamsBuilder


@dataclass
class Total:
    letters: int = 0
    longest: str = ""


b = StreamsBuilder()
lines = b.stream({source!r}).flat_map_values(words)
lines.group_by(lambda _, word: word).count(store="counts").to_stream().to({target!r})
(
    lines.group_by(lambda _, word: len(word), key_serde=int)
    .aggregate(
        Total,
        lambda _, word, total: Total(total.letters + len(word), max(total.longest, word)),
        value_serde=Total,
        store="totals",
    )
)
"""
"""It has a class of its own in its state, and a module in its directory."""


def ottla(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "ottla", "streams", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def ask(address: str, path: str) -> Any:
    """The response of the application, also with an error status."""
    try:
        with urllib.request.urlopen(address + path, timeout=120) as answer:
            output = answer.read()
    except urllib.error.HTTPError as refusal:
        with refusal:
            output = refusal.read()
    return output.decode() if path == "/metrics" else json.loads(output)


@pytest.fixture
def job(ottla_kafka: Any, name: Any, tmp_path: Path) -> Iterator[Job]:
    source, target = ottla_kafka.make(name("lines"), 2), ottla_kafka.make(name("counts"), 1)
    ottla_kafka.fill(source, [(None, "Hello Kafka"), (None, "hello Spark"), (None, "hello again")])
    file = tmp_path / "app.py"
    file.write_text(APPLICATION.format(source=source, target=target))
    file.with_name("neighbour.py").write_text("def words(line):\n    return line.lower().split()\n")
    more = ("--http-port", "0", "--master", "local[2]")
    job = Job(run_command(file, ottla_kafka, name("app"), tmp_path / "state", *more), tmp_path / "log")
    job.start()
    yield job
    job.kill()


def address_of(job: Job) -> str:
    deadline = time.monotonic() + _LONGEST_S
    while not (found := re.search(r"metrics at (http://\S+)", job.output())):
        assert time.monotonic() < deadline
        with contextlib.suppress(subprocess.TimeoutExpired):
            job.wait(0.1)
            raise AssertionError(f"it ended: {job.output()}")
    return found[1]


def test_a_running_application_answers_stops_and_begins_anew(
    job: Job, ottla_kafka: Any, name: Any, tmp_path: Path
) -> None:
    address, state, application = address_of(job), str(tmp_path / "state"), name("app")
    # Until the first batch is finished there is nothing to see, and a sentence says so.
    first = ask(address, "/stores/counts/hello")
    deadline = time.monotonic() + _LONGEST_S
    while (output := ask(address, "/stores/counts/hello")) != {"value": 3}:
        assert output == {"error": "the store counts has no content yet"}, output
        assert time.monotonic() < deadline
    assert first in ({"value": 3}, {"error": "the store counts has no content yet"})
    assert ask(address, "/stores/counts/nobody") == {"error": "there is no such key"}
    assert ask(address, "/stores/counts?from=b&to=kz") == [
        {"key": "hello", "value": 3},
        {"key": "kafka", "value": 1},
    ]
    assert {one["key"]: one["value"] for one in ask(address, "/stores/counts")} == {
        "hello": 3,
        "kafka": 1,
        "spark": 1,
        "again": 1,
    }
    assert ask(address, "/stores/totals/5") == {"value": {"letters": 30, "longest": "spark"}}
    assert ask(address, "/stores/totals/five") == {"error": "five is not a key of the store totals"}
    assert ask(address, "/stores/words/hello") == {
        "error": "there is no state store words; there are counts, totals"
    }

    # The status of a batch changes a moment after the stores.
    while "lag" not in (shown := ask(address, "/status")):
        assert time.monotonic() < deadline
    assert (shown["running"], shown["application_id"], shown["lag"]) == (True, application, 0)
    assert shown["state_rows"] > 0
    metrics = ask(address, "/metrics")
    assert f'ottla_streams_running{{application_id="{application}"}} 1' in metrics
    assert f'ottla_streams_lag{{application_id="{application}"}} 0' in metrics
    (one,) = json.loads(ottla("status", "--application-id", application, "--state-dir", state, "--json"))
    assert one["running"]
    listed = ottla("status", "--state-dir", state).splitlines()
    assert listed[0].split()[-1] == "LAG"
    assert listed[1].split()[:2] == [application, "running"]

    assert ottla("stop", "--application-id", application, "--state-dir", state).endswith("asked to stop\n")
    assert job.wait(_LONGEST_S) == 0, job.output()
    assert job.output().endswith(f"{application}: stopped\n")
    assert "Traceback" not in job.output()
    output = ottla(
        *("reset", "--application-id", application, "--state-dir", state),
        *("--bootstrap-server", ottla_kafka.bootstrap),
    )
    assert "state and checkpoint" in output
    assert f"the offsets of the group {application} are gone" in output
    assert not (tmp_path / "state" / application).exists()
