"""The driver's side of a transaction, without Spark: the owner of an id, the last batch, the view of a reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ottla.admin.cluster import Cluster
from ottla.admin.connection import ConnectionFailed
from ottla.client.cluster_settings import writer_settings
from ottla.errors import ApiException
from ottla.pipeline.columns import encode_sections
from ottla.pipeline.failures import SinkFenced
from ottla.pipeline.transaction import TransactionDriver
from ottla.pipeline.writer import BatchWriter, Place
from ottla.testing.apache import ApacheKafka, java_is_here
from ottla.wire.messages import EndTxnRequest
from spark.reading import Kafka

pytestmark = pytest.mark.java


def driver_of(kafka: Any, identity: str) -> TransactionDriver:
    driver = TransactionDriver(writer_settings(kafka.bootstrap), identity)
    driver.begin()
    return driver


def write(driver: TransactionDriver, topic: str, *values: str) -> None:
    writer = BatchWriter(Cluster(driver.brokers.settings), driver.grant())
    column = pa.array([value.encode() for value in values], pa.binary())
    times = np.full(len(values), 1_700_000_000_000, np.int64)
    writer.add(Place(topic, 0), encode_sections(None, column, times, None, 1 << 20))
    written = writer.flush()
    assert written[Place(topic, 0)].records == len(values)


def test_committed_and_aborted_batches(kafka: Any, name: Any) -> None:
    topic, identity = kafka.make(name("t")), name("id")
    driver = driver_of(kafka, identity)
    assert driver.last_batch("query") == -1
    for batch, commits in enumerate([True, True, False]):
        write(driver, topic, f"batch-{batch}")
        driver.mark(batch, "query")
        assert driver.commit_offsets(name("group"), {topic: {0: batch}}, "") == []
        driver.commit() if commits else driver.abort()
    assert kafka.values(topic) == {b"batch-0": 1, b"batch-1": 1}
    assert kafka.committed(name("group"), topic) == {0: 1}
    again = driver_of(kafka, identity)
    assert again.last_batch("query") == 1
    assert again.last_batch("another query") == -1


def test_brokers_that_want_partitions_added_first(tmp_path: Path, name: Any) -> None:
    """transaction.version 1: a write does not add its partition, and EndTxn returns no new epoch."""
    if not java_is_here():
        pytest.skip("Apache Kafka needs Java and Maven")
    node = ApacheKafka(tmp_path)
    node.format("--feature", "transaction.version=1")
    node.start()
    try:
        test_committed_and_aborted_batches(Kafka(node.bootstrap), name)
        test_taking_over_ends_what_was_open_and_fences(
            Kafka(node.bootstrap), lambda what: f"again-{name(what)}"
        )
    finally:
        node.kill()


def test_an_open_transaction_of_another_does_not_hide_our_last_batch(kafka: Any, name: Any) -> None:
    ours, other = driver_of(kafka, name("ours")), driver_of(kafka, name("other"))
    other.mark(7, "query")
    ours.mark(3, "query")
    ours.commit()
    ours.mark(4, "query")
    ours.abort()
    assert driver_of(kafka, name("ours")).last_batch("query") == 3
    other.abort()
    assert driver_of(kafka, name("other")).last_batch("query") == -1


def test_a_lost_answer_to_the_commit(kafka: Any, name: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit is sent again in the same epoch, and the broker recognizes it."""
    topic = kafka.make(name("t"))
    driver = driver_of(kafka, name("id"))
    really_ask = driver.brokers.ask_on
    lost: list[Any] = []

    def ask(connection: Any, request: Any, max_version: int | None = None) -> Any:
        answer = really_ask(connection, request, max_version)
        if isinstance(request, EndTxnRequest) and not lost:
            lost.append(answer)
            driver.brokers.drop(connection)
            raise ConnectionFailed(connection.node.address, EOFError("the answer was lost"))
        return answer

    monkeypatch.setattr(driver.brokers, "ask_on", ask)
    for batch in range(3):
        write(driver, topic, f"batch-{batch}")
        driver.mark(batch, "query")
        lost.clear()
        driver.commit()
        assert lost
    monkeypatch.undo()
    assert kafka.values(topic) == {b"batch-0": 1, b"batch-1": 1, b"batch-2": 1}
    assert driver_of(kafka, name("id")).last_batch("query") == 2


def test_taking_over_ends_what_was_open_and_fences(kafka: Any, name: Any) -> None:
    topic, identity = kafka.make(name("t")), name("id")
    old = driver_of(kafka, identity)
    write(old, topic, "half")
    old.mark(0, "query")
    new = driver_of(kafka, identity)
    assert new.last_batch("query") == -1
    with pytest.raises(ApiException):
        write(old, topic, "too late")
    with pytest.raises(SinkFenced):
        old.mark(0, "query")
    with pytest.raises(SinkFenced):
        old.commit_offsets(name("group"), {topic: {0: 5}}, "")
    with pytest.raises(SinkFenced):
        old.commit()
    write(new, topic, "whole")
    new.mark(0, "query")
    new.commit()
    assert kafka.values(topic) == {b"whole": 1}


def test_offsets_of_another_cluster_are_told(kafka: Any, name: Any) -> None:
    topic = kafka.make(name("t"))
    driver = driver_of(kafka, name("id"))
    driver.mark(0, "query")
    unknown = driver.commit_offsets(name("group"), {topic: {0: 3}, "elsewhere": {0: 9}}, "")
    driver.commit()
    assert unknown in ([Place("elsewhere", 0)], [])
    assert kafka.committed(name("group"), topic) == {0: 3}
