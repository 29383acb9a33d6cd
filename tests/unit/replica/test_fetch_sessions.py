"""Fetch sessions: what a client of KIP-227 sees from request to request."""

from __future__ import annotations

import pytest

from ottla.errors import ErrorCode
from ottla.replica.fetch_partition import FetchPartition
from ottla.replica.fetch_sessions import FetchContext, FetchSessionCache
from ottla.testing.virtual_clock import VirtualClock
from ottla.wire.messages import FetchResponse

TOPIC_IDS = 13
NAMES = 12
EVICTION_MS = 120_000


def asked(index: int, offset: int = 0, topic: str | bytes = "t") -> FetchPartition:
    return FetchPartition(topic, index, offset, 1000)


def reported(
    index: int, *, records: bytes = b"", high_watermark: int = 10, log_start: int = 0, error: int = 0
):
    return FetchResponse.PartitionData(
        partition_index=index,
        error_code=error,
        high_watermark=high_watermark,
        log_start_offset=log_start,
        records=records,
    )


def answer(context: FetchContext, **results: bytes) -> tuple[ErrorCode, int, list[int]]:
    """Finish a request in which the named partitions (`p0=b"..."`) have records."""
    data = [reported(part.index, records=results.get(f"p{part.index}", b"")) for part in context.partitions]
    error, session_id, sent = context.finish(data)
    return error, session_id, [part.index for part, _ in sent]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def cache(clock: VirtualClock) -> FetchSessionCache:
    return FetchSessionCache(clock, slots=2, min_eviction_ms=EVICTION_MS)


def open_session(cache: FetchSessionCache, count: int = 3, *, follower: bool = False) -> int:
    context = cache.open(NAMES, 0, 0, [asked(i) for i in range(count)], follower=follower)
    return answer(context)[1]


def test_a_full_fetch_opens_a_session_and_sends_every_partition(cache):
    context = cache.open(NAMES, 0, 0, [asked(0), asked(1)])
    assert not context.incremental
    error, session_id, sent = answer(context)
    assert (error, sent) == (ErrorCode.NONE, [0, 1])
    assert session_id > 0
    assert len(cache) == 1
    assert cache.partition_count == 2


def test_an_incremental_fetch_sends_only_what_changed(cache):
    session_id = open_session(cache)
    context = cache.open(NAMES, session_id, 1, [])
    assert context.incremental
    assert [part.index for part in context.partitions] == [0, 1, 2]
    assert answer(context, p1=b"x") == (ErrorCode.NONE, session_id, [1])


def test_a_moved_high_watermark_or_log_start_is_news_once(cache):
    session_id = open_session(cache, 2)
    for epoch, (high_watermark, log_start, expected) in enumerate(
        [(11, 0, [0, 1]), (11, 0, []), (11, 4, [0, 1]), (11, 4, [])], start=1
    ):
        context = cache.open(NAMES, session_id, epoch, [])
        data = [reported(i, high_watermark=high_watermark, log_start=log_start) for i in range(2)]
        assert [part.index for part, _ in context.finish(data)[2]] == expected


def test_an_error_is_sent_each_time_and_its_end_is_news(cache):
    session_id = open_session(cache, 1)
    for epoch in (1, 2):
        context = cache.open(NAMES, session_id, epoch, [])
        data = reported(0, error=ErrorCode.NOT_LEADER_OR_FOLLOWER, high_watermark=-1, log_start=-1)
        assert len(list(context.finish([data])[2])) == 1
    context = cache.open(NAMES, session_id, 3, [])
    assert answer(context) == (ErrorCode.NONE, session_id, [0])


def test_partitions_are_added_changed_and_forgotten(cache):
    session_id = open_session(cache, 2)
    context = cache.open(NAMES, session_id, 1, [asked(5), asked(0, offset=7)], [("t", 1), ("t", 99)])
    assert [(part.index, part.fetch_offset) for part in context.partitions] == [(0, 7), (5, 0)]


def test_partitions_that_gave_data_wait_for_their_next_turn(cache):
    session_id = open_session(cache)
    answer(cache.open(NAMES, session_id, 1, []), p0=b"x")
    context = cache.open(NAMES, session_id, 2, [])
    assert [part.index for part in context.partitions] == [1, 2, 0]
    answer(context, p1=b"x", p2=b"y")
    assert [part.index for part in cache.open(NAMES, session_id, 3, []).partitions] == [0, 1, 2]


