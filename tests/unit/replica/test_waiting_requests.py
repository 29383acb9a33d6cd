"""Parked requests: woken by what they wait for, once per turn of the loop, within their time."""

from __future__ import annotations

import pytest

from ottla.replica.delayed_requests import DelayedRequests, Waiters
from ottla.testing.virtual_clock import VirtualClock


def place() -> Waiters:
    """The waiters of one partition."""
    return {}


class Waiter:
    """A request that needs so many more bytes each time it is woken."""

    def __init__(self, *needs: int) -> None:
        self.needs = list(needs)
        self.calls: list[bool] = []

    def __call__(self, expired: bool) -> int:
        self.calls.append(expired)
        return self.needs.pop(0) if self.needs else 0


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def test_it_is_woken_once_for_many_events_of_one_turn(clock):
    waiting, places, waiter = DelayedRequests(clock), [place() for _ in range(3)], Waiter()
    parked = waiting.park(places, 1, 10.0, waiter)
    for each in places:
        for waiting_there in each:
            waiting_there.progress(100)
    assert waiter.calls == []
    clock.advance(0)
    assert waiter.calls == [False]
    assert waiting.count == 0
    assert all(not each for each in places)
    parked.ready()
    clock.advance(100)
    assert waiter.calls == [False]


def test_small_events_add_up(clock):
    waiting, where, waiter = DelayedRequests(clock), place(), Waiter()
    parked = waiting.park([where], 100, 10.0, waiter)
    parked.progress(99)
    clock.advance(0)
    assert waiter.calls == []
    parked.progress(1)
    clock.advance(0)
    assert waiter.calls == [False]


def test_one_that_still_needs_more_keeps_waiting_until_its_time_is_up(clock):
    waiting, where, waiter = DelayedRequests(clock), place(), Waiter(50)
    parked = waiting.park([where], 1, 10.0, waiter)
    parked.progress(1)
    clock.advance(1)
    assert waiter.calls == [False]
    parked.progress(49)
    clock.advance(8.9)
    assert waiter.calls == [False]
    assert waiting.count == 1
    clock.advance(0.2)
    assert waiter.calls == [False, True]
    assert waiting.count == 0
    assert not where


def test_a_cancelled_one_leaves_nothing_behind(clock):
    waiting, where, waiter = DelayedRequests(clock), place(), Waiter()
    parked = waiting.park([where], 1, 10.0, waiter)
    parked.ready()
    parked.cancel()
    parked.cancel()
    clock.advance(100)
    assert waiter.calls == []
    assert waiting.count == 0
    assert not where


def test_there_is_room_for_only_so_many(clock):
    waiting, where = DelayedRequests(clock, limit=2), place()
    first = waiting.park([where], 1, 10.0, Waiter())
    assert waiting.park([where], 1, 10.0, Waiter()) is not None
    assert waiting.park([where], 1, 10.0, Waiter()) is None
    first.cancel()
    assert waiting.park([where], 1, 10.0, Waiter()) is not None


def test_one_that_fails_does_not_hold_up_the_others(clock):
    waiting, where, fine = DelayedRequests(clock), place(), Waiter()

    def failing(expired: bool) -> int:
        raise ValueError("a bug")

    waiting.park([where], 1, 10.0, failing).ready()
    waiting.park([where], 1, 10.0, fine).ready()
    with pytest.raises(ValueError, match="a bug"):
        clock.advance(0)
    clock.advance(0)
    assert fine.calls == [False]


def test_many_are_woken_over_several_turns(clock):
    waiting, where, waiters = DelayedRequests(clock), place(), [Waiter() for _ in range(1000)]
    for waiter in waiters:
        waiting.park([where], 1, 10.0, waiter).ready()
    clock.advance(0)
    assert all(waiter.calls == [False] for waiter in waiters)
    assert waiting.count == 0
