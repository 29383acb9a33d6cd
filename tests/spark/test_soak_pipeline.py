"""The pipeline of a soak: its driver is killed, and each committed record is in the target once, with its place."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from ottla.testing.checks.history import Recorder
from ottla.testing.cluster import Cluster
from ottla.testing.soak.pipeline import running_pipeline

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]


def write(bootstrap: str, first: int, count: int, *, commit: bool) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "writer"})
    producer.init_transactions(60)
    producer.begin_transaction()
    for number in range(first, first + count):
        producer.produce("ledger", f"value {number}".encode(), partition=number % 2)
    if commit:
        producer.commit_transaction(60)
    else:
        producer.abort_transaction(60)


def test_a_killed_driver_copies_each_committed_record_once(tmp_path: Path) -> None:
    alone = {
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
    }
    cluster = Cluster(tmp_path / "data", 1, settings=alone)
    try:
        cluster.start()
        cluster.create_topic("ledger", 2, 1)
        with (
            Recorder(tmp_path / "history.jsonl") as recorder,
            running_pipeline(cluster, tmp_path, "ledger", 2, kill_each_s=15.0, replicas=1) as copy,
        ):
            write(cluster.bootstrap, 0, 100, commit=True)
            write(cluster.bootstrap, 1000, 10, commit=False)
            cluster.wait_for(lambda: copy.kills > 0, 60)
            write(cluster.bootstrap, 100, 50, commit=True)
            copy.finish(recorder)
        (table,) = recorder.history.tables
        assert sorted(int(value.split()[1]) for _, _, value in table.rows) == list(range(150))
        assert all(partition == f"ledger-{int(value.split()[1]) % 2}" for partition, _, value in table.rows)
    finally:
        cluster.kill_all()
