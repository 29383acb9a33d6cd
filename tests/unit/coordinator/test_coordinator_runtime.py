"""The runtime under all coordinators: loading, batching, waiting for replicas, refusals, timers, resignation."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.coordinator.records import CoordinatorRecord, RecordSerde
from ottla.coordinator.result import CoordinatorResult
from ottla.coordinator.shard import ShardContext
from ottla.errors import ApiException, ErrorCode
from ottla.log.verification import UNVERIFIED
from ottla.promise import Promise
from ottla.records.batch import build_batch, iter_batches
from ottla.records.record import Record
from ottla.wire import messages
from unit.coordinator.coordinator_rig import RuntimeRig

SERDE = RecordSerde(["GroupMetadata"])


def put(key: str, value: str | None) -> CoordinatorRecord:
    """A record of a small store: the group is the key, the protocol its value."""
    body = None if value is None else messages.GroupMetadataValue(protocol_type=value, members=[])
    return CoordinatorRecord(messages.GroupMetadataKey(group=key), body, 3)


class Store:
    """A shard that keeps strings; those of open transactions apart."""

    def __init__(self, context: ShardContext) -> None:
        self.context = context
        self.values: dict[str, str] = {}
        self.pending: dict[int, dict[str, str]] = {}
        self.loaded = 0
        self.unloaded = 0

    def replay(self, offset: int, producer_id: int, producer_epoch: int, record: CoordinatorRecord) -> None:
        key: Any = record.key
        value: Any = record.value
        if key.group == "poison":
            raise ValueError("poison")
        where = self.values if producer_id < 0 else self.pending.setdefault(producer_id, {})
        if value is None:
            where.pop(key.group, None)
        else:
            where[key.group] = value.protocol_type

    def replay_end_transaction_marker(self, producer_id: int, producer_epoch: int, commit: bool) -> None:
        pending = self.pending.pop(producer_id, {})
        if commit:
            self.values.update(pending)

    def on_loaded(self, image: Any, now_ms: int) -> None:
        self.loaded += 1

    def on_unloaded(self) -> None:
        self.unloaded += 1

    def on_metadata_update(self, delta: Any, image: Any) -> None:
        pass


@pytest.fixture
def rig() -> RuntimeRig:
    rig = RuntimeRig(Store, SERDE)
    rig.elect()
    return rig


def putting(key: str, value: str | None) -> Any:
    return lambda shard, now_ms: CoordinatorResult([put(key, value)], f"{key}={value}")


def test_a_write_is_answered_when_committed_and_seen_after_a_restart(rig: RuntimeRig) -> None:
    assert rig.write(putting("a", "1")).get() == "a=1"
    assert rig.write(putting("b", "2")).get() == "b=2"
    assert rig.write(putting("a", None)).get() == "a=None"
    before = dict(rig.shard.values)
    rig.restart()
    assert rig.shard.values == before == {"b": "2"}


def test_who_does_not_lead_is_not_the_coordinator() -> None:
    rig = RuntimeRig(Store, SERDE)
    assert rig.write(putting("a", "1")).code == ErrorCode.NOT_COORDINATOR
    rig.elect()
    assert rig.write(putting("a", "1")).get()
    rig.runtime.resign(0, 0)
    assert rig.write(putting("a", "1")).code == ErrorCode.NOT_COORDINATOR


def test_while_it_loads_requests_are_told_so(rig: RuntimeRig) -> None:
    rig.write(putting("a", "1"))
    rig.runtime.resign(0)
    rig.executor.held = []
    rig.elect()
    assert rig.write(putting("b", "2")).code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert rig.read(lambda shard, now_ms: shard.values).code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    rig.executor.release()
    rig.settle()
    assert rig.read(lambda shard, now_ms: dict(shard.values)).get() == {"a": "1"}


def test_how_long_a_load_took_is_remembered_for_a_while(rig: RuntimeRig) -> None:
    rig.write(putting("a", "1"))
    rig.runtime.resign(0)
    rig.executor.held = []
    rig.elect()
    rig.clock.advance(2.5)
    rig.executor.release()
    rig.settle()
    assert rig.runtime.load_times_s(within_s=2.0) == [2.5]
    assert rig.runtime.load_times_s(within_s=60.0) == [0.0, 2.5]
    rig.clock.advance(61.0)
    assert rig.runtime.load_times_s(within_s=60.0) == []


def test_a_log_that_does_not_exist_yet_is_created_before_the_shard_is_loaded() -> None:
    rig = RuntimeRig(Store, SERDE)
    rig.unprepared = []
    rig.elect()
    assert rig.opened == 0, "opening it would create it on the loop"
    rig.unprepared.pop()()
    rig.settle()
    assert rig.opened == 1
    assert rig.write(putting("a", "1")).get() == "a=1"


def test_what_an_abandoned_load_reads_is_dropped(rig: RuntimeRig) -> None:
    rig.write(putting("a", "1"))
    rig.runtime.resign(0)
    rig.executor.held = []
    rig.elect()
    rig.runtime.resign(0)
    rig.executor.release()
    rig.settle()
    assert rig.shard is None


def test_an_operation_that_raises_writes_nothing(rig: RuntimeRig) -> None:
    def refuse(shard: Store, now_ms: int) -> Any:
        raise ApiException(ErrorCode.UNKNOWN_MEMBER_ID, "who?")

    assert rig.write(refuse).code == ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.partition.appends == 0


def test_an_unexpected_error_is_told_as_one_and_the_shard_goes_on(rig: RuntimeRig) -> None:
    assert rig.write(lambda shard, now_ms: shard.nothing).code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert rig.write(putting("a", "1")).get()


def test_answers_wait_for_the_replicas_in_order(rig: RuntimeRig) -> None:
    rig.partition.replicas_lag = True
    first, second = rig.write(putting("a", "1")), rig.write(putting("b", "2"))
    seen = rig.read(lambda shard, now_ms: dict(shard.values))
    assert not first.there and not second.there and not seen.there
    rig.partition.catch_up(1)
    assert first.there and not second.there and not seen.there
    rig.partition.catch_up()
    assert second.there and seen.get() == {"a": "1", "b": "2"}


def test_a_read_shows_what_it_saw_when_it_was_asked(rig: RuntimeRig) -> None:
    rig.partition.replicas_lag = True
    rig.write(putting("a", "1"))
    seen = rig.read(lambda shard, now_ms: dict(shard.values))
    rig.write(putting("a", "2"))
    rig.partition.catch_up(1)
    assert seen.get() == {"a": "1"}


def test_replicas_that_stay_away_make_the_coordinator_unavailable(rig: RuntimeRig) -> None:
    rig.partition.replicas_lag = True
    answer = rig.write(putting("a", "1"))
    rig.clock.advance(4.9)
    late = rig.write(putting("b", "2"))
    assert not answer.there
    rig.clock.advance(0.2)
    assert answer.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not late.there
    rig.clock.advance(10)
    assert late.code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_commit_that_comes_too_late_is_told_to_who_has_to_know(rig: RuntimeRig) -> None:
    rig.partition.replicas_lag = True
    reported: list[Any] = []
    rig.runtime.write(
        0, putting("a", "1"), reported.append, lambda error: reported.append(error.code), reported.append
    )
    answer = rig.write(putting("b", "2"))
    rig.clock.advance(5.1)
    assert reported == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert answer.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    rig.partition.catch_up()
    assert reported[1:] == ["a=1"]
    rig.partition.replicas_lag = False
    assert rig.write(putting("c", "3")).there


def test_a_late_commit_is_nobodys_after_a_resignation(rig: RuntimeRig) -> None:
    rig.partition.replicas_lag = True
    reported: list[Any] = []
    rig.runtime.write(
        0, putting("a", "1"), reported.append, lambda error: reported.append(error.code), reported.append
    )
    rig.clock.advance(5.1)
    rig.runtime.resign(0, 1)
    rig.partition.catch_up()
    assert reported == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


def test_in_a_new_epoch_of_the_same_leader_the_shard_goes_on(rig: RuntimeRig) -> None:
    rig.write(putting("a", "1"))
    shard = rig.shard
    rig.runtime.elect(0, 3)
    assert rig.shard is shard
    rig.runtime.resign(0, 2)
    assert rig.runtime.is_active(0)


def test_a_shard_that_leans_on_its_epoch_is_loaded_again_in_a_new_one() -> None:
    rig = RuntimeRig(Store, SERDE, reload_in_new_epoch=True)
    rig.elect()
    rig.write(putting("a", "1"))
    rig.partition.replicas_lag = True
    waiting, shard = rig.write(putting("b", "2")), rig.shard
    rig.runtime.elect(0, 0)
    assert rig.shard is shard
    rig.runtime.elect(0, 3)
    assert waiting.code == ErrorCode.NOT_COORDINATOR and shard.unloaded == 1
    rig.settle()
    assert rig.shard is not shard
    assert rig.shard.context.leader_epoch == 3 and rig.shard.values == {"a": "1", "b": "2"}
    seen = rig.read(lambda shard, now_ms: dict(shard.values))
    assert not seen.there
    rig.partition.catch_up()
    assert seen.get() == {"a": "1", "b": "2"}


def test_who_waits_when_it_resigns_has_to_ask_the_other(rig: RuntimeRig) -> None:
    rig.partition.replicas_lag = True
    answer, shard = rig.write(putting("a", "1")), rig.shard
    rig.runtime.resign(0, 1)
    assert answer.code == ErrorCode.NOT_COORDINATOR
    assert shard.unloaded == 1


def test_an_old_resignation_is_ignored(rig: RuntimeRig) -> None:
    rig.runtime.elect(0, 5)
    rig.runtime.resign(0, 4)
    assert rig.runtime.is_active(0)


@pytest.mark.parametrize(
    ("refusal", "reported"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_what_the_log_refuses_changes_nothing(
    rig: RuntimeRig, refusal: ErrorCode, reported: ErrorCode
) -> None:
    shard = rig.shard
    rig.partition.refusal = ApiException(refusal, "no")
    assert rig.write(putting("a", "1")).code == reported
    assert rig.shard is shard and shard.values == {}
    rig.partition.refusal = None
    assert rig.write(putting("a", "1")).get()


def test_an_append_that_fails_after_all_brings_the_state_back_to_the_log(rig: RuntimeRig) -> None:
    rig.write(putting("a", "1"))
    rig.partition.fault = ApiException(ErrorCode.KAFKA_STORAGE_ERROR, "disk")
    assert rig.write(putting("a", "2")).code == ErrorCode.NOT_COORDINATOR
    rig.partition.fault = None
    rig.settle()
    assert rig.shard.values == {"a": "1"}


def test_records_that_cannot_be_replayed_are_not_written(rig: RuntimeRig) -> None:
    rig.write(putting("a", "1"))
    assert rig.write(putting("poison", "x")).code == ErrorCode.UNKNOWN_SERVER_ERROR
    rig.settle()
    assert rig.shard.values == {"a": "1"}
    assert rig.partition.appends == 1


def test_operations_of_one_turn_share_a_batch() -> None:
    rig = RuntimeRig(Store, SERDE, linger_ms=-1)
    rig.elect()
    answers: list[Any] = []
    for key in "abc":
        rig.runtime.write(0, putting(key, key), answers.append, answers.append)
    # A later one sees what the earlier did, though nothing is written yet.
    rig.runtime.read(0, lambda shard, now_ms: sorted(shard.values), answers.append, answers.append)
    assert answers == [] and rig.partition.appends == 0
    rig.settle()
    assert answers == ["a=a", "b=b", "c=c", ["a", "b", "c"]]
    assert rig.partition.appends == 1


def test_a_linger_time_is_kept() -> None:
    rig = RuntimeRig(Store, SERDE, linger_ms=10)
    rig.elect()
    first = rig.write(putting("a", "1"))
    rig.clock.advance_ms(9)
    second = rig.write(putting("b", "2"))
    assert not first.there
    rig.clock.advance_ms(2)
    assert first.there and second.there and rig.partition.appends == 1


def test_a_batch_that_is_full_makes_room_for_the_next() -> None:
    rig = RuntimeRig(Store, SERDE, linger_ms=-1, topic={"max_message_bytes": 500})
    rig.elect()
    answers: list[Any] = []
    for key in "abcd":
        rig.runtime.write(0, putting(key, "x" * 150), answers.append, answers.append)
    rig.settle()
    assert len(answers) == 4 and rig.partition.appends == 2
    rig.restart()
    assert sorted(rig.shard.values) == ["a", "b", "c", "d"]


def test_who_needs_room_that_a_refused_batch_had_is_refused_with_it() -> None:
    """It was decided by a state that was never written."""
    rig = RuntimeRig(Store, SERDE, linger_ms=10, topic={"max_message_bytes": 500})
    rig.elect()
    answers: list[Any] = []
    for key in "ab":
        rig.runtime.write(0, putting(key, "x" * 150), answers.append, answers.append)
    rig.partition.fault = ApiException(ErrorCode.KAFKA_STORAGE_ERROR, "disk")
    rig.runtime.write(0, putting("c", "x" * 150), answers.append, answers.append)
    rig.partition.fault = None
    rig.settle()
    assert [answer.code for answer in answers] == [ErrorCode.NOT_COORDINATOR] * 3
    assert rig.shard.values == {} and rig.partition.appends == 0


def test_an_operation_that_fits_no_batch_is_refused() -> None:
    rig = RuntimeRig(Store, SERDE, topic={"max_message_bytes": 500})
    rig.elect()
    assert rig.write(putting("a", "x" * 600)).code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert rig.shard.values == {}


def test_a_clean_up_may_take_several_batches() -> None:
    rig = RuntimeRig(Store, SERDE, topic={"max_message_bytes": 40_000})
    rig.elect()
    records = [put(f"key {n}", "x") for n in range(1200)]
    assert rig.write(lambda shard, now_ms: CoordinatorResult(records, "all")).code != 0
    answer = rig.write(lambda shard, now_ms: CoordinatorResult(records, "all", atomic=False))
    assert answer.get() == "all" and rig.partition.appends == 3
    rig.restart()
    assert len(rig.shard.values) == 1200


def test_a_deferred_answer_comes_when_the_logic_gives_it(rig: RuntimeRig) -> None:
    waiting: Promise[str] = Promise()
    answer = rig.write(lambda shard, now_ms: CoordinatorResult([put("a", "1")], waiting))
    assert not answer.there
    waiting.resolve("now")
    waiting.resolve("too late")
    assert answer.outcomes == ["now"]


def test_a_transaction_counts_when_its_marker_does(rig: RuntimeRig) -> None:
    def write(producer_id: int, key: str, value: str) -> None:
        rig.runtime.write_transactional(
            0, producer_id, 0, putting(key, value), lambda _: None, pytest.fail, UNVERIFIED
        )

    write(7, "a", "committed")
    write(8, "b", "aborted")
    write(9, "c", "open")
    assert rig.shard.values == {}
    rig.runtime.complete_transaction(0, 7, 0, 0, True, lambda _: None, pytest.fail)
    rig.runtime.complete_transaction(0, 8, 0, 0, False, lambda _: None, pytest.fail)
    for _ in range(2):
        assert rig.shard.values == {"a": "committed"}
        assert rig.shard.pending == {9: {"c": "open"}}
        rig.restart()
    _, header = next(iter_batches(rig.partition.read(0, 10_000)))
    assert header.is_transactional and header.producer_id == 7


def test_unknown_records_are_skipped_and_broken_ones_keep_the_shard_away(
    rig: RuntimeRig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.write(putting("a", "1"))
    later = build_batch([Record(0, 0, b"\x7f\x00new", b"\0\0")])
    rig.partition.append(later, 0)
    rig.restart()
    assert rig.shard.values == {"a": "1"}
    assert "no records of type 32512" in caplog.text
    rig.partition.append(build_batch([Record(0, 0, SERDE.key_bytes(put("a", "1")), b"\0\x63")]), 0)
    rig.restart()
    assert rig.write(putting("a", "1")).code == ErrorCode.NOT_COORDINATOR


def test_a_long_log_is_loaded_in_slices_keeping_the_last_of_each_key() -> None:
    rig = RuntimeRig(Store, SERDE, load_buffer_bytes=2000, topic={"segment_bytes": 5000})
    rig.elect()
    for n in range(500):
        rig.write(putting(f"key {n % 7}", str(n)))
    before = dict(rig.shard.values)
    rig.restart()
    rig.clock.advance(1)
    assert rig.shard.values == before and len(before) == 7


def test_timers_write_can_be_replaced_and_end_with_the_shard(rig: RuntimeRig) -> None:
    timers = rig.shard.context.timers
    timers.schedule("k", 100, lambda now_ms: putting("t", "first")(None, now_ms))
    rig.clock.advance_ms(50)
    timers.schedule("k", 100, lambda now_ms: putting("t", "second")(None, now_ms))
    timers.schedule("never", 100, lambda now_ms: putting("n", "x")(None, now_ms))
    timers.cancel("never")
    rig.clock.advance_ms(99)
    assert rig.shard.values == {}
    rig.clock.advance_ms(1)
    assert rig.shard.values == {"t": "second"} and len(timers) == 0
    timers.schedule("k", 100, lambda now_ms: putting("t", "third")(None, now_ms))
    rig.restart()
    rig.clock.advance(1)
    assert rig.shard.values == {"t": "second"}


def test_a_timer_that_cannot_be_written_now_is_tried_again(rig: RuntimeRig) -> None:
    rig.shard.context.timers.schedule("k", 100, lambda now_ms: putting("t", "1")(None, now_ms))
    rig.partition.refusal = ApiException(ErrorCode.NOT_ENOUGH_REPLICAS, "no")
    rig.clock.advance_ms(100)
    rig.partition.refusal = None
    assert rig.shard.values == {}
    rig.clock.advance_ms(500)
    assert rig.shard.values == {"t": "1"}


def test_all_shards_can_be_asked_at_once(rig: RuntimeRig) -> None:
    rig.write(putting("a", "1"))
    found: list[Any] = []
    rig.runtime.read_all(lambda shard, now_ms: dict(shard.values), found.append, pytest.fail)
    assert found == [[{"a": "1"}]]
    rig.runtime.resign(0)
    rig.runtime.read_all(lambda shard, now_ms: dict(shard.values), found.append, pytest.fail)
    assert found[1] == []
