"""Spark for the tests: one session per process, brokers of both kinds to run against."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.testing.apache import ApacheKafka, java_is_here
from ottla.testing.process import BrokerProcess
from scheduling import OWN_SPARK
from spark.reading import Kafka

pytest.importorskip("pyspark", reason="the pipeline needs Spark: make setup-spark")

_names = itertools.count(1)

# Every JVM that the tests start lives for a minute at most: most of its time would go into a second compiler.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = str(Path(__file__).parent)
    for item in items:
        if str(item.path).startswith(here):
            own = f"tests/spark/{item.path.name}" in OWN_SPARK
            if own and isinstance(item, pytest.Function) and "spark" in item.fixturenames:
                raise pytest.UsageError(f"{item.nodeid} uses the shared session: OWN_SPARK must not name it")
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore:is_datetime64tz_dtype:DeprecationWarning"))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The session of this test process."""
    from ottla.pipeline import spark_session
    from ottla.pipeline.jars import SPARK_AVRO

    session = spark_session(
        "ottla-tests",
        master="local[2]",
        settings={"spark.ui.enabled": "false", "spark.driver.memory": "1g"},
        packages=[SPARK_AVRO],
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def ottla_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """An Ottla broker for all tests of this process."""
    process = BrokerProcess(tmp_path_factory.mktemp("ottla") / "data").start()
    yield Kafka(process.bootstrap)
    process.kill()


@pytest.fixture(scope="session")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """An Apache Kafka broker for all tests of this process."""
    if not java_is_here():
        pytest.skip("Apache Kafka needs Java and Maven")
    node = ApacheKafka(tmp_path_factory.mktemp("apache"))
    node.format()
    node.start()
    yield Kafka(node.bootstrap)
    node.kill()


@pytest.fixture(params=["ottla", "apache"])
def kafka(request: pytest.FixtureRequest) -> Kafka:
    """Each test that asks for it runs against Ottla and against Apache Kafka."""
    found: Kafka = request.getfixturevalue(f"{request.param}_kafka")
    return found


@pytest.fixture
def name(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Names of topics, groups and ids that no other test uses."""
    number = next(_names)
    own = request.node.name.split("[")[0][5:45].replace("_", "-")
    return lambda what: f"{own}-{number}-{what}"
