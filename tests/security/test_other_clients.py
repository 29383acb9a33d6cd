"""Clients that are not Python's on a secured node: kcat, and Java's own over mutual TLS and over SASL."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from oracle.kafka_tools import needs_java
from ottla.testing.apache import run_java
from security.secured_node import ADMIN, SecuredNode

pytestmark = pytest.mark.slow

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    made = SecuredNode(tmp_path_factory.mktemp("clients"))
    with made.broker:
        admin = AdminClient(made.client())
        for each in admin.create_topics([NewTopic(name, 1, 1) for name in ("kcat", "java")]).values():
            each.result(60)
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        user = UserScramCredentialUpsertion("admin", credential, ADMIN[1].encode())
        admin.alter_user_scram_credentials([user])["admin"].result(60)
        made.context("admin")
        yield made
        assert "Traceback" not in made.broker.log, made.broker.log


def flags(node: SecuredNode, way: str) -> list[str]:
    given = [f"ssl.ca.location={node.trust}"]
    if way == "mTLS":
        client = node.folder / "client-admin.pem"
        given += ["security.protocol=SSL", f"ssl.certificate.location={client}", f"ssl.key.location={client}"]
    else:
        given += ["security.protocol=SASL_SSL", f"sasl.mechanism={way}"]
        given += [f"sasl.username={ADMIN[0]}", f"sasl.password={ADMIN[1]}"]
    return [word for each in given for word in ("-X", each)]


def address(node: SecuredNode, way: str) -> str:
    return f"127.0.0.1:{node.ports['CERTIFICATES' if way == 'mTLS' else 'PASSWORDS']}"


def librdkafka_of_kcat() -> tuple[int, ...]:
    said = subprocess.run(["kcat", "-V"], capture_output=True, text=True, timeout=60).stdout
    found = re.search(r"librdkafka (\d+)\.(\d+)\.(\d+)", said)
    return (0, 0, 0) if found is None else tuple(map(int, found.groups()))


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed (Debian package kcat)")
@pytest.mark.parametrize("way", ["mTLS", "PLAIN", "SCRAM-SHA-512"])
def test_kcat(node: SecuredNode, way: str) -> None:
    if way.startswith("SCRAM") and librdkafka_of_kcat() < (2, 6, 1):
        # It sends its nonce twice. Kafka refuses that since it checks the nonce (CVE-2024-56128), and so does Ottla.
        pytest.skip("kcat is built with a librdkafka older than 2.6.1, whose SCRAM brokers refuse")
    kcat = ["kcat", "-b", address(node, way), "-t", "kcat", *flags(node, way)]
    subprocess.run([*kcat, "-P"], input=f"by {way}\n".encode(), check=True, timeout=60)
    read = subprocess.run([*kcat, "-C", "-e", "-q"], check=True, capture_output=True, timeout=60)
    assert f"by {way}" in read.stdout.decode().splitlines()
    if way != "mTLS":
        wrong = [word.replace(ADMIN[1], "wrong") for word in kcat]
        refused = subprocess.run([*wrong, "-L", "-m", "5"], capture_output=True, timeout=60)
        assert refused.returncode != 0 and b"uthentication" in refused.stderr


def properties(node: SecuredNode, way: str) -> Path:
    lines = ["ssl.truststore.type=PEM", f"ssl.truststore.location={node.trust}"]
    if way == "mTLS":
        lines += ["security.protocol=SSL", "ssl.keystore.type=PEM"]
        lines += [f"ssl.keystore.location={node.folder / 'client-admin.pem'}"]
    else:
        lines += ["security.protocol=SASL_SSL", f"sasl.mechanism={way}"]
        lines += [f'sasl.jaas.config={SCRAM} required username="{ADMIN[0]}" password="{ADMIN[1]}";']
    file = node.folder / f"{way}.properties"
    file.write_text("\n".join(lines) + "\n")
    return file


@needs_java
@pytest.mark.java
@pytest.mark.parametrize("way", ["mTLS", "SCRAM-SHA-512"])
def test_java(node: SecuredNode, way: str) -> None:
    at = ("--bootstrap-server", address(node, way), "--topic", "java")
    config = ("--command-config", properties(node, way))
    run_java("org.apache.kafka.tools.ConsoleProducer", *at, *config, stdin=f"by {way}\n")
    read = run_java(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *at,
        *config,
        *("--group", f"group-{way}", "--from-beginning", "--max-messages", 1, "--timeout-ms", 60_000),
    )
    assert "by " in read
