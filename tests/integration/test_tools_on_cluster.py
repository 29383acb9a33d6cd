"""The tools of a cluster on three of our own brokers: partitions move, leaders change, the doctor looks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from ottla.testing.cluster import Cluster

pytestmark = pytest.mark.slow


def ottla(cluster: Cluster, tool: str, *words: object) -> str:
    """What a tool prints; it must end well."""
    done = subprocess.run(
        [sys.executable, "-m", "ottla", tool, "--bootstrap-server", cluster.bootstrap, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def write_plan(file: Path, topic: str, replicas: list[list[int]]) -> Path:
    partitions = [
        {"topic": topic, "partition": number, "replicas": brokers} for number, brokers in enumerate(replicas)
    ]
    file.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return file


def wait_for_leaders(cluster: Cluster, topic: str, *leaders: int) -> None:
    """Until every broker, whichever a tool asks, knows these leaders."""

    def known() -> bool:
        found = [
            cluster.partition(topic, number, node_id=node_id)
            for node_id in cluster.broker_ids
            for number in range(len(leaders))
        ]
        reported = [None if each is None else each.leader_id for each in found]
        return reported == [*leaders] * len(cluster.broker_ids)

    cluster.wait_for(known)


def test_partitions_move_with_their_records_and_leaders_come_back(
    cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    ottla(cluster, "topics", "--create", "--topic", topic, "--replica-assignment", "1:2,1:2")
    wait_for_leaders(cluster, topic, 1, 1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(200):
        producer.produce(topic, str(number), partition=number % 2)
    producer.flush()
    plan = write_plan(tmp_path / "plan.json", topic, [[3, 2], [2, 3]])
    started = ottla(cluster, "reassign-partitions", "--execute", "--reassignment-json-file", plan)
    assert f"Successfully started partition reassignments for {topic}-0,{topic}-1" in started
    verify = ("reassign-partitions", "--verify", "--reassignment-json-file", plan)
    while "in progress" in (reported := ottla(cluster, *verify)):
        pass
    assert f"Reassignment of partition {topic}-1 is completed." in reported
    wait_for_leaders(cluster, topic, 3, 2)
    assert ottla(cluster, "reassign-partitions", "--list") == "No partition reassignments found.\n"
    (described,) = json.loads(ottla(cluster, "topics", "--describe", "--topic", topic, "--json"))
    assert [each["replicas"] for each in described["partitions"]] == [[3, 2], [2, 3]]
    assert [each["leader"] for each in described["partitions"]] == [3, 2]
    offsets = ottla(cluster, "get-offsets", "--topic", topic)
    assert offsets == f"{topic}:0:100\n{topic}:1:100\n"

    order = write_plan(tmp_path / "order.json", topic, [[2, 3], [2, 3]])
    ottla(cluster, "reassign-partitions", "--execute", "--reassignment-json-file", order)
    elect = ("leader-election", "--election-type", "preferred", "--topic", topic, "--partition")
    assert "Successfully completed leader election (PREFERRED)" in ottla(cluster, *elect, 0)
    assert "Valid replica already elected" in ottla(cluster, *elect, 1)


def test_a_proposal_uses_all_brokers_that_are_named(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    ottla(cluster, "topics", "--create", "--topic", topic, "--partitions", 6, "--replication-factor", 2)
    file = tmp_path / "topics.json"
    file.write_text(json.dumps({"topics": [{"topic": topic}], "version": 1}))
    words = ("--generate", "--topics-to-move-json-file", file, "--broker-list", "1,2,3", "--json")
    proposed = json.loads(ottla(cluster, "reassign-partitions", *words))["proposed"]["partitions"]
    leaders = [entry["replicas"][0] for entry in proposed]
    assert sorted(leaders) == [1, 1, 2, 2, 3, 3]
    assert all(len(set(entry["replicas"])) == 2 for entry in proposed)


def test_the_doctor_knows_every_broker(cluster: Cluster) -> None:
    findings = json.loads(ottla(cluster, "doctor", "--json"))
    reached = [each for each in findings if each["check"].startswith("broker ")]
    assert [each["state"] for each in reached] == ["ok"] * 3
    assert any(each["check"] == "controllers" and each["state"] == "ok" for each in findings)
