"""Records that are read when they are looked at, and futures without locks."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import pytest

from ottla.client.consumer_records import FetchedRecord, as_record, record_maker
from ottla.client.errors import KafkaTimeoutError
from ottla.client.futures import Future
from ottla.client.structs import ConsumerRecord


class Message:
    """What librdkafka hands out."""

    def __init__(self, value: bytes | None = b"v") -> None:
        self._value = value

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 2

    def offset(self) -> int:
        return 7

    def leader_epoch(self) -> int | None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 2, 1_700_000_000_000

    def key(self) -> bytes | None:
        return b"k1"

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> list[tuple[str, bytes]] | None:
        return [("h", b"12")]


WHOLE = ConsumerRecord("t", 2, -1, 7, 1_700_000_000_000, 1, b"k1", b"v", [("h", b"12")], None, 2, 1, 3)


def test_a_fetched_record_is_a_consumer_record_in_all_that_can_be_seen() -> None:
    record: Any = record_maker(None, None)(Message())
    assert type(record) is FetchedRecord and isinstance(record, ConsumerRecord)
    assert record == WHOLE and tuple(record) == WHOLE and record != as_record(Message(None))
    assert tuple(record) == tuple(WHOLE) and len(record) == 13 and record[3] == 7
    assert repr(record) == repr(WHOLE)
    assert record._asdict() == WHOLE._asdict() and record._fields == WHOLE._fields
    assert record._replace(offset=8).offset == 8
    for name in ConsumerRecord._fields:
        assert getattr(record, name) == getattr(WHOLE, name), name
    assert pickle.loads(pickle.dumps(record)) == WHOLE
    topic, partition, *_ = record
    assert (topic, partition) == ("t", 2)
    with pytest.raises(AttributeError):
        _ = record.nothing


def test_a_deserializer_refuses_where_the_record_is_handed_out() -> None:
    def refuse(topic: str, headers: Any, data: Any) -> Any:
        raise ValueError("not mine")

    with pytest.raises(ValueError, match="not mine"):
        record_maker(None, refuse)(Message())
    assert record_maker(None, lambda topic, headers, data: data.decode())(Message()).value == "v"


def test_each_callback_is_called_once_whoever_comes_first() -> None:
    """A thread completes futures while another adds callbacks to them."""
    futures: list[Future[int]] = [Future() for _ in range(2_000)]
    called = [0] * len(futures)
    gate = threading.Barrier(2)

    def complete() -> None:
        gate.wait()
        for number, future in enumerate(futures):
            future.success(number)

    def note(number: int, value: int) -> None:
        assert number == value
        called[number] += 1

    thread = threading.Thread(target=complete)
    thread.start()
    gate.wait()
    for number, future in enumerate(futures):
        future.add_callback(note, number)
    thread.join()
    assert called == [1] * len(futures)


def test_whoever_waits_is_woken_and_whoever_comes_late_need_not_wait() -> None:
    future: Future[str] = Future()
    with pytest.raises(KafkaTimeoutError):
        future.get(0)
    got: list[str] = []
    thread = threading.Thread(target=lambda: got.append(future.get(60)))
    thread.start()
    future.success("here")
    thread.join(60)
    assert got == ["here"] and future.get(0) == "here"


def test_callbacks_and_errbacks_do_not_mix() -> None:
    seen: list[object] = []
    failed: Future[int] = Future()
    failed.add_callback(seen.append).add_errback(lambda error: seen.append(type(error)))
    failed.failure(ValueError("no"))
    failed.add_callback(seen.append).add_errback(lambda error: seen.append(str(error)))
    assert seen == [ValueError, "no"]
