"""The pytest plugin: fixtures with real brokers for the tests of any project. pytest loads it by its entry point.

    def test_orders(ottla_broker):
        producer = KafkaProducer(bootstrap_servers=ottla_broker.bootstrap)

Importing this module costs next to nothing: a fixture loads what it needs when a test uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.testing.cluster import Cluster
    from ottla.testing.process import BrokerProcess
    from ottla.testing.secure import SecureCluster


@pytest.fixture
def start_ottla_broker(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Start brokers for one test: `start_ottla_broker("second", settings={...})`. They are killed after the test.

    def test_two_brokers(start_ottla_broker):
        first = start_ottla_broker("first")
        second = start_ottla_broker("second", settings={"num.partitions": 3})
        assert first.bootstrap != second.bootstrap
    """
    from ottla.testing.running import quick_broker

    started: list[BrokerProcess] = []

    def start(name: str = "ottla", settings: Mapping[str, object] | None = None) -> BrokerProcess:
        broker = quick_broker(tmp_path / name, settings)
        started.append(broker)
        return broker.start()

    yield start
    for broker in started:
        broker.kill()


@pytest.fixture
def ottla_broker(start_ottla_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    """A broker on an empty directory for one test. Clients connect to `ottla_broker.bootstrap`.

    def test_restart(ottla_broker):
        assert ottla_broker.restart().running
    """
    return start_ottla_broker()


@pytest.fixture(scope="session")
def shared_ottla_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for all tests of a session: faster, but the tests share its topics and groups.

    def test_address(shared_ottla_broker):
        assert shared_ottla_broker.bootstrap
    """
    from ottla.testing.running import quick_broker

    broker = quick_broker(tmp_path_factory.mktemp("ottla") / "data")
    try:
        yield broker.start()
    finally:
        broker.kill()


@pytest.fixture
def ottla_cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes on empty directories for one test. Clients connect to `ottla_cluster.bootstrap`.

    def test_failover(ottla_cluster):
        ottla_cluster.create_topic("orders")
        ottla_cluster.kill(ottla_cluster.leader_of("orders"))
        assert ottla_cluster.wait_for(lambda: ottla_cluster.leader_of("orders"))
    """
    from ottla.testing.cluster import running_cluster

    with running_cluster(3, tmp_path / "cluster") as cluster:
        yield cluster


@pytest.fixture
def ottla_secure_cluster(tmp_path: Path) -> Iterator[SecureCluster]:
    """One node with TLS, passwords and ACLs for one test. Users have settings for each client.

    def test_rights(ottla_secure_cluster):
        ottla_secure_cluster.add_tenant("team1", "team1.")
        producer = KafkaProducer(**ottla_secure_cluster.settings_of("team1"))
    """
    from ottla.testing.cluster import running_cluster

    with running_cluster(1, tmp_path / "secure-cluster", secure=True) as cluster:
        yield cluster
