"""Apache Kafka's own tools look into a cluster of ours and change it: topics, reassignments, elections, features."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from oracle.kafka_tools import needs_java, run_tool
from ottla.testing.cluster import Cluster

pytestmark = [needs_java, pytest.mark.java, pytest.mark.slow]

TOOLS = "org.apache.kafka.tools"


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Four brokers and a controller; every test leaves all of them running."""
    with Cluster(tmp_path_factory.mktemp("four"), 4, controllers=1) as nodes:
        yield nodes
        for node_id in nodes.nodes:
            assert "Traceback" not in nodes.log(node_id), nodes.log(node_id)


def tool(cluster: Cluster, name: str, *arguments: object) -> str:
    said = run_tool(f"{TOOLS}.{name}", "--bootstrap-server", cluster.bootstrap, *arguments)
    return "\n".join(line for line in said.splitlines() if line and not line.startswith("SLF4J"))


def wait_everywhere(cluster: Cluster, topic: str, partitions: int, in_sync: list[int] | None = None) -> None:
    """Until every broker that runs says so of these partitions: the tools may ask any of them.

    In sync are these brokers, or all that have a replica.
    """

    def is_so(found: Any) -> bool:
        wanted = found.replica_nodes if in_sync is None else in_sync
        return found.leader_id >= 0 and sorted(found.isr_nodes) == sorted(wanted)

    cluster.wait_for(
        lambda: all(
            (found := cluster.partition(topic, index, node_id=node_id)) is not None and is_so(found)
            for node_id in cluster.broker_ids
            if cluster.running(node_id)
            for index in range(partitions)
        )
    )


def fill(cluster: Cluster, topic: str, megabytes: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for _ in range(megabytes * 10):
        producer.produce(topic, os.urandom(100_000))
    assert producer.flush(60) == 0


def test_topics_tells_what_is_under_replicated(four: Cluster, topic: str) -> None:
    tool(
        *(four, "TopicCommand", "--create", "--topic", topic, "--replica-assignment", "1:2:3,2:3:1"),
        *("--config", "min.insync.replicas=2"),
    )
    wait_everywhere(four, topic, 2)
    described = tool(four, "TopicCommand", "--describe", "--topic", topic)
    assert "ReplicationFactor: 3" in described
    assert "Leader: 1\tReplicas: 1,2,3\tIsr: 1,2,3" in described
    assert tool(four, "TopicCommand", "--describe", "--under-replicated-partitions", "--topic", topic) == ""
    four.kill(3)
    wait_everywhere(four, topic, 2, [1, 2])
    under = tool(four, "TopicCommand", "--describe", "--under-replicated-partitions", "--topic", topic)
    assert under.count("Isr: 1,2") + under.count("Isr: 2,1") == 2
    at_min = tool(four, "TopicCommand", "--describe", "--at-min-isr-partitions", "--topic", topic)
    assert at_min.count(f"Topic: {topic}") == 2
    assert tool(four, "TopicCommand", "--describe", "--under-min-isr-partitions", "--topic", topic) == ""
    four.kill(2)
    wait_everywhere(four, topic, 2, [1])
    below = tool(four, "TopicCommand", "--describe", "--under-min-isr-partitions", "--topic", topic)
    assert below.count(f"Topic: {topic}") == 2
    assert "Elr: 2" in below
    for node_id in (2, 3):
        four.start_node(node_id)
    wait_everywhere(four, topic, 2)


def test_leader_election_brings_preferred_leaders_back(four: Cluster, topic: str) -> None:
    four.create_topic(topic, assignments=[[2, 3], [3, 2]])
    wait_everywhere(four, topic, 2)
    assert four.stop(2) == 0
    wait_everywhere(four, topic, 2, [3])
    four.start_node(2)
    wait_everywhere(four, topic, 2)
    assert four.leader_of(topic) == 3
    said = tool(
        *(four, "LeaderElectionCommand", "--election-type", "preferred"),
        *("--topic", topic, "--partition", 0),
    )
    assert "Successfully completed leader election (PREFERRED)" in said
    four.wait_for(lambda: four.leader_of(topic) == 2)
    again = tool(
        *(four, "LeaderElectionCommand", "--election-type", "preferred"),
        *("--topic", topic, "--partition", 0),
    )
    assert "Valid replica already elected" in again


def test_reassign_partitions_moves_and_cancels(four: Cluster, topic: str, tmp_path: Path) -> None:
    four.create_topic(topic, assignments=[[1, 2]])
    plan = tmp_path / "plan.json"

    def write(replicas: list[int]) -> None:
        partition = {"topic": topic, "partition": 0, "replicas": replicas}
        plan.write_text(json.dumps({"version": 1, "partitions": [partition]}))

    def reassign(*arguments: object) -> str:
        return tool(four, "reassign.ReassignPartitionsCommand", "--reassignment-json-file", plan, *arguments)

    write([3, 4])
    assert "Successfully started partition reassignment" in reassign("--execute", "--throttle", 10_000_000)
    wait_everywhere(four, topic, 1, [3, 4])
    verified = reassign("--verify")
    assert f"Reassignment of partition {topic}-0 is completed" in verified
    assert f"Clearing topic-level throttles on topic {topic}" in verified
    # So slow that it can be seen on its way.
    fill(four, topic, megabytes=8)
    write([3, 1])
    reassign("--execute", "--throttle", 1000)
    listed = tool(four, "reassign.ReassignPartitionsCommand", "--list")
    assert f"{topic}-0: replicas: 3,1,4. adding: 1. removing: 4." in listed
    assert "Successfully cancelled" in reassign("--cancel")
    assert "No partition reassignments found" in tool(four, "reassign.ReassignPartitionsCommand", "--list")
    four.wait_for(lambda: four.isr_of(topic) == [3, 4])


def test_cluster_and_features_tell_of_all_nodes(four: Cluster) -> None:
    at = ("--bootstrap-server", four.bootstrap)
    endpoints = run_tool(f"{TOOLS}.ClusterTool", "list-endpoints", *at)
    for node_id in four.broker_ids:
        assert str(four.plans[node_id].address).partition(":")[2] in endpoints
    assert f"Cluster ID: {four.cluster_id}" in run_tool(f"{TOOLS}.ClusterTool", "cluster-id", *at)
    assert "eligible.leader.replicas.version" in run_tool(f"{TOOLS}.FeatureCommand", *at, "describe")
