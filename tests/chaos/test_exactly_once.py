"""Exactly once: a job that reads, transforms and writes in transactions, while it and its brokers are killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.exactly_once import One, Three, run


@pytest.mark.slow
def test_a_small_job_survives_a_kill_of_each(tmp_path: Path) -> None:
    one = One(tmp_path / "data")
    run(one, tmp_path / "job.stderr", records=6_000, per_transaction=250, job_kills=1, broker_kills=1)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_exactly_once_through_twenty_kills(tmp_path: Path) -> None:
    one = One(tmp_path / "data")
    run(one, tmp_path / "job.stderr", records=200_000, per_transaction=750, job_kills=10, broker_kills=10)


@pytest.mark.slow
def test_exactly_once_on_three_brokers(tmp_path: Path) -> None:
    three = Three(tmp_path / "data")
    run(three, tmp_path / "job.stderr", records=24_000, per_transaction=750, job_kills=3, broker_kills=3)
