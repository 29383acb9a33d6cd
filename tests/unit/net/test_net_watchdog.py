"""The watchdog of the event loop: lateness is found, punctuality is not."""

import asyncio
import json
import os
import time

import pytest

from ottla.cli.start import _watched_loop
from ottla.clock import SystemClock
from ottla.net.watchdog import FINE_INTERVAL_S, LoopWatchdog, StackWatch
from ottla.testing.virtual_clock import VirtualClock


class HeldClock(VirtualClock):
    """A clock whose timers come late by as much as something `holds` the loop."""

    __slots__ = ("held_s",)

    def __init__(self):
        super().__init__()
        self.held_s = 0.0

    def call_later(self, delay_s, callback, *args):
        return super().call_later(delay_s + self.held_s, callback, *args)


def test_a_loop_that_keeps_its_time_has_no_stalls():
    clock = HeldClock()
    watchdog = LoopWatchdog(clock)
    watchdog.start()
    clock.advance(5.0)
    assert watchdog.findings() == {"longest_s": pytest.approx(0.0, abs=1e-9), "stalls": [], "stacks": []}


def test_a_stall_is_kept_with_its_time_and_length():
    clock = HeldClock()
    ran = {0.0: 1.0, 0.01: 1.0, 0.1: 1.06}  # what the thread has used, by the time
    watchdog = LoopWatchdog(
        clock, interval_s=FINE_INTERVAL_S, ran_s=lambda: ran.get(round(clock.monotonic(), 3), 1.06)
    )
    watchdog.start()
    clock.held_s = 0.08
    clock.advance(0.015)
    clock.held_s = 0.0
    clock.advance(1.0)
    assert watchdog.findings() == {
        "longest_s": pytest.approx(0.08),
        "stalls": [{"at": pytest.approx(0.1), "seconds": pytest.approx(0.08), "ran_s": pytest.approx(0.06)}],
        "stacks": [],
    }


def test_time_without_a_core_is_not_the_loops_fault():
    clock = HeldClock()
    waited = iter((0.0, *(0.05 for _ in range(1000))))
    watchdog = LoopWatchdog(clock, lambda: next(waited))
    clock.held_s = 0.08
    watchdog.start()
    clock.held_s = 0.0
    clock.advance(1.0)
    assert [stall.seconds for stall in watchdog.stalls] == [pytest.approx(0.03)]


def test_a_stopped_watchdog_looks_no_more():
    clock = HeldClock()
    watchdog = LoopWatchdog(clock)
    clock.held_s = 1.0
    watchdog.start()
    watchdog.stop()
    clock.advance(5.0)
    assert watchdog.longest_s == 0.0


def test_a_long_stall_leaves_the_stack_of_the_loop_once():
    clock = HeldClock()
    watchdog = LoopWatchdog(clock)
    stacks = StackWatch(watchdog, clock)
    clock.held_s = 10.0
    watchdog.start()
    stacks.look()
    assert not watchdog.stacks
    clock.advance(1.0)
    stacks.look()
    stacks.look()
    (stack,) = watchdog.stacks
    assert stack.late_s == pytest.approx(0.95)
    assert "test_a_long_stall_leaves_the_stack_of_the_loop_once" in " ".join(stack.frames)


def test_stalls_are_counted_by_their_length():
    clock = HeldClock()
    watchdog = LoopWatchdog(clock)
    clock.held_s = 0.3
    watchdog.start()
    clock.held_s = 0.0
    clock.advance(1.0)
    assert watchdog.delays.count == 1
    assert watchdog.delays.sum_s == pytest.approx(0.3)


def test_the_thread_takes_the_stack_while_the_loop_is_held_up():
    async def held() -> tuple[str, ...]:
        clock = SystemClock()
        watchdog = LoopWatchdog(clock)
        stacks = StackWatch(watchdog, clock)
        watchdog.start()
        stacks.start()
        try:
            until = time.monotonic() + 30
            while not watchdog.stacks and time.monotonic() < until:
                pass
        finally:
            watchdog.stop()
            stacks.stop()
        (stack,) = watchdog.stacks
        return stack.frames

    assert any(frame.endswith(" held") for frame in asyncio.run(held()))


def test_each_process_writes_what_it_found_into_the_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("OTTLA_LOOP_WATCHDOG", str(tmp_path))
    with _watched_loop() as watchdog:
        watchdog.longest_s = 0.5
    assert json.loads((tmp_path / f"{os.getpid()}.json").read_text())["longest_s"] == 0.5
    monkeypatch.setenv("OTTLA_LOOP_WATCHDOG", str(tmp_path / "one-file"))
    with _watched_loop():
        pass
    assert (tmp_path / "one-file").exists()
