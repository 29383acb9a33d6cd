"""`ottla demo` as a user runs it: results appear, they are right, and Ctrl-C leaves no process behind."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ottla.demo.generator import click, line
from ottla.demo.pipelines import (
    CLICKS_APPLICATION,
    ORDERS_APPLICATION,
    WINDOW,
    WORD_COUNT_APPLICATION,
    window_key,
)
from ottla.demo.topics import CLICKS, CLICKS_PER_WINDOW, LINES, ORDERS, ORDERS_PER_ITEM, WORD_COUNTS
from ottla.testing.process import BrokerProcess
from spark.reading import Kafka

SEED = 20
STOP_S = 120.0


def descendants(pid: int) -> list[int]:
    """All processes that this process or its children have started and that still run."""
    try:
        children = [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except (FileNotFoundError, ProcessLookupError):
        return []
    return children + [one for child in children for one in descendants(child)]


def handle_of(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None  # it ended before we could look


def wait_gone(handles: list[int]) -> None:
    for handle in handles:
        readable, _, _ = select.select([handle], [], [], STOP_S)
        assert readable, "a process outlived the demo"


def last_values(kafka: Kafka, topic: str) -> dict[str, Any]:
    return {one.key().decode(): json.loads(one.value()) for one in kafka.read(topic)}


@pytest.mark.timeout(600)
@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="looks for processes as Linux shows them")
def test_the_demo_counts_and_leaves_nothing_behind(tmp_path: Path) -> None:
    words = [
        sys.executable,
        "-m",
        "ottla",
        "demo",
        "--data",
        "data",
        "--listen",
        "127.0.0.1:0",
        "--console",
        "",
    ]
    process = subprocess.Popen(
        [*words, "--seed", str(SEED), "--rate", "20"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        said = [process.stdout.readline()]
        assert " is ready on 127.0.0.1:" in said[0]
        while "; clicks from " not in said[-1]:
            said.append(process.stdout.readline())
            assert said[-1] and "There are no pipelines" not in said[-1], said
        found = [handle_of(pid) for pid in descendants(process.pid)]
        handles = [handle for handle in found if handle is not None]
        assert len(handles) >= 3, "a broker, the pipelines' Python, their Spark"
        process.send_signal(signal.SIGINT)
        rest, complaints = process.communicate(timeout=STOP_S)
        wait_gone(handles)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, complaints) == (0, "")
    assert rest.endswith("Stopping ...\nStopped\n")
    text = "".join(said)
    assert "Spark shows what it does at http://" in text
    assert f"consume --bootstrap-server 127.0.0.1:{text.split('127.0.0.1:')[1].split()[0]}" in text

    broker = BrokerProcess(tmp_path / "data").start()
    try:
        check_results(Kafka(broker.bootstrap))
    finally:
        broker.kill()


def check_results(kafka: Kafka) -> None:
    """Each result covers the records before the offset that was committed with it."""
    lines = [one.value().decode() for one in kafka.read(LINES)]
    assert lines == [line(SEED, number) for number in range(len(lines))]
    counted = lines[: kafka.committed(WORD_COUNT_APPLICATION, LINES)[0]]
    assert counted
    expected = Counter(word for each in counted for word in each.lower().split())
    assert last_values(kafka, WORD_COUNTS) == expected

    clicks = kafka.read(CLICKS)
    sent = [click(SEED, number) for number in range(len(clicks))]
    assert [json.loads(one.value()) for one in clicks] == [
        {"user": one.user, "page": one.page} for one in sent
    ]
    window_ms = int(WINDOW.total_seconds() * 1000)
    windows = Counter(
        window_key(json.loads(one.value())["page"], one.timestamp()[1] // window_ms * window_ms)
        for one in clicks[: kafka.committed(CLICKS_APPLICATION, CLICKS)[0]]
    )
    assert windows
    assert last_values(kafka, CLICKS_PER_WINDOW) == windows

    # Connect writes in transactions, whose markers take offsets too.
    until = kafka.committed(ORDERS_APPLICATION, ORDERS)[0]
    orders = [json.loads(one.value()) for one in kafka.read(ORDERS) if one.offset() < until]
    assert set(orders[0]) == {"id", "item", "pieces", "changed"}
    assert last_values(kafka, ORDERS_PER_ITEM) == Counter(one["item"] for one in orders)