def test_a_session_whose_partitions_are_all_forgotten_is_closed(cache):
    session_id = open_session(cache, 1)
    context = cache.open(NAMES, session_id, 1, [], [("t", 0)])
    assert answer(context) == (ErrorCode.NONE, 0, [])
    assert len(cache) == 0


def test_the_epoch_must_be_the_expected_one(cache):
    session_id = open_session(cache)
    assert cache.open(NAMES, session_id, 2, []).error == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert cache.open(NAMES, session_id, 1, []).error == ErrorCode.NONE
    assert cache.open(NAMES, session_id, 1, []).error == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_the_epoch_wraps_around_to_one(cache):
    session_id = open_session(cache)
    cache._sessions[session_id].epoch = 2**31 - 1
    assert not cache.open(NAMES, session_id, 2**31 - 1, []).error
    assert not cache.open(NAMES, session_id, 1, []).error


def test_a_request_that_was_overtaken_by_another_gets_the_epoch_error(cache):
    session_id = open_session(cache)
    parked = cache.open(NAMES, session_id, 1, [])
    cache.open(NAMES, session_id, 2, [])
    assert answer(parked) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id, [])


def test_an_unknown_session_is_not_found(cache):
    assert cache.open(NAMES, 4711, 1, []).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_topic_ids_and_names_do_not_mix_in_a_session(cache):
    session_id = open_session(cache)
    assert cache.open(TOPIC_IDS, session_id, 1, []).error == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    topic_id = bytes(range(16))
    context = cache.open(TOPIC_IDS, 0, 0, [asked(0, topic=topic_id)])
    by_id = answer(context)[1]
    assert cache.open(NAMES, by_id, 1, []).error == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert not cache.open(TOPIC_IDS, by_id, 1, []).error


def test_a_full_fetch_closes_the_session_that_it_names(cache):
    first = open_session(cache)
    second = answer(cache.open(NAMES, first, 0, [asked(0)]))[1]
    assert second != first
    assert len(cache) == 1
    assert answer(cache.open(NAMES, second, -1, [asked(0)])) == (ErrorCode.NONE, 0, [0])
    assert len(cache) == 0


def test_a_full_cache_gives_no_session(cache):
    open_session(cache)
    open_session(cache)
    assert open_session(cache) == 0
    assert len(cache) == 2


def test_a_session_unused_for_long_makes_room(cache, clock):
    stale = open_session(cache)
    clock.advance_ms(EVICTION_MS - 1000)
    open_session(cache)
    clock.advance_ms(2000)
    assert open_session(cache) > 0
    assert cache.open(NAMES, stale, 1, []).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.evictions == 1


def test_a_larger_newcomer_pushes_out_a_smaller_session_that_has_lived_long(cache, clock):
    small, large = open_session(cache, 1), open_session(cache, 5)
    clock.advance_ms(EVICTION_MS - 1)
    cache.open(NAMES, small, 1, [])
    cache.open(NAMES, large, 1, [])
    clock.advance_ms(2)
    assert open_session(cache, 3) == 0, "nobody was used after having lived long"
    cache.open(NAMES, small, 2, [])
    cache.open(NAMES, large, 2, [])
    assert open_session(cache, 3) > 0
    assert cache.open(NAMES, small, 3, []).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert open_session(cache, 2) == 0, "the newcomer has not lived long, and the large one is larger"


def test_a_follower_pushes_out_a_client_but_not_the_other_way_round(cache):
    first, second = open_session(cache, 8), open_session(cache, 9)
    follower = open_session(cache, 1, follower=True)
    assert follower > 0
    assert cache.open(NAMES, first, 1, []).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert not cache.open(NAMES, second, 1, []).error
    assert open_session(cache, 100) == 0


def test_no_slots_mean_no_sessions(clock):
    cache = FetchSessionCache(clock, slots=0)
    assert open_session(cache) == 0


def test_a_partition_named_twice_counts_once(cache):
    context = cache.open(NAMES, 0, 0, [asked(0, offset=1), asked(0, offset=2)])
    assert [(part.index, part.fetch_offset) for part in context.partitions] == [(0, 2)]
