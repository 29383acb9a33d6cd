"""`ottla migrate` on a running cluster: what the nodes run, which is next, and a check beside a running node."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from ottla.cli.main import main
from ottla.testing.cluster import Cluster

pytestmark = pytest.mark.slow


def migrate(cluster: Cluster, *words: str) -> Result:
    return CliRunner().invoke(main, ["migrate", *words, "--bootstrap-server", cluster.bootstrap])


def test_a_check_beside_a_running_node(cluster: Cluster) -> None:
    plan = cluster.plans[1]
    done = CliRunner().invoke(main, ["migrate", "check", str(plan.file)])
    assert done.exit_code == 0, done.output
    assert f"process {cluster.nodes[1].pid} runs on it" in done.output


def test_all_nodes_are_known_for_ottla(cluster: Cluster) -> None:
    cluster.create_topic("strict", partitions=2, configs={"min.insync.replicas": 3})
    cluster.wait_all_in_sync()
    found = json.loads(migrate(cluster, "plan", "--json").stdout)
    assert {node["system"] for node in found["nodes"]} == {"Ottla"}
    assert [node["order"] for node in found["nodes"]] == [None] * 3
    assert migrate(cluster, "next").output == "All 3 nodes run Ottla.\n"


def test_the_way_back_ends_with_the_active_controller(cluster: Cluster) -> None:
    cluster.wait_all_in_sync()
    found = json.loads(migrate(cluster, "plan", "--back", "--json").stdout)
    last = max(found["nodes"], key=lambda node: node["order"])
    assert last["activeController"] and found["notNow"] == []
    said = migrate(cluster, "next", "--back", "--no-wait")
    assert said.exit_code == 0
    assert "0 of 3 nodes run Apache Kafka. Next is node" in said.output
    assert "2 of 3 controllers are left: a majority" in said.output


def test_no_node_is_named_while_one_is_away(cluster: Cluster) -> None:
    cluster.kill(3)
    try:
        refused = migrate(cluster, "next", "--back", "--no-wait")
    finally:
        cluster.start_node(3)
    assert refused.exit_code == 1
    assert "no node may be stopped now:" in refused.output
