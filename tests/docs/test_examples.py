"""The examples that need no Spark run and print what they promise; the README shows the word count as it is."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.doc_blocks import ROOT, blocks
from ottla.testing import BrokerProcess

EXAMPLES = ROOT / "examples"
TESTED_ON_SPARK = {
    "clickstream.py",
    "dstream_counts.py",
    "kappa_replay.py",
    "sensor_alerts.py",
    "structured_streaming.py",
    "word_count.py",
}


def run(name: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_producer_and_a_consumer(ottla_broker: BrokerProcess) -> None:
    lines = run("producer_consumer.py", ottla_broker.bootstrap).splitlines()
    assert lines[0] == "written to orders-0 at offset 0"
    assert lines[-3:] == ["alice owes 17.49", "bob owes 9.50", "carol owes 20.00"]


def test_asyncio(ottla_broker: BrokerProcess) -> None:
    assert run("asyncio_echo.py", ottla_broker.bootstrap).splitlines() == [
        "Hello, Ada",
        "Hello, Grace",
        "Hello, Katherine",
    ]


@pytest.mark.slow
def test_a_transaction(ottla_broker: BrokerProcess) -> None:
    """The aborted attempt before it leaves nothing behind."""
    assert run("transaction.py", ottla_broker.bootstrap).splitlines() == [
        *("alice -10", "bob +10", "bob -25", "carol +25", "carol -5", "alice +5"),
    ]


@pytest.mark.slow
def test_a_queue(ottla_broker: BrokerProcess) -> None:
    assert run("share_group.py", ottla_broker.bootstrap) == "20 jobs finished, 20 deliveries\n"


@pytest.mark.slow
def test_a_failover() -> None:
    printed = run("failover.py")
    assert "200 records written and read, in order" in printed


@pytest.mark.slow
def test_the_fixtures_of_pytest(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(EXAMPLES / "test_orders.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "2 passed" in done.stdout, done.stdout


def test_every_example_is_tested() -> None:
    tested = set(re.findall(r'"(\w+\.py)"', Path(__file__).read_text()))
    assert {path.name for path in EXAMPLES.glob("*.py")} == tested
    assert tested > TESTED_ON_SPARK


def test_the_readme_shows_the_word_count_as_it_is() -> None:
    shown = [block.text for block in blocks(ROOT / "README.md") if "StreamsBuilder" in block.text]
    assert shown == [(EXAMPLES / "word_count.py").read_text()]
