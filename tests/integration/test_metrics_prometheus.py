"""A real Prometheus scrapes a busy cluster: every expression of our dashboard and of our rules has an answer."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from integration.prometheus_world import PROMETHEUS, PROMTOOL, Busy, Prometheus, expressions
from ottla.testing.cluster import Cluster
from ottla.testing.ports import free_ports

ROOT = Path(__file__).parents[2]
GRAFANA = ROOT / "docs" / "grafana"
NODES = 3

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prometheus, Cluster, Busy]]:
    if PROMETHEUS is None:
        pytest.skip("prometheus is not installed (Debian package prometheus)")
    directory = tmp_path_factory.mktemp("prometheus")
    cluster = Cluster(directory / "data", NODES)
    targets = [f"127.0.0.1:{port}" for port in free_ports(NODES)]
    for target, (node_id, plan) in zip(targets, list(cluster.plans.items()), strict=True):
        properties = {**plan.properties, "ottla.http.listen": target}
        cluster.plans[node_id] = replace(plan, properties=properties)
    with cluster:
        cluster.create_topic("orders", partitions=3, replication_factor=NODES)
        job = {"job_name": "kafka", "static_configs": [{"targets": targets}]}
        prometheus = Prometheus(directory, [job])
        busy = Busy(cluster.bootstrap)
        try:
            prometheus.until("count(ottla_build_info) == 3", cluster, busy)
            prometheus.until(
                'sum(rate(kafka_server_brokertopicmetrics_messagesin_total{topic="orders"}[10s])) > 0',
                cluster,
                busy,
            )
            yield prometheus, cluster, busy
        finally:
            busy.consumer.close()
            prometheus.close()


def test_every_panel_of_our_dashboard_has_an_answer(scene: tuple[Prometheus, Cluster, Busy]) -> None:
    prometheus, _, busy = scene
    board = json.loads((GRAFANA / "ottla.json").read_text())
    assert sum(panel["type"] != "row" for panel in board["panels"]) == 24
    asked = list(expressions(board["panels"]))
    for name, value in (("job", "kafka"), ("instance", ".*"), ("topic", ".*"), ("__rate_interval", "10s")):
        asked = [re.sub(rf"\${name}\b", value, expression) for expression in asked]
    assert not [expression for expression in asked if "$" in expression]
    busy.work()
    assert [expression for expression in asked if not prometheus.ask(expression)] == []


def test_the_console_draws_a_week_from_it(scene: tuple[Prometheus, Cluster, Busy]) -> None:
    prometheus, cluster, busy = scene
    busy.work()
    words = [sys.executable, "-m", "ottla", "console", "--listen", "127.0.0.1:0"]
    words += ["--bootstrap-server", cluster.bootstrap, "--prometheus", prometheus.url]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as console:
        try:
            assert console.stdout is not None
            url = console.stdout.readline().split()[-1]

            with urllib.request.urlopen(f"{url}/c/local/t/orders/numbers", timeout=60) as answer:
                text = answer.read().decode()
            # The chart's description ends with the newest value, which is a rate over the last hour.
            found = re.search(r"from Prometheus: records/s ([0-9.]+) now", text)
            assert found is not None
            assert float(found[1]) > 0
        finally:
            console.terminate()


def test_numbers_of_the_cluster_add_up(scene: tuple[Prometheus, Cluster, Busy]) -> None:
    prometheus, _, _ = scene
    values = {
        expression: float(prometheus.ask(expression)[0]["value"][1])
        for expression in (
            "sum(kafka_controller_kafkacontroller_activecontrollercount)",
            "max(kafka_controller_kafkacontroller_activebrokercount)",
            "sum(kafka_server_replicamanager_underreplicatedpartitions)",
            'sum(kafka_cluster_partition_replicascount{topic="orders"})',
            "max(kafka_server_raftmetrics_number_of_voters)",
        )
    }
    assert list(values.values()) == [1, NODES, 0, 3 * NODES, 3]
    leaders = prometheus.ask("kafka_server_raftmetrics_current_leader")
    assert len({each["value"][1] for each in leaders}) == 1
    followers = prometheus.ask('kafka_server_raftmetrics_current_state{current_state="follower"}')
    assert len(followers) == NODES - 1


def test_our_rules_are_rules_and_speak_of_metrics_that_there_are(
    scene: tuple[Prometheus, Cluster, Busy],
) -> None:
    prometheus, _, _ = scene
    rules = GRAFANA / "prometheus-rules.yml"
    checked = subprocess.run([str(PROMTOOL), "check", "rules", str(rules)], capture_output=True, check=False)
    assert checked.returncode == 0, checked.stderr.decode()
    names = set(re.findall(r"\b((?:kafka|ottla)_[a-z_]+)\b", rules.read_text()))
    # The console's exporter has this one.
    names -= {"ottla_consumergroup_time_to_loss_seconds"}
    assert len(names) > 8
    assert [name for name in sorted(names) if not prometheus.ask(name)] == []


def test_a_killed_broker_shows_in_the_metrics_of_the_others(scene: tuple[Prometheus, Cluster, Busy]) -> None:
    prometheus, cluster, busy = scene
    victim = next(node for node in cluster.broker_ids if node != cluster.controller_id())
    cluster.kill(victim)
    prometheus.until("sum(kafka_server_replicamanager_underreplicatedpartitions) > 0", cluster, busy)
    prometheus.until("max(kafka_controller_kafkacontroller_fencedbrokercount) == 1", cluster, busy)
    prometheus.until("sum(kafka_server_replicamanager_isrshrinks_total) >= 0", cluster, busy)
    cluster.start_node(victim)
    prometheus.until(
        "sum(kafka_server_replicamanager_underreplicatedpartitions) == 0 and "
        "max(kafka_controller_kafkacontroller_fencedbrokercount) == 0",
        cluster,
        busy,
    )
    prometheus.until("sum(kafka_server_replicamanager_isrexpands_total) > 0", cluster, busy)
