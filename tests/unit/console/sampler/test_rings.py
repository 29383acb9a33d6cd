"""The ring of recent values."""

from __future__ import annotations

from ottla.console.sampler.rings import Ring


def test_values_come_back_in_order():
    ring = Ring(step_s=2.0, steps=5)
    for index in range(4):
        ring.put(100 + 2 * index, float(index))
    assert ring.values() == [0.0, 1.0, 2.0, 3.0]
    assert ring.newest_s == 106


def test_steps_that_nobody_sampled_have_the_next_value():
    ring = Ring(step_s=2.0, steps=10)
    ring.put(100, 1.0)
    ring.put(108, 5.0)
    assert ring.values() == [1.0, 5.0, 5.0, 5.0, 5.0]


def test_a_full_ring_forgets_the_oldest():
    ring = Ring(step_s=1.0, steps=3)
    for index in range(10):
        ring.put(index, float(index))
    assert ring.values() == [7.0, 8.0, 9.0]
    assert ring.values(2) == [8.0, 9.0]


def test_a_pause_longer_than_the_ring_fills_it():
    ring = Ring(step_s=1.0, steps=3)
    ring.put(1, 1.0)
    ring.put(1000, 7.0)
    assert ring.values() == [7.0, 7.0, 7.0]


def test_a_clock_that_goes_back_changes_nothing():
    ring = Ring(step_s=1.0, steps=3)
    ring.put(10, 1.0)
    ring.put(5, 9.0)
    assert ring.values() == [1.0]
