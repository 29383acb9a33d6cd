"""A mirror between two clusters with TLS, SCRAM and ACLs, with MirrorMaker 2's keys: no secret is in a log."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from integration.mirror_world import CODECS, write_file
from ottla.admin.cluster import Cluster
from ottla.admin.groups import Committed, alter_offsets, committed_offsets
from ottla.admin.topics import NewTopic, create_topics
from ottla.cli.properties_file import read_properties
from ottla.cli.tools.security import jaas_options
from ottla.client.cluster_settings import writer_settings
from ottla.testing.secure import SecureCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[tuple[SecureCluster, SecureCluster]]:
    made = [SecureCluster(tmp_path / name) for name in ("source", "target")]
    try:
        for one in made:
            one.start()
        yield made[0], made[1]
    finally:
        for one in made:
            for node in one.nodes.values():
                node.kill()


def properties(cluster: SecureCluster) -> dict[str, str]:
    return dict(read_properties(str(cluster.properties_of("admin"))))


def connected(cluster: SecureCluster) -> Cluster:
    options = properties(cluster)
    return Cluster(writer_settings(options.pop("bootstrap.servers"), options))


def mirror(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ottla", "mirror", *words], capture_output=True, text=True, timeout=200
    )


def test_both_clusters_are_secured(world: tuple[SecureCluster, SecureCluster], tmp_path: Path) -> None:
    source, target = world
    cluster = connected(source)
    assert not create_topics(cluster, [NewTopic("orders", 2, 1)]).topics[0].error_code
    for codec in CODECS:
        producer = Producer(source.librdkafka_settings_of("admin") | {"compression.type": codec})
        for number in range(40):
            producer.produce("orders", b"%d" % number, key=codec.encode(), partition=number % 2)
        assert producer.flush(60) == 0
    alter_offsets(cluster, "billing", {("orders", 0): Committed(33, None, "")})
    cluster.close()
    keys = {
        "clusters": "A, B",
        "A->B.enabled": "true",
        "replication.factor": "1",
        "emit.heartbeats.enabled": "false",
    }
    for alias, one in (("A", source), ("B", target)):
        keys |= {f"{alias}.{key}": value for key, value in properties(one).items()}
    file = write_file(tmp_path / "mm2.properties", keys)
    ran = mirror("run", str(file), "--once")
    assert ran.returncode == 0, ran.stderr
    checked = mirror("verify", str(file), "--full")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "200" in checked.stdout, checked.stdout
    there = connected(target)
    assert committed_offsets(there, "billing")["A.orders", 0].offset == 33
    there.close()
    for one in (source, target):
        password = jaas_options(properties(one)["sasl.jaas.config"])["password"]
        assert password not in ran.stdout + ran.stderr + checked.stdout + checked.stderr

    # A wrong password does not pass: the mirror ends with a sentence, and does not show it.
    login = keys["A.sasl.jaas.config"]
    wrong = login.replace(jaas_options(login)["password"], "not-the-password")
    ran = mirror("run", str(write_file(file, keys | {"A.sasl.jaas.config": wrong})), "--once")
    assert ran.returncode == 1
    assert "SASL_AUTHENTICATION_FAILED" in ran.stderr and "not-the-password" not in ran.stderr
