"""The sink's promises without Spark: a frame that is only rows, a real broker, and failures at each step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the pipeline needs Spark: make setup-spark")

import pyarrow as pa

from ottla.admin.cluster import Cluster
from ottla.admin.groups import committed_offsets
from ottla.client.cluster_settings import writer_settings
from ottla.pipeline.failures import PipelineError, SinkFenced
from ottla.pipeline.offsets import _distance
from ottla.pipeline.sink import KafkaSink, WriteResult
from ottla.pipeline.small_batches import MOST_BYTES, MOST_RECORDS, SmallBatches
from ottla.pipeline.transaction import CommitUnknown, TransactionDriver
from ottla.testing.process import BrokerProcess
from unit.pipeline.committed import values_of


class Frame:
    """Stands for a DataFrame of a small batch: the driver gets its rows as a table."""

    def __init__(self, *values: str, failures: Sequence[Exception] = ()) -> None:
        self._values = values
        self._failures = list(failures)

    def toArrow(self) -> Any:
        if self._failures:
            raise self._failures.pop(0)
        encoded = pa.array([value.encode() for value in self._values], pa.binary())
        return pa.table({"key": encoded, "value": encoded})


def sink_of(broker: BrokerProcess, topic: str, **options: Any) -> KafkaSink:
    sink = KafkaSink(broker.bootstrap, topic=topic, transactional_id=f"{topic}-id", **options)
    sink._layouts = SimpleNamespace(checked=lambda frame, _: frame)  # type: ignore[assignment]
    sink._small.learn(1, 1)
    return sink


def write(
    sink: KafkaSink, batch: int | None, *values: str, frame: Frame | None = None, **more: Any
) -> WriteResult:
    rows: Any = frame or Frame(*values)
    return sink._write(
        rows, batch, more.get("lineage", "query"), more.get("offsets", {}), more.get("extra", ()), read=1
    )


def group_offset(broker: BrokerProcess, group: str, topic: str) -> int | None:
    brokers = Cluster(writer_settings(broker.bootstrap))
    try:
        held = committed_offsets(brokers, group).get((topic, 0))
        return None if held is None else held.offset
    finally:
        brokers.close()


def test_a_batch_is_written_once_however_often_it_is_given(broker, topic) -> None:
    sink = sink_of(broker, topic)
    assert write(sink, 0, "a", "b") == WriteResult(0, 2)
    assert write(sink, 0, "a", "b").skipped
    assert write(sink, 1, "c") == WriteResult(1, 1)
    sink.close()
    # Another process with the same id and query skips what was committed, and only that.
    again = sink_of(broker, topic)
    assert write(again, 1, "c").skipped
    assert write(again, 2, "d") == WriteResult(2, 1)
    again.close()
    other = sink_of(broker, topic)
    assert not write(other, 0, "e", lineage="another query").skipped
    other.close()
    assert values_of(broker, topic) == Counter("abcde")


@pytest.mark.parametrize(
    ("group", "committed_by"), [(None, "{topic}-id"), ("readers", "readers"), ("", None)]
)
def test_offsets_go_to_the_group_in_the_same_transaction(broker, topic, group, committed_by) -> None:
    sink = sink_of(broker, topic, group=group)
    write(sink, 0, "a", offsets={topic: {0: 17}})
    failing = Frame("b", failures=[ValueError("a bug in the query")])
    with pytest.raises(ValueError, match="a bug"):
        write(sink, 1, frame=failing, offsets={topic: {0: 99}})
    sink.close()
    names = {f"{topic}-id", "readers"}
    found = {name: group_offset(broker, name, topic) for name in names}
    expected = {} if committed_by is None else {committed_by.format(topic=topic): 17}
    assert {name: offset for name, offset in found.items() if offset is not None} == expected


@pytest.mark.parametrize("took_place", [True, False])
def test_a_commit_with_an_unknown_outcome(broker, topic, took_place, monkeypatch) -> None:
    """The answer to EndTxn is lost. A batch that was committed is not written again; any other is."""
    commit, calls = TransactionDriver.commit, []

    def lost(driver: TransactionDriver) -> None:
        calls.append(driver.identity)
        if len(calls) > 1:
            commit(driver)
            return
        if took_place:
            commit(driver)
        raise CommitUnknown("the connection broke")

    sink = sink_of(broker, topic)
    monkeypatch.setattr(TransactionDriver, "commit", lost)
    result = write(sink, 0, "a", "b", offsets={topic: {0: 5}})
    assert len(calls) == (1 if took_place else 2)
    assert result.attempts == len(calls)
    assert not result.skipped
    # The sink goes on with the next batch, and still knows the last one.
    assert write(sink, 0, "a", "b").skipped
    assert write(sink, 1, "c") == WriteResult(1, 1)
    sink.close()
    assert values_of(broker, topic) == Counter("abc")
    assert group_offset(broker, f"{topic}-id", topic) == 5


def test_a_batch_without_a_number_whose_commit_is_unknown_is_written_once(broker, topic, monkeypatch) -> None:
    commit = TransactionDriver.commit
    failures = [CommitUnknown("the connection broke")]

    def lost(driver: TransactionDriver) -> None:
        commit(driver)
        if failures:
            raise failures.pop()

    sink = sink_of(broker, topic)
    monkeypatch.setattr(TransactionDriver, "commit", lost)
    for value in "abc":
        write(sink, None, value)
    sink.close()
    assert values_of(broker, topic) == Counter("abc")


def test_lost_workers_abort_the_batch_and_it_is_written_again(broker, topic) -> None:
    sink = sink_of(broker, topic)
    lost = Frame("a", failures=[RuntimeError("ExecutorLostFailure"), RuntimeError("Broken pipe")])
    assert write(sink, 0, frame=lost) == WriteResult(0, 1, attempts=3)
    with pytest.raises(RuntimeError, match="Broken pipe"):
        write(sink, 1, frame=Frame("b", failures=[RuntimeError("Broken pipe")] * 9))
    assert write(sink, 1, "b") == WriteResult(1, 1)
    sink.close()
    assert values_of(broker, topic) == Counter("ab")


def test_nothing_of_a_failed_batch_is_seen_not_even_extra_records(broker, topic, monkeypatch) -> None:
    sink = sink_of(broker, topic)
    extra = [(topic, b"k", b"extra")]
    with monkeypatch.context() as patched:
        patched.setattr(TransactionDriver, "mark", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            write(sink, 0, "a", extra=extra)
    assert values_of(broker, topic) == Counter()
    write(sink, 0, "a", extra=extra)
    sink.close()
    assert values_of(broker, topic) == Counter(["a", "extra"])


def test_a_driver_whose_id_is_taken_over_stops_for_good(broker, topic) -> None:
    old = sink_of(broker, topic)
    write(old, 0, "a")
    new = sink_of(broker, topic)
    write(new, 1, "b")
    for _ in range(2):
        with pytest.raises(SinkFenced, match="taken over by another driver"):
            write(old, 1, "b")
    write(new, 2, "c")
    new.close()
    old.close()
    assert values_of(broker, topic) == Counter("abc")


def test_a_batch_that_is_too_large_for_the_driver_goes_to_tasks(broker, topic, monkeypatch) -> None:
    sink = sink_of(broker, topic)
    by_tasks: list[Any] = []

    def run_tasks(rows: Any, *_: Any) -> int:
        by_tasks.append(rows)
        return 7

    monkeypatch.setattr(sink, "_run_tasks", run_tasks)
    large = Frame("a", failures=[RuntimeError("Total size is bigger than spark.driver.maxResultSize")])
    assert write(sink, 0, frame=large) == WriteResult(0, 7)
    huge = Frame("x" * (MOST_BYTES + 1))
    assert write(sink, 1, frame=huge) == WriteResult(1, 7)
    assert by_tasks == [large, huge]
    sink.close()


def test_two_queries_cannot_share_a_sink(broker, topic) -> None:
    sink = sink_of(broker, topic)
    write(sink, 0, "a")
    with pytest.raises(PipelineError, match="give query other a sink of its own"):
        write(sink, 0, "b", lineage="other")
    sink.close()


def test_what_counts_as_a_small_batch() -> None:
    small = SmallBatches()
    assert not small.expects(1)  # nothing is known yet
    small.learn(10, 20)
    assert small.expects(0)
    assert small.expects(MOST_RECORDS // 2)
    assert not small.expects(MOST_RECORDS // 2 + 1)
    assert not small.expects(None)
    small.learn(10, 10, MOST_BYTES)
    assert not small.expects(10)


def test_a_large_batch_that_becomes_few_records_counts_as_small() -> None:
    small = SmallBatches()
    small.learn(10, 10)
    assert not small.expects(MOST_RECORDS + 1)
    small.learn(10 * MOST_RECORDS, MOST_RECORDS // 2)
    assert small.expects(MOST_RECORDS + 1)
    # Four times as much may become twice as many records.
    assert small.expects(40 * MOST_RECORDS)
    assert not small.expects(41 * MOST_RECORDS)
    # What is much larger than all that was seen is not known.
    small = SmallBatches()
    small.learn(MOST_RECORDS, 1)
    assert small.expects(8 * MOST_RECORDS)
    assert not small.expects(8 * MOST_RECORDS + 1)


def test_the_offsets_between_two_positions() -> None:
    assert _distance({"a": {0: 5, 1: 1}}, {"a": {0: 7, 1: 1}}, 3) == 5
    assert _distance({"a": {0: 5}}, {"a": {0: 7, 1: 1}}, 0) is None  # a new partition
    assert _distance(None, {"a": {0: 7}}, 0) is None
    assert _distance({"a": {0: 5}}, None, 0) is None
