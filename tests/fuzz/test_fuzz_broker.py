"""A short run of `make fuzz` in the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.run import fuzz
from ottla.testing.process import BrokerProcess


@pytest.mark.parametrize(
    "count", [pytest.param(2_000, id="short"), pytest.param(20_000, id="long", marks=pytest.mark.slow)]
)
def test_mutated_frames_leave_the_broker_serving(tmp_path: Path, count: int) -> None:
    broker = BrokerProcess(tmp_path / "data", settings={"auto.create.topics.enable": "false"}).start()
    try:
        fuzz(broker, count, seed=count)
        assert broker.stop() == 0, broker.log
        assert "Traceback" not in broker.log, broker.log
    finally:
        broker.kill()
