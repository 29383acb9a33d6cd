"""A quorum whose voters stand in the log and change; its nodes speak to each other on a listener of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.cluster_load import Load, check_nothing_lost
from integration.dynamic_cluster import LATE, DynamicCluster
from ottla.testing.cluster import Cluster
from ottla.wire.messages import DescribeClusterRequest

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def dynamic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with DynamicCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def run(cluster: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ottla", *words, "--bootstrap-server", cluster.address(1)]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)


def run_tool(cluster: Cluster, *words: str) -> str:
    command = [sys.executable, "-m", "ottla", "metadata-quorum", "--bootstrap-server", cluster.address(1)]
    done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_quorum_with_configured_voters_is_raised_to_one_that_can_change(tmp_path: Path) -> None:
    with Cluster(tmp_path) as static:
        raising = ("features", "upgrade", "--feature", "kraft.version=1")
        # The leader has to hear from each voter first, which takes some seconds.
        static.wait_for(lambda: run(static, *raising).returncode == 0)
        status = run_tool(static, "describe", "--status")
        assert "CurrentVoters" in status
        leader = static.wait_for(static.controller_id)
        gone = next(node_id for node_id in static.nodes if node_id != leader)
        directory_id = json.loads(status.split("CurrentVoters:")[1].splitlines()[0])[gone - 1]["directoryId"]
        removal = ("--controller-id", str(gone), "--controller-directory-id", directory_id)
        assert run_tool(static, "remove-controller", *removal).startswith("Removed ")
        static.stop(gone)
        static.start_node(gone)
        left = json.loads(run_tool(static, "describe", "--status").split("CurrentVoters:")[1].splitlines()[0])
        assert [voter["id"] for voter in left] == [node_id for node_id in static.nodes if node_id != gone]


def test_clients_see_their_own_listener_only(dynamic: Cluster) -> None:
    def shown() -> dict[int, str]:
        answer = dynamic.ask(DescribeClusterRequest(), 2)
        return {broker.broker_id: f"{broker.host}:{broker.port}" for broker in answer.brokers}

    # One that is ready need not have heard yet that the others are.
    dynamic.wait_for(lambda: len(shown()) == 3)
    assert shown() == {node_id: dynamic.address(node_id) for node_id in dynamic.broker_ids}


def test_a_controller_is_added_leads_and_is_removed(dynamic: Cluster, topic: str) -> None:
    dynamic.create_topic(topic, 3)
    load = Load(dynamic.bootstrap, topic).start()
    load.wait_for_more(100)
    added = run_tool(dynamic, "--command-config", str(dynamic.plans[LATE].file), "add-controller")
    assert added.startswith(f"Added controller {LATE} with directory id ")
    status = run_tool(dynamic, "describe", "--status")
    assert all(f'"id": {node_id}' in status for node_id in (1, 2, 3))

    # With two voters this would have been the end.
    killed = dynamic.wait_for(dynamic.controller_id)
    assert killed is not None
    dynamic.kill(killed)
    dynamic.wait_for(lambda: dynamic.controller_id() not in (None, killed))
    load.wait_for_more(100)
    dynamic.start_node(killed)
    dynamic.wait_in_sync(topic, 3)

    directory_id = added.split("directory id ")[1].split()[0]
    removal = ("--controller-id", str(LATE), "--controller-directory-id", directory_id)
    assert run_tool(dynamic, "remove-controller", *removal).startswith("Removed ")
    check_nothing_lost(dynamic.bootstrap, load.stop())
    assert load.errors == []
