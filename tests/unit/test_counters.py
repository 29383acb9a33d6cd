"""Counters and histograms: what is added is found again, and steps are never coarser than a quarter."""

from itertools import pairwise

import pytest

from ottla.counters import (
    STEPS,
    Histogram,
    ListenerCounters,
    NodeCounters,
    RequestCounters,
    TopicCounters,
    lower_bound_s,
    quantile_s,
)


def test_steps_begin_where_the_last_one_ended_and_grow_by_a_quarter_at_most():
    bounds = [lower_bound_s(step) for step in range(STEPS + 1)]
    assert bounds == sorted(bounds)
    assert all(above / below <= 1.25 + 1e-9 for below, above in pairwise(bounds[4:]))


@pytest.mark.parametrize("micros", [0, 1, 3, 4, 5, 7, 8, 100, 999, 12_345, 1_000_000, 3_600_000_000])
def test_a_duration_is_counted_in_its_step(micros):
    histogram = Histogram()
    histogram.add(micros / 1e6 + 1e-9)
    (step,) = [step for step, count in enumerate(histogram.counts) if count]
    assert lower_bound_s(step) <= micros / 1e6 + 1e-9 < lower_bound_s(step + 1)


def test_durations_beyond_the_last_step_and_below_zero_are_counted_too():
    histogram = Histogram()
    histogram.add(1e9)
    histogram.add(-0.5)
    assert histogram.count == 2
    assert histogram.counts[-1] == histogram.counts[0] == 1


def test_quantiles_lie_in_the_step_of_their_rank():
    histogram = Histogram()
    for micros in range(1, 1001):
        histogram.add(micros / 1e6)
    assert quantile_s(histogram.counts, 0.5) == pytest.approx(0.0005, rel=0.15)
    assert quantile_s(histogram.counts, 0.99) == pytest.approx(0.00099, rel=0.15)
    assert quantile_s(Histogram().counts, 0.5) == 0.0


def test_one_request_in_64_is_sampled_beginning_with_the_first():
    counters = RequestCounters(0)
    assert [n for n in range(200) if counters.sampled()] == [0, 64, 128, 192]


def test_fetches_of_followers_have_counters_of_their_own():
    node = NodeCounters()
    fetch = node.request(1, with_followers=True)
    assert fetch.follower is not None and fetch.follower is not fetch
    assert node.request(1) is fetch
    assert node.request(0).follower is None
    assert [each.key for each in node.requests] == [0, 1]


def test_counters_of_topics_add_up():
    total, topic = TopicCounters(), TopicCounters()
    topic.bytes_in, topic.failed_fetches = 7, 2
    total.add(topic)
    total.add(topic)
    assert (total.bytes_in, total.failed_fetches, total.messages_in) == (14, 4, 0)


def test_connections_are_counted_by_library_and_forgotten_with_the_last() -> None:
    counters = ListenerCounters()
    for change in (1, 1, -1):
        counters.count_software(("librdkafka", "2.16.0"), change)
    counters.count_software(("unknown", "unknown"), 1)
    assert counters.software == {("librdkafka", "2.16.0"): 1, ("unknown", "unknown"): 1}
    counters.count_software(("librdkafka", "2.16.0"), -1)
    assert counters.software == {("unknown", "unknown"): 1}
