"""`ottla demo` as a user runs it: results appear, in the console too; they are right; Ctrl-C leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect, sync_playwright

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
SOON_MS = 60_000
BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")


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
        "127.0.0.1:0",
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
        look_at_the_console(next(each.split()[-1] for each in said if each.startswith("Look at it: ")))
        found = [handle_of(pid) for pid in descendants(process.pid)]
        handles = [handle for handle in found if handle is not None]
        assert len(handles) >= 5, "a broker, the console, Connect, the pipelines' Python, their Spark"
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


def look_at_the_console(url: str) -> None:
    """What a newcomer finds in a browser: pipelines with their topology and rates, and the connector."""
    browser_path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser_path is None:
        return
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(f"{url}/c/local/pipelines")
        for name in (WORD_COUNT_APPLICATION, CLICKS_APPLICATION, ORDERS_APPLICATION):
            card = page.locator(".card", has_text=name)
            expect(card).to_contain_text("running", timeout=SOON_MS)
            expect(card).to_contain_text(re.compile(r"Last batch\s*[\d,]+ ms"), timeout=SOON_MS)
        page.get_by_role("link", name=WORD_COUNT_APPLICATION).click()
        expect(page.locator("svg.topology")).to_contain_text(LINES)
        expect(page.locator("svg.topology")).to_contain_text("/s", timeout=SOON_MS)
        page.goto(f"{url}/c/local/connect")
        expect(page.locator("tr[data-key=demo-orders]")).to_contain_text("running", timeout=SOON_MS)
        browser.close()


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
