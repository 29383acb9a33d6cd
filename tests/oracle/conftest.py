"""What several comparisons with Apache Kafka share, because it takes long to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from oracle.tools_oracle import JavaTools
from oracle.tools_systems import ApachePair


@pytest.fixture(scope="session")
def apache_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApachePair]:
    """Two Apache Kafka brokers; the tests that share them use names of their own."""
    pair = ApachePair(tmp_path_factory.mktemp("apache"))
    try:
        yield pair.start()
    finally:
        pair.kill()


@pytest.fixture(scope="session")
def java_tools() -> Iterator[JavaTools]:
    """Kafka's own tools."""
    tools = JavaTools()
    yield tools
    tools.close()
