"""`ottla dump-log` and Kafka's DumpLogSegments print the same for the same files."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from oracle.kafka_tools import needs_java
from oracle.tools_lines import lines
from oracle.tools_oracle import JavaTools, run_ottla
from ottla.testing.process import BrokerProcess

pytestmark = [needs_java, pytest.mark.java, pytest.mark.slow]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a broker that was used and stopped: rolled logs, transactions, groups."""
    directory = tmp_path_factory.mktemp("dumped") / "data"
    with BrokerProcess(directory, settings={"log.segment.bytes": 1 << 20}) as broker:
        settings = {"bootstrap.servers": broker.bootstrap}
        producer = Producer({**settings, "enable.idempotence": True})
        for _ in range(2500):
            producer.produce("rolled", b"x" * 1000)
            producer.poll(0)
        producer.flush()
        packed = Producer({**settings, "compression.type": "zstd", "linger.ms": 20})
        for number in range(500):
            packed.produce("packed", f"größe {number}", headers=[("a", b"1"), ("b", None)])
        packed.flush()
        writer = Producer({**settings, "transactional.id": "till"})
        writer.init_transactions()
        for number in range(4):
            writer.begin_transaction()
            writer.produce("bills", f"bill {number}", f"{number}")
            writer.commit_transaction() if number % 2 else writer.abort_transaction()
        for protocol in ("classic", "consumer"):
            consumer = Consumer({**settings, "group.id": f"{protocol} group", "group.protocol": protocol})
            consumer.subscribe(["bills"])
            while not consumer.assignment():
                consumer.poll(0.1)
            consumer.commit(offsets=[TopicPartition("bills", 0, 1)], asynchronous=False)
            consumer.close()
        run_ottla(
            *("share-groups", "--bootstrap-server", broker.bootstrap, "--reset-offsets", "--group", "queue"),
            *("--topic", "bills", "--to-earliest", "--execute"),
        )
    return directory


def files(data: Path, *patterns: str) -> str:
    found = sorted(path for pattern in patterns for path in data.glob(pattern) if path.stat().st_size)
    assert found, patterns
    return ",".join(map(str, found))


@pytest.mark.parametrize("line", lines("dumping"))
def test_the_same_is_printed(data: Path, java_tools: JavaTools, line: str) -> None:
    _, flag, patterns, *flags = line.split()
    arguments = (flag, files(data, *patterns.split(",")), *flags)
    theirs, ours = java_tools.run("dump-log", *arguments), run_ottla("dump-log", *arguments)
    assert theirs.code == 0, theirs.err
    assert ours.code == 0, ours.err
    assert ours.out == theirs.out


def test_bytes_that_are_no_batch_are_told(data: Path, java_tools: JavaTools, tmp_path: Path) -> None:
    (source,) = (data / "packed-0").glob("*.log")
    torn = tmp_path / source.name
    torn.write_bytes(source.read_bytes()[:-10])
    damaged = tmp_path / f"{7:020}.log"
    damaged.write_bytes(source.read_bytes()[:-1] + b"!")
    arguments = ("--files", f"{torn},{damaged}")
    theirs, ours = java_tools.run("dump-log", *arguments), run_ottla("dump-log", *arguments)
    assert "invalid bytes at the end" in ours.out and "isvalid: false" in ours.out
    assert ours.out == theirs.out
