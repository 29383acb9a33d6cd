"""The loop stays awake for one client that asks quickly, and for nobody else."""

import os

import pytest

from ottla.net.busy_poll import BUSY_POLL, BusyPoller, busy_poll
from ottla.testing.virtual_clock import VirtualClock

TURN_S = 0.000005


class Loop:
    """Runs what is called soon, one turn after the other, each of which takes some time."""

    def __init__(self):
        self.clock = VirtualClock()
        self.soon = []
        self.yields = 0
        self.busy_poll = BusyPoller(self.clock.monotonic, self.soon.append, self._let_others_run)

    def _let_others_run(self):
        self.yields += 1

    def ask(self, client, every_s, times=1):
        """Send requests at a steady pace. Returns the number of idle turns of the loop."""
        turns = 0
        for _ in range(times):
            self.busy_poll.asked(client, self.clock.monotonic())
            due = self.clock.monotonic() + every_s
            turns += self.turn_until(due)
            self.clock.advance(max(0.0, due - self.clock.monotonic()))
        return turns

    def turn_until(self, due):
        turns = 0
        while self.soon and self.clock.monotonic() < due:
            due_now, self.soon[:] = list(self.soon), []
            for callback in due_now:
                callback()
            turns += 1
            self.clock.advance(TURN_S)
        return turns


def test_a_quick_client_keeps_the_loop_awake():
    loop = Loop()
    loop.ask("a", 0.0002, 50)
    assert loop.ask("a", 0.0002) == pytest.approx(0.0002 / TURN_S, abs=1)
    assert loop.yields > 0


def test_a_few_quick_requests_do_not():
    loop = Loop()
    assert loop.ask("a", 0.0002, 10) == 0


def test_a_slow_client_does_not():
    loop = Loop()
    assert loop.ask("a", 0.0006, 200) == 0


def test_two_quick_clients_in_turns_do_not():
    loop = Loop()
    turns = 0
    for _ in range(200):
        turns += loop.ask("a", 0.0001) + loop.ask("b", 0.0001)
    assert turns == 0


def test_a_client_that_has_become_silent_is_waited_for_no_longer_than_a_moment():
    loop = Loop()
    loop.ask("a", 0.0002, 50)
    turns = loop.ask("a", 60.0)
    assert 1 < turns <= 0.0003 / TURN_S
    assert loop.soon == []


def test_a_client_that_slows_down_lets_the_loop_sleep_again():
    loop = Loop()
    loop.ask("a", 0.0002, 50)
    loop.ask("a", 0.0009, 50)
    assert loop.ask("a", 0.0009, 50) == 0


def test_a_clock_that_stands_still_does_not_keep_the_loop_awake():
    loop = Loop()
    for _ in range(100):
        loop.busy_poll.asked("a", 0.0)
    for _ in range(1000):
        due, loop.soon[:] = list(loop.soon), []
        for callback in due:
            callback()
    assert loop.soon == []


def test_it_can_be_turned_off(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    assert busy_poll(VirtualClock().monotonic, [].append) is not None
    monkeypatch.setenv(BUSY_POLL, "off")
    assert busy_poll(VirtualClock().monotonic, [].append) is None


def test_with_one_core_the_client_gets_it(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    assert busy_poll(VirtualClock().monotonic, [].append) is None
