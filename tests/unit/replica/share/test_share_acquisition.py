"""Who gets which records: batches, limits, gaps, aborted transactions, and records that keep failing."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.errors import ApiException, ErrorCode
from ottla.records.batch import BatchHeader
from ottla.replica.share.acknowledgement import acknowledge, expire, settle
from ottla.replica.share.acquisition import acquire
from ottla.replica.share.in_flight import InFlight
from ottla.replica.share.persister import persisted_state
from ottla.replica.share.states import (
    Acknowledgement,
    AckType,
    Acquired,
    AcquireMode,
    RecordState,
    ShareSettings,
    StateBatch,
)
from ottla.wire import messages

SETTINGS = ShareSettings(delivery_count_limit=5, max_in_flight=1000)


def batch(first: int, last: int) -> BatchHeader:
    return BatchHeader(first, 100, 0, 2, 0, 0, last - first, 0, 0, -1, -1, -1, last - first + 1)


def take(
    flight: InFlight, *batches: BatchHeader, member: str = "m", now: float = 0.0, **options: Any
) -> list[Acquired]:
    given: dict[str, Any] = {"max_records": 500, "batch_size": 500, "settings": SETTINGS} | options
    settings = given.pop("settings")
    return acquire(flight, settings, member, batches, flight.next_fetch_offset(), now=0.0, **given)


def answer(flight: InFlight, kind: AckType, first: int, last: int, member: str = "m") -> None:
    change = acknowledge(flight, SETTINGS, member, [Acknowledgement(first, last, [kind])], 0.0)
    settle(flight, SETTINGS, change, 0.0, persisted=True)


def test_a_batch_is_handed_out_whole_and_counts_as_one_run() -> None:
    flight = InFlight(0)
    assert take(flight, batch(0, 99), max_records=10) == [Acquired(0, 99, 1)]
    assert len(flight.runs) == 1
    assert (flight.start_offset, flight.end_offset, flight.count) == (0, 99, 100)


def test_new_records_come_in_portions_cut_between_batches() -> None:
    flight = InFlight(0)
    got = take(flight, batch(0, 4), batch(5, 9), batch(10, 14), batch(15, 16), batch_size=6)
    assert got == [Acquired(0, 9, 1), Acquired(10, 16, 1)]


def test_a_group_that_begins_amid_a_batch_gets_the_rest_of_it() -> None:
    flight = InFlight(7)
    assert take(flight, batch(0, 9)) == [Acquired(7, 9, 1)]


def test_released_records_come_before_new_ones() -> None:
    flight = InFlight(0)
    take(flight, batch(0, 9))
    answer(flight, AckType.RELEASE, 2, 3)
    assert flight.next_fetch_offset() == 2
    assert take(flight, batch(0, 9), batch(10, 19)) == [Acquired(2, 3, 2), Acquired(10, 19, 1)]


def test_nothing_new_while_too_much_is_in_flight() -> None:
    settings = ShareSettings(max_in_flight=10)
    flight = InFlight(0)
    take(flight, batch(0, 9), settings=settings)
    assert take(flight, batch(10, 19), settings=settings) == []
    answer(flight, AckType.RELEASE, 5, 6)
    assert take(flight, batch(0, 9), batch(10, 19), settings=settings) == [Acquired(5, 6, 2)]
    answer(flight, AckType.ACCEPT, 0, 4)
    assert take(flight, batch(10, 19), settings=settings, max_records=1) == [Acquired(10, 19, 1)]


def test_records_that_were_compacted_away_are_passed_over() -> None:
    flight = InFlight(0)
    take(flight, batch(0, 3))
    answer(flight, AckType.RELEASE, 0, 3)
    # Offsets 0 to 5 are gone by now; 6 is the next there is.
    assert take(flight, batch(6, 7)) == [Acquired(6, 7, 1)]
    assert flight.start_offset == 6


def test_nobody_gets_records_of_aborted_transactions() -> None:
    flight = InFlight(0)
    got = take(flight, batch(0, 3), batch(4, 7), batch(8, 9), aborted=[(4, 7)])
    assert got == [Acquired(0, 3, 1), Acquired(8, 9, 1)]
    answer(flight, AckType.ACCEPT, 0, 3)
    assert flight.start_offset == 8


def test_records_that_keep_failing_come_in_ever_smaller_company() -> None:
    flight = InFlight(0)
    sizes = []
    for _ in range(4):
        got = take(flight, batch(0, 15), batch(16, 20))
        sizes.append((got[0].last - got[0].first + 1, got[0].delivery_count))
        answer(flight, AckType.RELEASE, got[0].first, got[0].last)
        for more in got[1:]:
            answer(flight, AckType.RELEASE, more.first, more.last)
    assert sizes == [(16 + 5, 1), (21, 2), (21, 3), (10, 4)]
    assert take(flight, batch(0, 15)) == [Acquired(0, 0, 5)], "alone on its last delivery"
    answer(flight, AckType.RELEASE, 0, 0)
    assert flight.start_offset == 1


def test_a_record_limit_is_exact() -> None:
    flight = InFlight(0)
    mode = AcquireMode.RECORD_LIMIT
    assert take(flight, batch(0, 9), max_records=4, mode=mode) == [Acquired(0, 3, 1)]
    answer(flight, AckType.RELEASE, 0, 3)
    assert take(flight, batch(0, 9), max_records=3, mode=mode) == [Acquired(0, 2, 2)]
    assert take(flight, batch(0, 9), max_records=9, mode=mode) == [Acquired(3, 3, 2), Acquired(4, 9, 1)]


def test_what_was_kept_comes_back_and_what_was_not_counts_as_never_delivered() -> None:
    flight = InFlight.load(
        5,
        [
            StateBatch(8, 9, RecordState.ACKNOWLEDGED, 1),
            StateBatch(12, 12, RecordState.AVAILABLE, 2),
        ],
    )
    assert (flight.start_offset, flight.end_offset, flight.terminal) == (5, 12, 2)
    assert take(flight, batch(0, 20)) == [
        Acquired(5, 7, 1),
        Acquired(10, 11, 1),
        Acquired(12, 12, 3),
        Acquired(13, 20, 1),
    ]


def test_kept_state_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError):
        InFlight.load(5, [StateBatch(3, 9, RecordState.ACKNOWLEDGED, 1)])


def test_retention_takes_records_from_under_the_group() -> None:
    flight = InFlight(0)
    take(flight, batch(0, 9))
    answer(flight, AckType.ACCEPT, 4, 5)
    flight.drop_before(5)
    assert (flight.start_offset, flight.end_offset, flight.terminal) == (6, 9, 0)
    answer(flight, AckType.ACCEPT, 0, 3)
    flight.drop_before(50)
    assert (flight.start_offset, flight.next_fetch_offset(), flight.runs) == (50, 50, [])


def test_a_lock_that_ended_while_a_change_was_under_way_counts_when_it_fails() -> None:
    flight = InFlight(0)
    take(flight, batch(0, 0))
    change = acknowledge(flight, SETTINGS, "m", [Acknowledgement(0, 0, [AckType.ACCEPT])], 1.0)
    assert expire(flight, SETTINGS, 100.0) == ([], None)
    settle(flight, SETTINGS, change, 100.0, persisted=False)
    assert take(flight, batch(0, 0), member="n") == [Acquired(0, 0, 2)]


def test_a_record_is_acknowledged_once_at_a_time() -> None:
    flight = InFlight(0)
    take(flight, batch(0, 3))
    acknowledge(flight, SETTINGS, "m", [Acknowledgement(0, 3, [AckType.ACCEPT])], 0.0)
    with pytest.raises(ApiException) as refused:
        acknowledge(flight, SETTINGS, "m", [Acknowledgement(2, 2, [AckType.ACCEPT])], 0.0)
    assert refused.value.code is ErrorCode.INVALID_RECORD_STATE


def test_portions_of_no_records_are_portions_of_one_batch() -> None:
    flight = InFlight(0)
    assert take(flight, batch(0, 1), batch(2, 3), batch_size=0) == [Acquired(0, 1, 1), Acquired(2, 3, 1)]


@pytest.mark.parametrize(("kept", "state"), [(1, RecordState.AVAILABLE), (3, RecordState.ARCHIVED)])
def test_locks_of_another_leader_are_over_and_dead_letters_are_done(kept: int, state: RecordState) -> None:
    assert [batch.state for batch in persisted_state(_read_answer(kept)).batches] == [state]


def test_states_that_nobody_knows_are_refused() -> None:
    with pytest.raises(ApiException):
        persisted_state(_read_answer(99))


def _read_answer(state: int) -> Any:
    response = messages.ReadShareGroupStateResponse
    kept = response.StateBatch(first_offset=0, last_offset=1, delivery_state=state, delivery_count=1)
    part = response.PartitionResult(partition=0, start_offset=0, state_batches=[kept])
    return response(results=[response.ReadStateResult(topic_id=bytes(16), partitions=[part])])
