"""The gate in front of clients' writes: when it closes and opens, whom it calls, and that nobody waits for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.log.write_gate import (
    CLOSE_AT,
    LONGEST_WAIT_S,
    LOOK_EACH_S,
    OPEN_AT,
    SHORTEST_WAIT_S,
    STEP_BYTES,
    WriteGate,
)
from ottla.server.page_cache import page_cache_probe
from ottla.testing.virtual_clock import VirtualClock


class Cache:
    """A page cache as full as the test says."""

    def __init__(self) -> None:
        self.full = 0.0
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        return self.full


@pytest.fixture
def cache() -> Cache:
    return Cache()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def gate(clock: VirtualClock, cache: Cache) -> WriteGate:
    return WriteGate(clock, cache)


def test_it_looks_once_for_every_step(gate: WriteGate, cache: Cache) -> None:
    piece = STEP_BYTES // 8
    assert all(gate.admits(piece) for _ in range(80))
    assert cache.looks == pytest.approx(10, abs=1)


def test_without_a_probe_everything_passes(clock: VirtualClock) -> None:
    gate = WriteGate(clock, None)
    assert all(gate.admits(100 << 20) for _ in range(1000))


def test_it_closes_when_the_cache_is_full_and_opens_at_the_lower_mark(
    gate: WriteGate, cache: Cache, clock: VirtualClock
) -> None:
    woken: list[str] = []
    cache.full = CLOSE_AT
    assert not gate.admits(1)
    gate.wait(lambda: woken.append("first"))
    gate.wait(lambda: woken.append("second"))
    cache.full = (CLOSE_AT + OPEN_AT) / 2
    clock.advance(10 * LOOK_EACH_S)
    assert not gate.admits(1)
    assert woken == []
    cache.full = OPEN_AT - 0.01
    clock.advance(LOOK_EACH_S)
    assert woken == ["first", "second"]
    assert gate.admits(1)
    assert gate.waiting == 0


def test_nobody_waits_longer_than_the_bound_and_a_wait_in_vain_is_halved(
    gate: WriteGate, cache: Cache, clock: VirtualClock
) -> None:
    cache.full = 2.0
    bound = LONGEST_WAIT_S
    for _ in range(20):
        woken: list[float] = []
        assert not gate.admits(1)
        gate.wait(lambda woken=woken: woken.append(clock.monotonic()))  # type: ignore[misc]
        began = clock.monotonic()
        clock.advance(bound + LOOK_EACH_S)
        (at,) = woken
        assert at - began <= bound + LOOK_EACH_S
        assert gate.admits(STEP_BYTES - 1), "some are let through"
        bound = max(bound / 2, SHORTEST_WAIT_S)
    assert bound == SHORTEST_WAIT_S
    assert not gate.admits(1)
    cache.full = 0.0
    clock.advance(LOOK_EACH_S)
    cache.full = 2.0
    assert not gate.admits(1)
    clock.advance(LONGEST_WAIT_S / 2)
    assert not gate.admits(1), "a wait that helped makes the next one as long as the first"


def test_whoever_is_gone_is_not_called(gate: WriteGate, cache: Cache, clock: VirtualClock) -> None:
    woken: list[str] = []
    cache.full = 1.0
    assert not gate.admits(1)

    def gone() -> None:
        woken.append("gone")

    gate.wait(gone)
    gate.forget(gone)
    cache.full = 0.0
    clock.advance(LOOK_EACH_S)
    assert woken == []


def test_a_busy_file_closes_it_until_all_are_done(gate: WriteGate, clock: VirtualClock) -> None:
    assert gate.admits(1)
    woken: list[str] = []
    gate.hold()
    gate.hold()
    assert not gate.admits(1)
    gate.wait(lambda: woken.append("woken"))
    gate.release()
    assert not gate.admits(1)
    gate.release()
    assert woken == ["woken"]
    assert gate.admits(1)


def test_a_file_that_stays_busy_does_not_close_it_for_ever(gate: WriteGate, clock: VirtualClock) -> None:
    gate.hold()
    assert not gate.admits(1)
    woken: list[str] = []
    gate.wait(lambda: woken.append("woken"))
    clock.advance(LONGEST_WAIT_S + LOOK_EACH_S)
    assert woken == ["woken"]
    assert gate.admits(1)
    assert not gate.admits(STEP_BYTES)
    gate.release()
    assert gate.admits(1)


def test_a_release_does_not_open_it_while_the_cache_is_full(
    gate: WriteGate, cache: Cache, clock: VirtualClock
) -> None:
    cache.full = 1.0
    assert not gate.admits(1)
    gate.hold()
    gate.release()
    assert not gate.admits(1)


def test_a_probe_that_fails_opens_it(clock: VirtualClock) -> None:
    answers = [0.0, 1.0]

    def probe() -> float:
        if not answers:
            raise OSError("gone")
        return answers.pop(0)

    gate = WriteGate(clock, probe)
    assert gate.admits(1)
    assert not gate.admits(STEP_BYTES)
    clock.advance(LOOK_EACH_S)
    assert gate.admits(100 << 30)


def test_a_stopped_one_calls_nobody(gate: WriteGate, cache: Cache, clock: VirtualClock) -> None:
    cache.full = 1.0
    assert not gate.admits(1)
    gate.wait(lambda: pytest.fail("called after the end"))
    gate.stop()
    clock.advance(10)


def test_the_system_tells_how_full_its_cache_is(tmp_path: Path) -> None:
    vmstat = tmp_path / "vmstat"
    vmstat.write_text(
        "nr_free_pages 7\nnr_dirty 200\nnr_writeback 100\nnr_writeback_temp 9\n"
        "nr_dirty_threshold 800\nnr_dirty_background_threshold 400\npgfault 1\n"
    )
    probe = page_cache_probe(str(vmstat))
    assert probe is not None
    assert probe() == 0.5


@pytest.mark.parametrize("content", [None, "", "nr_free_pages 7\nnr_dirty 1\n"])
def test_where_the_system_does_not_tell_there_is_no_probe(tmp_path: Path, content: str | None) -> None:
    vmstat = tmp_path / "vmstat"
    if content is not None:
        vmstat.write_text(content)
    assert page_cache_probe(str(vmstat)) is None
