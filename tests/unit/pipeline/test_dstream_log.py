"""What batches of a DStream read: kept before they run, shared by all outputs, limited by rates."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast
from unittest.mock import MagicMock

import msgspec
import pytest

from ottla.pipeline.batch_log import BatchLog
from ottla.pipeline.dstream_context import Restorable, checked_for_checkpoint, oldest_needed_ms, resolved
from ottla.pipeline.dstream_rates import share_of_rate
from ottla.pipeline.failures import PipelineError
from ottla.pipeline.shared_files import SharedFiles

if TYPE_CHECKING:
    from pyspark import SparkContext

    from ottla.pipeline.jvm import JavaObject


class Entry(msgspec.Struct):
    ends: list[int]


def test_a_batch_is_the_same_after_a_restart(tmp_path: Path) -> None:
    directory = (tmp_path / "log").as_uri()
    log = BatchLog(Entry, directory)
    assert log.newest is None and log.get(1000) is None
    log.put(1000, Entry([1, 2]))
    log.put(2000, Entry([3, 4]))
    again = BatchLog(Entry, directory)
    assert again.get(1000) == Entry([1, 2])
    assert again.newest == Entry([3, 4])
    assert again.get(3000) is None, "a batch that never was"


def test_a_batch_that_was_forgotten_is_not_made_up(tmp_path: Path) -> None:
    log = BatchLog(Entry, str(tmp_path))
    for number in range(100):
        log.put(number * 1000, Entry([number]))
    dropped = log.forget(before_ms=10_000)
    assert [entry.ends for entry in dropped] == [[number] for number in range(10)]
    assert len(SharedFiles(str(tmp_path)).names()) == 90
    with pytest.raises(PipelineError, match="no longer known"):
        log.get(5000)
    assert log.forget(before_ms=10**9) and len(SharedFiles(str(tmp_path)).names()) == 64


def test_a_damaged_entry_is_named(tmp_path: Path) -> None:
    SharedFiles(str(tmp_path)).write("000000000001000", b"{")
    with pytest.raises(PipelineError, match="000000000001000 is damaged"):
        BatchLog(Entry, str(tmp_path))


def test_files_appear_whole_and_a_missing_one_is_none(tmp_path: Path) -> None:
    files = SharedFiles(str(tmp_path / "new"))
    assert files.names() == [] and files.read("a") is None
    files.write("b", b"2")
    files.write("a", b"1")
    files.write("a", b"one")
    assert files.names() == ["a", "b"] and files.read("a") == b"one"
    files.delete("a")
    files.delete("a")
    assert files.names() == ["b"]


class Source(Restorable):
    def __init__(self, topic: str, decode: Callable[[bytes], str]) -> None:
        super().__init__()
        self.topic = topic
        self.decode = decode

    def state(self) -> dict[str, object]:
        return {"topic": self.topic, "decode": self.decode}


def test_two_functions_of_a_checkpoint_share_their_source_until_it_runs() -> None:
    cloudpickle = pytest.importorskip(
        "pyspark.cloudpickle", reason="the pipeline needs Spark: make setup-spark"
    )
    data = cloudpickle.dumps(Source("t", lambda value: value.decode()))
    one, two = pickle.loads(data), pickle.loads(data)
    assert one is two and one.topic == "t", "also where their functions are pickled by value"
    one.changed = True
    assert pickle.loads(data) is not one, "a second restart from the same checkpoint"


@pytest.mark.parametrize(
    "key",
    [
        *("ssl.key.password", "ssl.keystore.password", "ssl.key.pem", "ssl.keystore.key"),
        *("sasl.jaas.config", "sasl.oauthbearer.client.secret", "sasl.oauthbearer.config"),
    ],
)
def test_no_kind_of_secret_gets_into_a_checkpoint(key: str) -> None:
    with pytest.raises(PipelineError, match="the checkpoint would hold"):
        checked_for_checkpoint({key: "x"})


def test_secrets_come_from_the_environment_and_not_from_the_checkpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(PipelineError, match=r"sasl\.password: give it as \$\{env:NAME\}"):
        checked_for_checkpoint({"sasl.password": "x"})
    settings = checked_for_checkpoint({"sasl.password": "${env:SECRET}", "group.id": "g"})
    with pytest.raises(PipelineError, match="no environment variable SECRET"):
        resolved(settings)
    monkeypatch.setenv("SECRET", "pa55")
    assert resolved(settings) == {"sasl.password": "pa55", "group.id": "g"}


@pytest.mark.parametrize(
    ("lags", "rate", "most", "expected"),
    [
        ({"a": 300, "b": 100}, 40.0, 0, {"a": 60, "b": 20}),
        ({"a": 300, "b": 100}, 40.0, 10, {"a": 20, "b": 20}),
        ({"a": 300}, None, 50, {"a": 100}),
        ({"a": 300, "b": 0}, 1.0, 0, {"a": 2, "b": 2}),
    ],
)
def test_partitions_share_the_rate_by_their_lag(
    lags: dict[str, int], rate: float | None, most: int, expected: dict[str, int]
) -> None:
    assert share_of_rate(lags, rate, seconds=2.0, most=most, least=1) == expected


def test_without_a_rate_there_is_no_limit() -> None:
    assert share_of_rate({"a": 5}, None, seconds=1.0, most=0, least=1)["a"] > 10**12


class Duration:
    """A time or a duration of Spark's JVM."""

    def __init__(self, ms: int) -> None:
        self._ms = ms

    def milliseconds(self) -> int:
        return self._ms


class Running:
    """A StreamingContext of the JVM that remembers a second, with batches in its queue."""

    def __init__(self, *queue_ms: int) -> None:
        self._queue = [Duration(ms) for ms in queue_ms]

    def graph(self) -> Running:
        return self

    def getMaxInputStreamRememberDuration(self) -> Duration:
        return Duration(1000)

    def scheduler(self) -> Running:
        return self

    def getPendingTimes(self) -> Running:
        return self

    def size(self) -> int:
        return len(self._queue)

    def min(self, ordering: object) -> Duration:
        return min(self._queue, key=Duration.milliseconds)


@pytest.mark.parametrize(("queue", "oldest"), [((), 98_000), ((70_000, 20_000, 99_000), 18_000)])
def test_batches_in_the_queue_are_needed_however_long_they_wait(queue: tuple[int, ...], oldest: int) -> None:
    context = cast("SparkContext", MagicMock())
    assert oldest_needed_ms(cast("JavaObject", Running(*queue)), context, 100_000) == oldest
