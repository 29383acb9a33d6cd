"""Every client on every secured way in: it writes, transacts and reads in a group; who may not gets Kafka's error."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from oracle.kafka_tools import needs_java
from ottla.admin.cluster import Cluster
from ottla.admin.settings import ClusterSettings, SecuritySettings
from ottla.admin.users import create_token
from security.matrix_clients import CLIENTS, VALUES
from security.matrix_node import WAYS, MatrixNode, Way

pytestmark = pytest.mark.slow

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def ottla(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MatrixNode]:
    node = MatrixNode(tmp_path_factory.mktemp("ottla"), apache=False)
    yield node
    node.close()


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MatrixNode]:
    node = MatrixNode(tmp_path_factory.mktemp("apache"), apache=True)
    yield node
    node.close()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "client", [pytest.param(name, marks=pytest.mark.java) if name == "java" else name for name in CLIENTS]
)
def test_it_writes_transacts_and_reads_in_a_group(ottla: MatrixNode, client: str, way: str) -> None:
    made = CLIENTS[client]()
    topic = ottla.topic(f"t-{next(_numbers)}")
    assert made.work(ottla.way(way), topic) == VALUES


def test_franz_go_logs_in_with_a_delegation_token(ottla: MatrixNode) -> None:
    """None of the others but Java's client can: `tests/oracle/test_quotas_tokens_java.py` has that."""
    alice = ottla.way("SCRAM-SHA-512")
    security = SecuritySettings(
        alice.protocol,
        ca_file=str(alice.trust),
        mechanism=alice.mechanism,
        user=alice.user,
        password=alice.password,
    )
    cluster = Cluster(ClusterSettings((("127.0.0.1", ottla.ports["SASL_SSL"]),), security=security))
    token = create_token(cluster, -1)
    cluster.close()
    hmac = base64.b64encode(token.hmac).decode()
    way = replace(alice, user=token.token_id, password=hmac, delegation_token=True)
    topic = ottla.topic(f"t-{next(_numbers)}")
    assert CLIENTS["franz-go"]().work(way, topic) == VALUES
    assert "invalid credentials" in CLIENTS["franz-go"]().complaint(replace(way, password="wrong"), topic)


def refused(node: MatrixNode, reason: str) -> Way:
    if reason == "expired certificate":
        return replace(node.way("mTLS"), certificate=node.folder / "expired.pem")
    if reason == "missing right":
        return node.way("SCRAM-SHA-512", "bob")
    return replace(node.way("PLAIN" if "PLAIN" in reason else "SCRAM-SHA-256"), password="wrong")


@needs_java
@pytest.mark.java
@pytest.mark.parametrize(
    "reason", ["wrong password of PLAIN", "wrong password of SCRAM", "expired certificate", "missing right"]
)
@pytest.mark.parametrize("client", CLIENTS)
# aiokafka leaves the transport of a refused connection to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_a_refusal_reads_as_apache_kafkas(
    ottla: MatrixNode, apache: MatrixNode, tmp_path: Path, client: str, reason: str
) -> None:
    made = CLIENTS[client]()
    topic = f"forbidden-{next(_numbers)}"
    for node in (ottla, apache):
        node.topic(topic)
    ours, theirs = (made.complaint(refused(node, reason), topic) for node in (ottla, apache))
    assert ours == theirs
