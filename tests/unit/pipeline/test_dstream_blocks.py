"""The write-ahead log of receivers: a task that outlives its driver adds nothing to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.pipeline.dstream_blocks import Block, BlockLog, BlockName


@pytest.fixture
def log(tmp_path: Path) -> BlockLog:
    return BlockLog(str(tmp_path / "blocks"))


def store(log: BlockLog, run: int, number: int, ends: dict[int, int]) -> None:
    log.write(BlockName("000.000", number, run), Block("t", ends, [(None, b"x")]))


def counting(log: BlockLog) -> list[tuple[int, int]]:
    return [(block.number, block.run) for block in log.blocks()]


def test_a_run_continues_after_the_blocks_of_the_run_before(log: BlockLog) -> None:
    first = log.open_run()
    store(log, first, 0, {0: 10, 1: 0})
    store(log, first, 1, {0: 10, 1: 7})
    log.open_run()
    assert counting(log) == [(0, first), (1, first)]
    assert log.next_number("000.000") == 2
    assert log.ends("t") == {0: 10, 1: 7}
    assert log.is_stopped(first)


def test_blocks_that_a_closed_run_still_writes_do_not_count(log: BlockLog) -> None:
    first = log.open_run()
    store(log, first, 0, {0: 10})
    second = log.open_run()
    # A task of the first run lives on, and is as fast as the new one, or faster.
    store(log, first, 1, {0: 25})
    store(log, second, 1, {0: 20})
    store(log, first, 2, {0: 30})
    assert counting(log) == [(0, first), (1, second)]
    assert log.ends("t") == {0: 20}
    third = log.open_run()
    assert counting(log) == [(0, first), (1, second)], "nor for the runs after the next"
    store(log, third, 2, {0: 26})
    log.open_run()
    assert counting(log) == [(0, first), (1, second), (2, third)]
    assert str(BlockName("000.000", 2, first)) not in log.files.names(), "and are deleted"


def test_the_notes_of_runs_do_not_pile_up(log: BlockLog) -> None:
    for _ in range(20):
        store(log, log.open_run(), 0, {0: 1})
    assert len([name for name in log.files.names() if name.startswith(("run-", "stop-"))]) <= 4


def test_a_log_without_a_run_is_empty(log: BlockLog) -> None:
    assert log.blocks() == [] and log.ends("t") == {} and log.next_number("000.000") == 0
