"""Apache Kafka's view of our transactions: its tool for them, its producer of version 2, its reader of our log."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from oracle.kafka_tools import needs_java, run_tool
from ottla.records.batch import build_batch
from ottla.records.record import Record
from ottla.testing.apache import ApacheKafka
from ottla.testing.process import BrokerProcess
from ottla.testing.raw_client import RawClient
from ottla.wire.messages import ProduceRequest

pytestmark = [needs_java, pytest.mark.java, pytest.mark.slow]

TOOLS = "org.apache.kafka.tools"
PATIENCE_S = 60.0


def transactions(broker: BrokerProcess, *arguments: object) -> str:
    return run_tool(f"{TOOLS}.TransactionsCommand", "--bootstrap-server", broker.bootstrap, *arguments)


def rows(said: str) -> list[dict[str, str]]:
    """The tool's table, a dictionary for each line."""
    lines = [line.split() for line in said.splitlines() if line.strip() and not line.startswith("SLF4J")]
    return [dict(zip(lines[0], line, strict=False)) for line in lines[1:]]


def create(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)


def begin(bootstrap: str, name: str, topic: str, value: bytes) -> Producer:
    """A producer with an open transaction."""
    # Nobody is to end it but the test, however long that takes.
    patience = {"transaction.timeout.ms": 600_000}
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": name, "log_level": 0, **patience}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, value, partition=0)
    assert producer.flush(60) == 0
    return producer


def wait_until_complete(broker: BrokerProcess, name: str) -> dict[str, str]:
    """A transaction that was committed, as the tool describes it when all of its markers are written."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        (described,) = rows(transactions(broker, "describe", "--transactional-id", name))
        if described["TransactionState"] == "CompleteCommit":
            return described
        assert time.monotonic() < deadline, described


def wait_for_committed(bootstrap: str, topic: str, wanted: list[bytes]) -> None:
    """A transaction is committed before its markers are there; until then readers do not see it."""
    deadline = time.monotonic() + PATIENCE_S
    while len(found := read_committed(bootstrap, topic)) < len(wanted):
        assert time.monotonic() < deadline, found
    assert found == wanted


def read_committed(bootstrap: str, topic: str) -> list[bytes]:
    """What a reader sees now."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    while (message := consumer.poll(60)) is not None and message.error() is None:
        values.append(message.value())
    assert message is not None and message.error().name() == "_PARTITION_EOF"
    consumer.close()
    return values


def test_the_transactions_tool(broker: BrokerProcess, topic: str) -> None:
    create(broker.bootstrap, topic)
    producer = begin(broker.bootstrap, topic, topic, b"open")

    listed = {row["TransactionalId"]: row for row in rows(transactions(broker, "list"))}
    assert listed[topic]["TransactionState"] == "Ongoing"
    assert topic not in transactions(broker, "list", "--duration-filter", 600_000)
    assert topic in transactions(broker, "list", "--transactional-id-pattern", f"{topic}.*")
    assert topic not in transactions(broker, "list", "--transactional-id-pattern", "other-.*")

    (described,) = rows(transactions(broker, "describe", "--transactional-id", topic))
    assert described["TransactionState"] == "Ongoing"
    assert described["ProducerId"] == listed[topic]["ProducerId"]
    assert f"{topic}-0" in transactions(broker, "describe", "--transactional-id", topic)

    place = ("--topic", topic, "--partition", 0)
    (writing,) = rows(transactions(broker, "describe-producers", *place))
    assert (writing["ProducerId"], writing["CurrentTransactionStartOffset"]) == (described["ProducerId"], "0")
    assert not rows(transactions(broker, "find-hanging", "--broker-id", 1, "--max-transaction-timeout", 0)), (
        "the coordinator knows it"
    )
    producer.commit_transaction(60)
    wait_until_complete(broker, topic)
    (writing,) = rows(transactions(broker, "describe-producers", *place))
    assert writing["CurrentTransactionStartOffset"] == "None"


