"""kcat, the client at the terminal, against a broker."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from ottla.testing.process import BrokerProcess

pytestmark = pytest.mark.skipif(
    shutil.which("kcat") is None, reason="kcat (a Debian package) is not installed"
)


def kcat(broker: BrokerProcess, *arguments: str, stdin: str = "") -> str:
    done = subprocess.run(
        ["kcat", "-b", broker.bootstrap, *arguments], input=stdin, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_list_shows_broker_and_topics(broker: BrokerProcess, topic: str) -> None:
    kcat(broker, "-P", "-t", topic, stdin="hello\n")
    listing = json.loads(kcat(broker, "-L", "-J"))
    assert listing["brokers"] == [{"id": 1, "name": broker.bootstrap}]
    assert topic in [entry["topic"] for entry in listing["topics"]]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_lines_go_in_and_come_out(broker: BrokerProcess, topic: str, codec: str) -> None:
    lines = [f"key-{i}:value {i}" for i in range(1000)]
    kcat(broker, "-P", "-t", topic, "-K:", "-z", codec, stdin="\n".join(lines) + "\n")
    out = kcat(broker, "-C", "-t", topic, "-K:", "-o", "beginning", "-e", "-q")
    assert out.splitlines() == lines


def test_offset_by_timestamp(broker: BrokerProcess, topic: str) -> None:
    kcat(broker, "-P", "-t", topic, stdin="a\nb\n")
    assert kcat(broker, "-Q", "-t", f"{topic}:0:-1").strip() == f"{topic} [0] offset 2"
