"""The secured cluster for tests of other projects, and our tools on it with the old names of their flags."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ottla import KafkaConsumer, KafkaProducer
from ottla.client.broker_errors import TopicAuthorizationFailedError
from ottla.testing import SecureCluster

pytestmark = pytest.mark.slow


def run(*words: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ottla", *map(str, words)]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120)


def test_a_tenant_with_our_clients_and_tools(ottla_secure_cluster: SecureCluster) -> None:
    cluster = ottla_secure_cluster
    cluster.add_tenant("team1", "team1.")
    with KafkaProducer(**cluster.settings_of("team1")) as producer:
        producer.send("team1.orders", b"one coffee").get(30)
        with pytest.raises(TopicAuthorizationFailedError):
            producer.send("orders", b"one tea").get(30)
    settings = cluster.settings_of("team1") | {"group_id": "team1.readers", "auto_offset_reset": "earliest"}
    with KafkaConsumer("team1.orders", **settings) as consumer:
        assert next(iter(consumer)).value == b"one coffee"

    file = cluster.properties_of("team1")
    # Neither an address nor --command-config: both come from the file of the old flag.
    wrote = run("produce", "--producer.config", file, "--topic", "team1.orders", stdin="one cake\n")
    assert wrote.returncode == 0, wrote.stderr
    count = ("--from-beginning", "--max-messages", "2", "--group", "team1.tools")
    read = run("consume", "--consumer.config", file, "--topic", "team1.orders", *count)
    assert read.stdout.split("\n")[:2] == ["one coffee", "one cake"], read.stderr
    # Without --group the tool takes a name that is not the tenant's: it says so, and does not wait for ever.
    denied = run("consume", "--consumer.config", file, "--topic", "team1.orders", "--from-beginning")
    assert denied.returncode == 1
    assert "not authorized" in denied.stderr
    perf = run(
        *("producer-perf-test", "--producer.config", file, "--topic", "team1.orders"),
        *("--num-records", "10", "--record-size", "10", "--throughput", "-1"),
    )
    assert "10 records sent" in perf.stdout, perf.stderr
    for log in (node.log for node in cluster.nodes.values()):
        assert settings["sasl_plain_password"] not in log
        assert "Traceback" not in log
