"""`make test-dashboards`: other people's dashboards, expression by expression, on a Prometheus that scrapes Ottla.

The dashboards are not ours and not in the repository. OTTLA_DASHBOARDS names a folder with the folders strimzi,
reporter (Strimzi's for its metrics reporter), confluent and exporter (kafka_exporter's), each with JSON files.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer

from integration.prometheus_world import PROMETHEUS, Busy, Prometheus, expressions
from ottla.testing.cluster import Cluster
from ottla.testing.ports import free_ports

FOLDER = Path(os.environ.get("OTTLA_DASHBOARDS", ""))
NODES = 3
LABELS = {
    "namespace": "default",
    "strimzi_io_cluster": "ottla",
    "strimzi_io_name": "ottla-kafka",
    "container": "kafka",
    "env": "production",
}
VARIABLES: Mapping[str, str] = {
    "kubernetes_namespace": "default",
    "strimzi_cluster_name": "ottla",
    "env": "production",
    "percentile": "0.99",
    "__rate_interval": "10s",
    "__interval": "10s",
}
"""All others choose everything."""
OUTSIDE = re.compile(
    r"\b(container_|kubelet_|kafka_tier_|\w+_tiersize|\w+straypartitions|\w+controllereventmanager)"
)
"""Metrics of Kubernetes, of parts that only Confluent's broker has (its tiered storage, stray partitions), and of the
event queue of Kafka's controller: Ottla's controller has no queue, and its delays are the event loop's."""

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif("OTTLA_DASHBOARDS" not in os.environ, reason="needs dashboards: make test-dashboards"),
]


def job(name: str, targets: list[str], spelling: str = "") -> dict[str, object]:
    """A scrape configuration as the how-to page shows it."""
    made: dict[str, object] = {
        "job_name": name,
        "static_configs": [{"targets": targets, "labels": LABELS}],
        "relabel_configs": [
            {
                "source_labels": ["__address__"],
                "replacement": "ottla-$1",
                "target_label": "kubernetes_pod_name",
            }
        ],
    }
    return made | ({"params": {"names": [spelling]}} if spelling else {})


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Prometheus]]:
    """A Prometheus for each spelling of names, all of the same cluster."""
    assert PROMETHEUS is not None, "prometheus is not installed (Debian package prometheus)"
    directory = tmp_path_factory.mktemp("dashboards")
    cluster = Cluster(directory / "data", NODES)
    targets = [f"127.0.0.1:{port}" for port in free_ports(NODES)]
    for target, (node_id, plan) in zip(targets, list(cluster.plans.items()), strict=True):
        cluster.plans[node_id] = replace(plan, properties={**plan.properties, "ottla.http.listen": target})
    with cluster:
        cluster.create_topic("orders", partitions=3, replication_factor=NODES)
        words = [sys.executable, "-m", "ottla", "console", "--no-pages", "--listen", "127.0.0.1:0"]
        words += ["--bootstrap-server", cluster.bootstrap]
        exporter = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert exporter.stdout is not None
        address = re.search(r"127\.0\.0\.1:\d+", exporter.stdout.readline())
        assert address is not None
        jobs = {
            "strimzi": job("strimzi", targets),
            "reporter": job("reporter", targets, "reporter"),
            "confluent": job("kafka-broker", targets, "confluent"),
            "exporter": job("exporter", [address[0]]),
        }
        found: dict[str, Prometheus] = {}
        busy = Busy(cluster.bootstrap)
        try:
            for name, each in jobs.items():
                (directory / name).mkdir()
                jobs_of = [each]
                if name == "confluent":
                    # Confluent's controllers are a job of their own.
                    jobs_of.append(job("kafka-controller", targets, "confluent"))
                if name == "exporter":
                    # Its dashboard also asks the brokers.
                    jobs_of.append(jobs["strimzi"])
                found[name] = Prometheus(directory / name, jobs_of)
            transact(cluster.bootstrap)
            for name, query in (
                (
                    "strimzi",
                    'sum(rate(kafka_server_brokertopicmetrics_messagesin_total{topic="orders"}[10s])) > 0',
                ),
                ("reporter", "count(kafka_server_replicamanager_leadercount) == 3"),
                (
                    "confluent",
                    'count(kafka_server_replicamanager_leadercount{job="kafka-broker"}) == 3',
                ),
                ("exporter", "sum(kafka_consumergroup_current_offset) > 0"),
            ):
                found[name].until(query, cluster, busy)
            for _ in range(12):
                busy.work()
            yield found
        finally:
            busy.consumer.close()
            exporter.terminate()
            exporter.wait(30)
            exporter.stdout.close()
            for prometheus in found.values():
                prometheus.close()


def transact(bootstrap: str) -> None:
    """A transaction that is committed and one that is aborted."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "dashboards"})
    producer.init_transactions()
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce("orders", b"paid")
        end()


def filled(expression: str) -> str:
    """An expression with the variables of its dashboard filled in: everything that can be chosen."""
    expression = re.sub(r'="\$\{?instance\}?"', '=~".*"', expression)
    return re.sub(r"\$\{?(\w+)(?::\w+)?\}?", lambda found: VARIABLES.get(found[1], ".*"), expression)


@pytest.mark.parametrize(
    ("spelling", "file"),
    [
        pytest.param(spelling, file, id=f"{spelling}-{file.stem}")
        for spelling in ("strimzi", "reporter", "confluent", "exporter")
        for file in sorted((FOLDER / spelling).glob("*.json"))
    ],
)
def test_every_expression_has_an_answer(scenes: Mapping[str, Prometheus], spelling: str, file: Path) -> None:
    board = json.loads(file.read_text())
    asked = {filled(each) for each in expressions([board.get("panels", []), board.get("rows", [])])}
    ours = {each for each in asked if not OUTSIDE.search(each)}
    silent = sorted(each for each in ours if not scenes[spelling].ask(each))
    print(
        f"{file.name}: {len(ours) - len(silent)} of {len(ours)} answered, {len(asked) - len(ours)} not ours"
    )
    assert not silent, "\n".join(silent)
