"""Futures, partitioners, errors and the consumer's state, without a broker."""

import asyncio
import logging
import threading

import pytest

import ottla
from ottla.client import broker_errors, errors
from ottla.client.consumer_state import ConsumerState
from ottla.client.engine_log import EngineLog
from ottla.client.errors import NoBrokersAvailable
from ottla.client.futures import Future
from ottla.client.partitioners import Cluster, DefaultPartitioner, choose_function, murmur2
from ottla.client.structs import OffsetAndMetadata, TopicPartition
from ottla.errors import ErrorCode

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


def test_every_name_of_the_api_is_there():
    renamed = {"ACLOperation", "ACLPermissionType", "ACLResourcePatternType", "UpdateFeatureType"}
    for name in ottla._MODULE_OF:
        assert (getattr(ottla, name).__name__ == name) is (name not in renamed)
        assert name in dir(ottla)
    with pytest.raises(AttributeError, match="KafkaConsmer"):
        ottla.__getattr__("KafkaConsmer")


@pytest.mark.parametrize(
    ("key", "hashed"),
    [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536)],
)
def test_murmur2_is_kafkas(key, hashed):
    """The numbers are those of Kafka's own test of its hash."""
    assert murmur2(key) == hashed % 2**32


def test_a_key_always_has_the_same_partition():
    cluster = Cluster({"t": dict.fromkeys(range(5), 1)})
    choose = DefaultPartitioner().partition
    chosen = {choose("t", key, key, None, None, cluster) for key in [b"same"] * 10}
    assert chosen == {(murmur2(b"same") & 0x7FFFFFFF) % 5}
    assert choose("t", None, None, b"v", b"v", Cluster({"t": {0: -1, 1: 7}})) == 1


def test_partitioners_of_every_kind_are_taken():
    class Old:
        def partition(self, topic, key, cluster):
            return len(key)

    cluster = Cluster({"t": {0: 1, 1: -1}})
    assert choose_function(DefaultPartitioner()) is None
    assert choose_function(Old())("t", "k", b"k", None, None, cluster) == 1
    assert choose_function(lambda key, everything, available: (everything, available))(
        "t", "k", b"k", None, None, cluster
    ) == ([0, 1], [0])
    with pytest.raises(errors.KafkaConfigurationError):
        choose_function(5)


def test_each_of_kafkas_codes_has_an_exception():
    for code in ErrorCode:
        cls = errors.for_code(code)
        assert cls.errno == code
        assert cls("text").message == code.name
        assert vars(broker_errors)[cls.__name__] is cls
    assert errors.for_code(9999).errno == 9999
    assert issubclass(errors.for_code(9999), broker_errors.UnknownError)
    assert str(broker_errors.NotLeaderForPartitionError("why")) == "[Error 6] NotLeaderForPartitionError: why"


def test_callbacks_hear_of_the_result_before_and_after_it_came():
    future, heard = Future(), []
    future.add_callback(heard.append).add_errback(lambda error: heard.append("never"))
    future.success(1)
    future.add_callback(lambda extra, value: heard.append((extra, value)), "extra")
    assert heard == [1, ("extra", 1)]
    assert (future.is_done, future.succeeded(), future.get()) == (True, True, 1)


def test_a_failure_is_raised_and_told():
    future, heard = Future(), []
    future.add_errback(heard.append)
    future.failure(errors.KafkaTimeoutError)
    assert future.failed() and future.retriable() and future.value is None
    assert isinstance(heard[0], errors.KafkaTimeoutError)
    with pytest.raises(errors.KafkaTimeoutError):
        future.get()


def test_a_callback_that_fails_does_not_take_the_others_with_it(caplog):
    future, heard = Future(), []
    future.add_callback(lambda value: 1 / 0).add_callback(heard.append)
    future.success(1)
    assert heard == [1]
    assert "ZeroDivisionError" in caplog.text


def test_get_waits_for_another_thread_and_no_longer_than_told():
    future = Future()
    with pytest.raises(errors.KafkaTimeoutError):
        future.get(timeout=0)
    threading.Timer(0.01, future.success, [5]).start()
    assert future.get(timeout=60) == 5


def test_a_future_can_be_awaited():
    async def wait():
        future = Future()
        threading.Timer(0.01, future.success, [5]).start()
        return await future

    assert asyncio.run(wait()) == 5


class Message:
    def __init__(self, tp, offset):
        self.tp, self.at = tp, offset

    def topic(self):
        return self.tp.topic

    def partition(self):
        return self.tp.partition


@pytest.fixture
def state():
    state = ConsumerState()
    state.assign([ZERO, ONE])
    return state


def test_subscribing_and_assigning_exclude_each_other(state):
    with pytest.raises(errors.IllegalStateError):
        state.subscribe(["t"], None, None)
    state.clear()
    state.subscribe(["t"], None, None)
    with pytest.raises(errors.IllegalStateError):
        state.assign([ZERO])
    with pytest.raises(errors.IllegalStateError):
        state.subscribe(["t"], "pattern", None)


def test_what_stays_assigned_keeps_its_position(state):
    state.seek(ZERO, 5)
    state.seek(ONE, 6)
    state.assign([ONE])
    assert state.positions == {ONE: 6}
    state.assign([ZERO, ONE])
    assert state.without_position() == [ZERO]


def test_a_seek_forgets_what_was_fetched_from_elsewhere(state):
    state.buffer.extend([Message(ZERO, 1), Message(ONE, 1), Message(ZERO, 2)])
    state.seek(ZERO, 0)
    assert [(one.tp, one.at) for one in state.buffer] == [(ONE, 1)]
    state.reset(ONE, "latest")
    assert not state.buffer
    assert state.without_position() == [ONE]


def test_what_was_fetched_of_a_paused_partition_comes_after_the_pause(state):
    state.buffer.extend([Message(ZERO, 1), Message(ONE, 1), Message(ZERO, 2)])
    state.pause(ZERO)
    assert [one.tp for one in state.buffer] == [ONE]
    state.resume(ZERO)
    assert [(one.tp, one.at) for one in state.buffer] == [(ZERO, 1), (ZERO, 2), (ONE, 1)]


def test_only_assigned_partitions_are_committed(state):
    state.seek(ZERO, 5)
    state.seek(ONE, 6)
    state.epochs[ONE] = 3
    state.drop([ZERO])
    assert state.consumed() == {ONE: OffsetAndMetadata(6, "", 3)}


def test_the_engines_log_says_the_same_thing_once(caplog: pytest.LogCaptureFixture) -> None:
    log = EngineLog()
    for after_ms in range(5):
        message = f"[thrd:a]: h:1/bootstrap: Connect failed: Connection refused (after {after_ms}ms in state CONNECT)"
        log.log(logging.ERROR, "%s [%s] %s", "FAIL", "c#1", message)
    log.log(logging.ERROR, "%s [%s] %s", "FAIL", "c#1", "[thrd:a]: h:1/bootstrap: something else")
    assert len(caplog.records) == 2
    assert log.problem == "something else"


@pytest.mark.slow
def test_nobody_at_the_address_is_explained() -> None:
    for kind in (ottla.KafkaProducer, ottla.KafkaConsumer):
        with pytest.raises(NoBrokersAvailable, match=r"Connection refused.*is it running there"):
            kind(bootstrap_servers="127.0.0.1:1", bootstrap_timeout_ms=1000)
