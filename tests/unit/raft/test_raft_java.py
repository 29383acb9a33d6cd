"""Kafka's own DumpLogSegments reads the metadata log, its snapshots and the bootstrap file that we write."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from oracle.kafka_tools import dump_log, needs_java
from ottla.broker.storage_format import format_metadata_dir
from ottla.log.fs import OsFs
from ottla.raft.voters import VoterSet
from ottla.wire import messages as m
from unit.raft.raft_harness import DYNAMIC, LOCAL, Quorum, feature

pytestmark = [needs_java, pytest.mark.java, pytest.mark.slow]

TOPIC_ID = b"1" * 16


def records_of_every_kind() -> list[Any]:
    broker = m.RegisterBrokerRecord
    return [
        feature("metadata.version", 30),
        broker(
            broker_id=1,
            broker_epoch=1,
            incarnation_id=TOPIC_ID,
            end_points=[broker.BrokerEndpoint(name="PLAINTEXT", host="h", port=1, security_protocol=0)],
            log_dirs=[TOPIC_ID],
        ),
        m.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, fenced=-1, cordoned_log_dirs=[]),
        m.TopicRecord(name="orders", topic_id=TOPIC_ID),
        m.PartitionRecord(
            topic_id=TOPIC_ID,
            partition_id=0,
            replicas=[1],
            isr=[1],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            directories=[TOPIC_ID],
            last_known_elr=[1],
        ),
        m.PartitionChangeRecord(
            topic_id=TOPIC_ID, partition_id=0, leader=-1, isr=[], eligible_leader_replicas=[1]
        ),
        m.ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="1"),
        m.ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=1000),
        m.UserScramCredentialRecord(
            name="u", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
        ),
        m.AccessControlEntryRecord(
            id=TOPIC_ID, resource_type=2, resource_name="o", principal="User:a", host="*"
        ),
        m.ClientQuotaRecord(
            entity=[m.ClientQuotaRecord.EntityData(entity_type="user", entity_name=None)], key="k", value=1.5
        ),
        m.DelegationTokenRecord(owner="o", requester="o", renewers=["r"], token_id="t"),
        m.RegisterControllerRecord(controller_id=1, incarnation_id=TOPIC_ID),
    ]


def test_kafka_reads_what_we_write(tmp_path: Path) -> None:
    fs = OsFs()
    format_metadata_dir(fs, str(tmp_path), now_ms=1_700_000_000_000, voters=VoterSet.of([LOCAL]))
    quorum = Quorum(fs, DYNAMIC, data_dir=str(tmp_path), snapshot_bytes=1).start()
    quorum.append(m.BeginTransactionRecord(name="all"), *records_of_every_kind(), m.EndTransactionRecord())
    quorum.raft.shutdown()
    directory = tmp_path / "__cluster_metadata-0"
    first, *_, last = sorted(directory.glob("*.checkpoint"))
    said = dump_log(
        directory / f"{0:020d}.log", first, last, tmp_path / "bootstrap.checkpoint", cluster_metadata=True
    )
    log, formatted, snapshot, bootstrap = re.split(r"^Dumping ", said, flags=re.M)[1:]
    assert 'LeaderChange: {"version":0,"leaderId":1' in log and "KRaftVoters" in log
    assert log.count("payload:") == len(records_of_every_kind()) + 2
    assert "SnapshotHeader" in formatted and "KRaftVoters" in formatted and "SnapshotFooter" in formatted
    assert bootstrap.count("FEATURE_LEVEL_RECORD") == 6
    for record_type in (
        "TOPIC",
        "PARTITION",
        "CONFIG",
        "USER_SCRAM_CREDENTIAL",
        "ACCESS_CONTROL_ENTRY",
        "CLIENT_QUOTA",
    ):
        assert f'"type":"{record_type}_RECORD"' in snapshot, snapshot
    assert "SnapshotFooter" in snapshot