def test_a_hanging_transaction_is_found_and_aborted(
    start_broker: Callable[..., BrokerProcess], topic: str
) -> None:
    broker = start_broker(settings={"transaction.partition.verification.enable": "false"})
    create(broker.bootstrap, topic)
    begin(broker.bootstrap, topic, topic, b"known").commit_transaction(60)
    wait_until_complete(broker, topic)
    (writing,) = rows(transactions(broker, "describe-producers", "--topic", topic, "--partition", 0))
    # A batch that its coordinator knows nothing of: what KIP-890 does away with, unless it is switched off.
    stray = build_batch(
        [Record(0, 1_700_000_000_000, None, b"stray")],
        producer_id=int(writing["ProducerId"]),
        producer_epoch=int(writing["ProducerEpoch"]),
        base_sequence=1,
        is_transactional=True,
    )
    data = ProduceRequest.PartitionProduceData(index=0, records=stray)
    request = ProduceRequest(
        transactional_id=topic,
        acks=-1,
        timeout_ms=5000,
        topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])],
    )
    with RawClient(broker.host, broker.port) as client:
        assert client.ask(request, 9).responses[0].partition_responses[0].error_code == 0
    (hanging,) = rows(transactions(broker, "find-hanging", "--broker-id", 1))
    assert (hanging["Topic"], hanging["Partition"], hanging["ProducerId"]) == (
        topic,
        "0",
        writing["ProducerId"],
    )
    start = hanging["StartOffset"]
    transactions(broker, "abort", "--topic", topic, "--partition", 0, "--start-offset", start)
    assert not rows(transactions(broker, "find-hanging", "--broker-id", 1))
    assert read_committed(broker.bootstrap, topic) == [b"known"]


def test_a_java_producer_of_version_two(broker: BrokerProcess, topic: str) -> None:
    create(broker.bootstrap, topic)
    said = run_tool(
        f"{TOOLS}.ProducerPerformance",
        *("--topic", topic, "--num-records", 3000, "--record-size", 100, "--throughput", 3000),
        *("--producer-props", f"bootstrap.servers={broker.bootstrap}", "acks=all"),
        # So short that there are many, also where each takes long to end.
        *("--transactional-id", topic, "--transaction-duration-ms", 1),
    )
    assert "3000 records sent" in said, said
    described = wait_until_complete(broker, topic)
    assert len(read_committed(broker.bootstrap, topic)) == 3000
    assert int(described["ProducerEpoch"]) > 5, "each transaction takes an epoch of its own"


def test_kafka_reads_our_transaction_log(start_broker: Callable[..., BrokerProcess], topic: str) -> None:
    broker = start_broker()
    create(broker.bootstrap, topic)
    producer = begin(broker.bootstrap, topic, topic, b"a")
    producer.commit_transaction(60)
    wait_until_complete(broker, topic)
    begin(broker.bootstrap, topic + "-open", topic, b"b")
    assert broker.stop() == 0, broker.log
    logs = [path for path in broker.data.glob("__transaction_state-*/*.log") if path.stat().st_size]
    said = run_tool(
        f"{TOOLS}.DumpLogSegments", "--files", ",".join(map(str, logs)), "--transaction-log-decoder"
    )
    assert f'"transactionalId":"{topic}"' in said.replace(" ", "")
    states = said.replace(" ", "").split('"transactionStatus":')[1:]
    assert {int(state.split(",")[0]) for state in states} == {0, 1, 2, 4}
    assert "isvalid: false" not in said


def test_transactions_move_between_kafka_and_ottla(tmp_path: Path) -> None:
    """What one has decided, the other completes; what one has open, the other aborts for a new producer."""
    kafka = ApacheKafka(tmp_path / "kafka")
    kafka.format()
    kafka.start()
    ottla = BrokerProcess(kafka.data, listen=kafka.bootstrap, arguments=["--config", str(kafka.properties)])
    try:
        create(kafka.bootstrap, "moved")
        begin(kafka.bootstrap, "first", "moved", b"1").commit_transaction(60)
        left_open = begin(kafka.bootstrap, "second", "moved", b"never")
        kafka.stop()

        ottla.start()
        wait_for_committed(ottla.bootstrap, "moved", [b"1"])
        begin(ottla.bootstrap, "second", "moved", b"2").commit_transaction(60)
        wait_for_committed(ottla.bootstrap, "moved", [b"1", b"2"])
        begin(ottla.bootstrap, "first", "moved", b"never")
        assert ottla.stop() == 0, ottla.log

        kafka.start()
        wait_for_committed(kafka.bootstrap, "moved", [b"1", b"2"])
        begin(kafka.bootstrap, "first", "moved", b"3").commit_transaction(60)
        wait_for_committed(kafka.bootstrap, "moved", [b"1", b"2", b"3"])
        del left_open
    finally:
        ottla.kill()
        kafka.kill()
