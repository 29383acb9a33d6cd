"""A source's cycles on a real broker: records and offsets in one transaction, whatever happens to its commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="Connect needs pyarrow")

from ottla import KafkaAdminClient, NewTopic
from ottla.client.cluster_settings import writer_settings
from ottla.connect.config.connector import framework_keys
from ottla.connect.config.definitions import ConfigDef
from ottla.connect.data.record import SourceRecord
from ottla.connect.failures import Retriable, TaskFailed
from ottla.connect.run.chain import ChainSpec
from ottla.connect.run.context import RunContext
from ottla.connect.run.source import SourceRun
from ottla.connect.spi import Offsets, ReadLimit, SourceConnector, SourceReader, partition_key
from ottla.connect.stores import TopicOffsetStore
from ottla.pipeline.failures import SinkFenced
from ottla.pipeline.transaction import CommitUnknown, TransactionDriver
from ottla.pipeline.writer import RefusedBatch
from ottla.testing.process import BrokerProcess
from unit.pipeline.committed import values_of

KEY = partition_key({"lines": "all"})
STRINGS = "org.apache.kafka.connect.storage.StringConverter"


class Lines(SourceReader):
    """Two lines in each cycle, as long as there are some."""

    def __init__(self, topic: str, lines: Sequence[str]) -> None:
        self.topic = topic
        self.lines = lines

    def latest_offsets(self, start: Offsets, limit: ReadLimit) -> Offsets:
        at = start.get(KEY, {"at": 0})["at"]
        assert isinstance(at, int)
        return {KEY: {"at": min(at + 2, len(self.lines))}}

    def splits(self, start: Offsets, end: Offsets, max_splits: int) -> Sequence[Any]:
        return [(start.get(KEY, {"at": 0})["at"], end[KEY]["at"])]

    def read(self, split: Any) -> Iterator[SourceRecord]:
        for line in self.lines[split[0] : split[1]]:
            yield SourceRecord(self.topic, line)


class LinesConnector(SourceConnector):
    def __init__(self, topic: str, lines: Sequence[str]) -> None:
        self._reader = Lines(topic, lines)
        super().__init__({})

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef([])

    def reader(self) -> Lines:
        return self._reader


@pytest.fixture
def store(broker: BrokerProcess, topic: str) -> Iterator[TopicOffsetStore]:
    made = TopicOffsetStore(
        writer_settings(broker.bootstrap), f"offsets-{topic}", partitions=1, replication=1
    )
    yield made
    made.close()


def run_of(
    broker: BrokerProcess, topic: str, store: TopicOffsetStore, lines: Sequence[str], **keys: str
) -> SourceRun:
    """A started run of the connector `topic`, which gives every letter of `lines` as a record."""
    given = {key.replace("_", "."): value for key, value in keys.items()}
    config = {"name": topic, "connector.class": "Lines", "tasks.max": "1", **given}
    converters = {"key.converter": STRINGS, "value.converter": STRINGS, "header.converter": STRINGS}
    values = {key: one.value for key, one in framework_keys("source").validate(config).items()}
    context = RunContext(
        name=topic,
        group_id="workers",
        config=config,
        values=values,
        settings=writer_settings(broker.bootstrap),
        chain=ChainSpec(topic, config, converters),
        limit=ReadLimit(1000, 1 << 20),
        offsets=store,
        fence=1,
    )
    run = SourceRun(context, LinesConnector(topic, lines))
    run.start()
    return run


def test_a_run_continues_after_the_last_committed_cycle(broker, topic, store) -> None:
    first = run_of(broker, topic, store, "abc")
    assert first.cycle() and first.cycle() and not first.cycle()
    first.stop()
    second = run_of(broker, topic, store, "abcde")
    assert second.cycle() and not second.cycle()
    second.stop()
    assert values_of(broker, topic) == Counter("abcde")


def test_a_cycle_that_fails_leaves_neither_records_nor_offsets(broker, topic, store, monkeypatch) -> None:
    """The worker dies between the last record and the commit; the next run reads the same lines again."""
    run = run_of(broker, topic, store, "abcd")
    run.cycle()
    with monkeypatch.context() as patched:
        patched.setattr(TransactionDriver, "commit", lambda driver: (driver.abort(), 1 / 0))
        with pytest.raises(ZeroDivisionError):
            run.cycle()
    run.stop()
    assert store.read(topic) == {KEY: {"at": 2}}
    again = run_of(broker, topic, store, "abcd")
    assert again.cycle() and not again.cycle()
    again.stop()
    assert values_of(broker, topic) == Counter("abcd")


def test_a_cycle_that_takes_too_long_for_a_transaction_fails_with_a_sentence(
    broker, topic, store, monkeypatch
) -> None:
    run = run_of(broker, topic, store, "abcd")
    run.cycle()
    monkeypatch.setattr("ottla.connect.run.source._LONGEST_S", -1.0)
    with pytest.raises(TaskFailed, match=r"nothing of it was written\. Lower ottla\.cycle\.max\.records"):
        run.cycle()
    run.stop()
    assert store.read(topic) == {KEY: {"at": 2}} and values_of(broker, topic) == Counter("ab")


def test_a_record_that_its_topic_refuses_fails_with_the_key_that_allows_it(broker, topic, store) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.create_topics([NewTopic(topic, 1, 1, topic_configs={"max.message.bytes": "200"})])
    admin.close()
    run = run_of(broker, topic, store, ["short", "long" * 100])
    with pytest.raises(
        RefusedBatch, match=rf"{topic}-0 refuses a batch of 4\d\d bytes: raise its max\.message"
    ):
        run.cycle()
    run.stop()
    assert store.read(topic) == {} and values_of(broker, topic) == Counter()


@pytest.mark.parametrize("took_place", [True, False])
def test_a_cycle_whose_commit_has_an_unknown_outcome(broker, topic, store, took_place, monkeypatch) -> None:
    commit, calls = TransactionDriver.commit, []

    def lost(driver: TransactionDriver) -> None:
        calls.append(driver.identity)
        if took_place or len(calls) > 1:
            commit(driver)
        if len(calls) == 1:
            raise CommitUnknown("the connection broke")

    run = run_of(broker, topic, store, "abc")
    monkeypatch.setattr(TransactionDriver, "commit", lost)
    assert run.cycle() and run.cycle() and not run.cycle()
    run.stop()
    assert len(calls) == (2 if took_place else 3)
    assert values_of(broker, topic) == Counter("abc")


def test_a_run_that_was_replaced_writes_nothing_more(broker, topic, store) -> None:
    """A paused worker wakes up while another one runs its connector."""
    paused = run_of(broker, topic, store, "abcd")
    paused.cycle()
    other = run_of(broker, topic, store, "abcdef")
    assert other.cycle()
    with pytest.raises(SinkFenced):
        paused.cycle()
    assert other.cycle() and not other.cycle()
    paused.stop()
    other.stop()
    assert values_of(broker, topic) == Counter("abcdef")


@pytest.mark.parametrize("took_place", [True, False])
def test_the_cycles_of_an_interval_are_one_transaction(broker, topic, store, took_place, monkeypatch) -> None:
    commit, commits = TransactionDriver.commit, []

    def counted(driver: TransactionDriver) -> None:
        commits.append(driver.identity)
        if took_place or len(commits) > 1:
            commit(driver)
        if len(commits) == 1:
            raise CommitUnknown("the connection broke")

    monkeypatch.setattr(TransactionDriver, "commit", counted)
    keys = {"transaction_boundary": "interval", "transaction_boundary_interval_ms": "3600000"}
    for _ in range(2):
        run = run_of(broker, topic, store, "abcdefg", **keys)
        # A pause or an end does not wait for the interval.
        monkeypatch.setattr(
            Lines, "wait", lambda reader, timeout_s, stopping, run=run: run._context.stopping.set()
        )
        try:
            assert run.cycle() or took_place
        except Retriable:
            assert not took_place
        run.stop()
        if took_place:
            break
    assert len(commits) == (1 if took_place else 2)
    assert store.read(topic) == {KEY: {"at": 7}}
    assert values_of(broker, topic) == Counter("abcdefg")
