"""Transactions of a real client at each level of `transaction.version`, and across a restart between two of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.testing.ports import free_ports
from ottla.testing.process import BrokerProcess


def formatted(directory: Path, level: int) -> Path:
    """The settings of a node whose directory is formatted with a level."""
    port, quorum = free_ports(2)
    settings = {
        "node.id": 1,
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{quorum}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@127.0.0.1:{quorum}",
        "log.dirs": directory / "data",
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
    }
    file = directory / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    words = ["storage", "format", "--config", str(file), "--cluster-id", "MkU3OEVBNTcwNTJENDM2Qg"]
    words += ["--feature", f"transaction.version={level}"]
    subprocess.run([sys.executable, "-m", "ottla", *words], check=True, capture_output=True)
    return file


@pytest.mark.parametrize("level", [0, 1, 2])
def test_transactions_end_at_every_level(tmp_path: Path, level: int) -> None:
    with BrokerProcess(tmp_path / "data", config=formatted(tmp_path, level)) as broker:
        transact(broker.bootstrap, (0, 1, 2))
        assert committed(broker.bootstrap) == ([b"0", b"1", b"2"], 2)
        broker.kill()
        broker.start()
        transact(broker.bootstrap, (3, 4))
        assert committed(broker.bootstrap) == ([b"0", b"1", b"2", b"3", b"4"], 4)


def transact(bootstrap: str, numbers: tuple[int, ...]) -> None:
    """A transaction per number, with a record and a group's offset; before each, one that is aborted."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "orders"})
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers"})
    producer.init_transactions(60)
    for number in numbers:
        for end in (producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            producer.produce("orders", b"%d" % number)
            producer.send_offsets_to_transaction(
                [TopicPartition("orders", 0, number)], reader.consumer_group_metadata(), 60
            )
            end(60)
    reader.close()


def committed(bootstrap: str) -> tuple[list[bytes | None], int]:
    """The values that a reader of committed records sees, and the group's offset."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "enable.auto.commit": False})
    (held,) = reader.committed([TopicPartition("orders", 0)], 60)
    _, end = reader.get_watermark_offsets(TopicPartition("orders", 0), 60)
    reader.assign([TopicPartition("orders", 0, 0)])
    found: list[bytes | None] = []
    while (at := reader.position([TopicPartition("orders", 0)])[0].offset) < end - 1:
        record = reader.poll(0.2)
        if record is not None and record.error() is None:
            found.append(record.value())
        elif at >= 0 and record is None and len(found) == held.offset + 1:
            break
    reader.close()
    return found, held.offset
