"""Fixtures of real brokers for any project's tests; pytest finds them through the package's entry point.

Importing this costs next to nothing: what a fixture needs is loaded when a test asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.testing.cluster import Cluster
    from ottla.testing.process import BrokerProcess


@pytest.fixture
def start_ottla_broker(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Starts brokers of the test's own: `start_ottla_broker("second", settings={...})`; the end of the test
    ends them."""
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
    """A broker on a fresh directory, of this test alone; `ottla_broker.bootstrap` is its address."""
    return start_ottla_broker()


@pytest.fixture(scope="session")
def shared_ottla_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for all tests that ask for it: quicker, but they see each other's topics and groups."""
    from ottla.testing.running import quick_broker

    broker = quick_broker(tmp_path_factory.mktemp("ottla") / "data")
    try:
        yield broker.start()
    finally:
        broker.kill()


@pytest.fixture
def ottla_cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes on fresh directories, of this test alone; `ottla_cluster.bootstrap` are their addresses."""
    from ottla.testing.cluster import running_cluster

    with running_cluster(3, tmp_path / "cluster") as cluster:
        yield cluster
