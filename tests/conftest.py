"""Real brokers for the tests: one shared by a module, or any number for one test."""

from __future__ import annotations

import gc
import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from effort import examples
from ottla.testing.cluster import Cluster
from ottla.testing.process import BrokerProcess
from scheduling import ByUnit, long_units_first

_names = itertools.count(1)

# A busy machine must not fail a test.
settings.register_profile(
    "ottla",
    deadline=None,
    max_examples=examples(100),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ottla")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByUnit | None:
    return ByUnit(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    long_units_first(items)


def pytest_collection_finish() -> None:
    """Freeze the imported objects: the garbage collector then skips them in all tests."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Where OTTLA_FAILED_TESTS names a file, list the tests that failed in it."""
    path = os.environ.get("OTTLA_FAILED_TESTS")
    if path:
        stats = terminalreporter.stats
        failed = {report.nodeid for kind in ("failed", "error") for report in stats.get(kind, ())}
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text("".join(f"{name}\n" for name in sorted(failed)))


@pytest.fixture(scope="module")
def broker_settings() -> Mapping[str, object]:
    """The settings of `broker`; a module may override this fixture."""
    return {}


@pytest.fixture(scope="module")
def broker(
    tmp_path_factory: pytest.TempPathFactory, broker_settings: Mapping[str, object]
) -> Iterator[BrokerProcess]:
    """A broker process on an empty directory, shared by the tests of a module. Use `topic` for a unique name."""
    process = BrokerProcess(tmp_path_factory.mktemp("broker") / "data", settings=broker_settings).start()
    try:
        yield process
        assert process.running, f"the broker died during the tests\n{process.log}"
        assert process.stop() == 0, process.log
        assert "Traceback" not in process.log, process.log
    finally:
        process.kill()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A unique topic name."""
    return f"{request.node.name.split('[')[0][:60].replace('_', '-')}-{next(_names)}"


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Start brokers for one test: `start_broker(name="b", settings={...})`. They are killed after the test."""
    started: list[BrokerProcess] = []

    def start(name: str = "data", **options: Any) -> BrokerProcess:
        process = BrokerProcess(tmp_path / name, **options)
        started.append(process)
        return process.start()

    yield start
    for process in started:
        process.kill()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes, each broker and controller, shared by the tests of a module: leave all of them running."""
    with Cluster(tmp_path_factory.mktemp("cluster")) as nodes:
        yield nodes
        for node_id in nodes.nodes:
            assert "Traceback" not in nodes.log(node_id), nodes.log(node_id)
