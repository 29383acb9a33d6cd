"""Which batches the process that plans reads also reads: by their offsets, their bytes and the time of recent ones."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from ottla.pipeline.small_reads import MOST_BYTES, MOST_OFFSETS, MOST_SECONDS, SmallReads


def batch(size: int = 10) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": pa.array([b"x" * size], pa.binary())})


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_read_is_small_by_its_offsets() -> None:
    reads = SmallReads()
    assert not reads.expects(0)
    assert reads.expects(1) and reads.expects(MOST_OFFSETS)
    assert not reads.expects(MOST_OFFSETS + 1)


def test_rows_come_as_they_are_and_a_failure_is_left_to_tasks() -> None:
    reads, rows = SmallReads(), [batch(), batch()]

    def failing() -> Iterator[pa.RecordBatch]:
        yield rows[0]
        raise ValueError("a function of the user")

    assert reads.collect(2, rows) == rows
    assert reads.collect(2, []) == []
    assert reads.collect(2, failing()) is None
    assert reads.expects(2)


def test_a_read_with_many_bytes_is_left_to_tasks_and_remembered() -> None:
    reads = SmallReads()
    seen = 0

    def endless() -> Iterator[pa.RecordBatch]:
        nonlocal seen
        while True:
            seen += 1
            yield batch(MOST_BYTES // 4)

    assert reads.collect(100, endless()) is None
    assert seen <= 5
    assert not reads.expects(MOST_OFFSETS)


def test_slow_reads_are_left_to_tasks_until_they_are_forgotten() -> None:
    clock = Clock()
    reads = SmallReads(clock)

    def slow() -> Iterator[pa.RecordBatch]:
        clock.now += 10 * MOST_SECONDS
        yield batch()

    for _ in range(3):
        assert reads.collect(100, [batch()]) is not None
    assert reads.collect(100, slow()) is not None
    assert not reads.expects(100)
    assert reads.expects(100) and reads.expects(MOST_OFFSETS)
