"""The in-sync set, by itself: who counts, who comes in, who has to go."""

from __future__ import annotations

import pytest

from ottla.replica.isr import Follower, InSyncSet

LAG_MS = 30_000


class Session:
    """When the follower last sent a fetch."""

    def __init__(self, used_ms: float) -> None:
        self.used_ms = used_ms


@pytest.fixture
def eligible() -> set[int]:
    return {2, 3}


@pytest.fixture
def in_sync(eligible: set[int]) -> InSyncSet:
    found = InSyncSet(1, lambda replica, epoch: replica in eligible and epoch == 7, lambda: LAG_MS)
    found.assign((1, 2, 3), (1, 2, 3), 0.0)
    return found


def fetched(in_sync: InSyncSet, replica: int, offset: int, end: int, now_ms: float = 0.0) -> Follower:
    follower = in_sync.followers[replica]
    follower.fetched(offset, 0, 7, end, now_ms, Session(now_ms))
    return follower


def test_the_high_watermark_is_where_the_slowest_in_sync_is(in_sync):
    assert in_sync.high_watermark(10, 0) == -1, "nothing is known of the followers yet"
    fetched(in_sync, 2, 8, 10)
    fetched(in_sync, 3, 9, 10)
    assert in_sync.high_watermark(10, 0) == 8


def test_one_that_is_about_to_leave_still_counts(in_sync):
    fetched(in_sync, 2, 10, 10)
    fetched(in_sync, 3, 4, 10)
    in_sync.propose((1, 2), 0, 0)
    assert in_sync.high_watermark(10, 100_000) == 4
    in_sync.confirmed((1, 2))
    assert in_sync.high_watermark(10, 100_000) == 10


def test_one_that_is_about_to_come_in_counts_already(in_sync):
    in_sync.assign((1, 2, 3), (1, 2), 0)
    fetched(in_sync, 2, 10, 10)
    fetched(in_sync, 3, 7, 10)
    late_ms = LAG_MS + 1
    assert in_sync.high_watermark(10, late_ms) == 10, "3 is far behind"
    in_sync.propose((1, 2, 3), 0, 0)
    assert in_sync.committed == (1, 2)
    assert in_sync.high_watermark(10, late_ms) == 7
    in_sync.refused()
    assert in_sync.high_watermark(10, late_ms) == 10


def test_one_that_may_come_in_at_any_moment_counts_too(in_sync, eligible):
    in_sync.assign((1, 2, 3), (1,), 0)
    fetched(in_sync, 2, 10, 10, 1000)
    assert in_sync.high_watermark(12, 2000) == 10
    eligible.discard(2)
    assert in_sync.high_watermark(12, 2000) == 12, "its broker is fenced"


def test_a_follower_comes_in_at_the_high_watermark_and_not_before_the_epoch_began(in_sync, eligible):
    in_sync.assign((1, 2, 3), (1,), 0)
    fetched(in_sync, 2, 5, 10)
    assert in_sync.expansion(6, 0) is None
    assert in_sync.expansion(5, 6) is None
    assert in_sync.expansion(5, 5) == (1, 2)
    eligible.clear()
    assert in_sync.expansion(5, 5) is None


def test_there_is_one_change_at_a_time(in_sync):
    in_sync.assign((1, 2, 3), (1, 2), 0)
    fetched(in_sync, 3, 5, 5)
    proposal = in_sync.propose((1, 2, 3), 4, 9)
    assert (proposal.leader_epoch, proposal.partition_epoch) == (4, 9)
    assert in_sync.expansion(0, 0) is None
    assert in_sync.shrinkage(10, 1e9) is None


def test_a_follower_leaves_after_lagging_for_too_long(in_sync):
    fetched(in_sync, 2, 10, 10, 0)
    fetched(in_sync, 3, 4, 10, 0)
    assert in_sync.shrinkage(10, LAG_MS) is None
    assert in_sync.shrinkage(10, LAG_MS + 1) == (1, 2)
    assert in_sync.shrinkage(11, LAG_MS + 1) == (1,), "2 was not heard of since either"


def test_under_steady_load_a_follower_need_not_reach_the_end(in_sync):
    fetched(in_sync, 2, 0, 100, 0)
    for n in range(1, 100):
        fetched(in_sync, 2, n * 100, (n + 1) * 100, n * 1000)
        fetched(in_sync, 3, (n + 1) * 100, (n + 1) * 100, n * 1000)
        assert in_sync.shrinkage((n + 1) * 100, n * 1000) is None


def test_one_that_is_always_a_little_more_behind_leaves(in_sync):
    for n in range(100):
        fetched(in_sync, 2, n * 50, n * 100, n * 1000)
        fetched(in_sync, 3, n * 100, n * 100, n * 1000)
    assert in_sync.shrinkage(9900, 99_000) == (1, 3)


def test_an_idle_follower_was_caught_up_when_it_last_fetched_anything(in_sync):
    follower = fetched(in_sync, 2, 10, 10, 0)
    fetched(in_sync, 3, 11, 11, 100_000)
    follower.pulse.used_ms = 80_000
    follower.left_behind()
    assert in_sync.shrinkage(11, 80_000 + LAG_MS) is None
    assert in_sync.shrinkage(11, 80_001 + LAG_MS) == (1, 3)


def test_a_new_leader_knows_nothing_of_its_followers(in_sync):
    follower = fetched(in_sync, 2, 10, 10, 0)
    follower.begin_epoch(in_sync=True, new_leader=True, leader_end=10, now_ms=50_000)
    assert (follower.end_offset, follower.start_offset) == (-1, -1)
    assert follower.is_caught_up(10, 50_000 + LAG_MS, LAG_MS)
    assert not follower.is_caught_up(10, 50_001 + LAG_MS, LAG_MS)


def test_a_leader_that_goes_on_keeps_what_it_knows(in_sync):
    follower = fetched(in_sync, 2, 10, 10, 0)
    follower.begin_epoch(in_sync=False, new_leader=False, leader_end=12, now_ms=50_000)
    assert follower.end_offset == 10
    assert not follower.is_caught_up(12, 50_000, LAG_MS)


def test_the_low_watermark_is_that_of_the_living(in_sync):
    in_sync.followers[2].fetched(10, 3, 7, 10, 0, None)
    assert in_sync.low_watermark(5, lambda replica: True) == -1, "3 has not reported"
    assert in_sync.low_watermark(5, lambda replica: replica == 2) == 3
    in_sync.followers[2].fetched(10, 6, 7, 10, 0, None)
    assert in_sync.low_watermark(5, lambda replica: replica == 2) == 5


def test_the_metadata_decides_what_was_pending(in_sync):
    fetched(in_sync, 2, 10, 10)
    in_sync.propose((1, 2), 0, 0)
    in_sync.assign((1, 2, 4), (1, 2), 0)
    assert in_sync.pending is None
    assert in_sync.maximal == {1, 2}
    assert in_sync.followers.keys() == {2, 4}
    assert in_sync.followers[2].end_offset == 10
