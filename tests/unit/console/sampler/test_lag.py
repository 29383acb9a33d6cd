"""How far groups are behind, from the state alone; and that idle groups and topics cost no memory."""

from __future__ import annotations

import gc
from array import array

from ottla.console import exporter, garbage
from ottla.console.pages.groups import lag_lines
from ottla.console.sampler import lag
from ottla.console.sampler.samples import Offsets, pairs
from ottla.console.sampler.state import ClusterState, GroupState, TopicState


def world(ends, committed, starts=None):
    """A cluster with a group that has committed offsets; `ends` are columns by topic."""
    state = ClusterState("test")
    topics = {}
    for name, column in ends.items():
        topics[name] = TopicState(name, "id", False, leaders=[1] * len(column))
        topics[name].ends = array("q", column)
        topics[name].starts = array("q", (starts or {}).get(name, [0] * len(column)))
        topics[name].replicas = topics[name].isr = [(1,)] * len(column)
    state.set_topics(topics)
    group = GroupState("app", "Consumer", "consumer", "Stable", members=1)
    group.committed = dict(sorted(committed.items()))
    state.groups = {"app": group}
    return state, group


def test_lag_of_a_group_in_all_and_by_topic():
    state, group = world({"a": [10, 20], "b": [5]}, {("a", 0): 4, ("a", 1): 25, ("b", 0): 5, ("gone", 0): 1})
    lag.note(state, group, 0.0)
    lag.by_topic(state)
    assert group.lag == 6
    assert state.topic_lags == {"a": {"app": 6}, "b": {"app": 0}}
    state.topics["a"].ends = array("q", [14, 20])
    lag.note(state, group, 15.0)
    lag.by_topic(state)
    assert (group.lag, state.topic_lags["a"]) == (10, {"app": 10})


def test_the_exporter_tells_the_lag_in_seconds_and_the_time_to_loss():
    state, group = world({"a": [10, 20, 7], "b": [9]}, {("a", 0): 4, ("a", 1): 20, ("a", 2): 1, ("b", 0): 4})
    topic = state.topics["a"]
    # At 100 s the first partition stood at 0, at 160 s at 10: the end passed the committed offset at 124 s.
    for moment_s, ends in ((100.0, [0, 0, 5]), (160.0, [10, 20, 7])):
        topic.past_ends.append((moment_s, array("q", ends)))
    lag.note(state, group, 184.0)
    state.taken_s = 184.0
    found = {partition: seconds for partition, _, seconds in lag.behind_by_partition(state, group, 184.0)}
    assert found == {("a", 0): 60.0, ("a", 1): 0.0, ("a", 2): None, ("b", 0): None}
    topic.keep_ms = 3_600_000
    ours = {name: rows for name, _, rows in exporter.own(state)}
    (row,) = ours["ottla_consumergroup_time_to_loss_seconds"]
    assert row == ({"cluster": "test", "consumergroup": "app"}, 3540.0)
    theirs = {name: rows for name, _, rows in exporter.lag_exporter(state)}
    assert [value for _, value in theirs["kafka_consumergroup_group_lag_seconds"]] == [60.0, 0.0]
    assert [value for _, value in theirs["kafka_consumergroup_group_offset"]] == [4, 20, 1, 4]


def test_the_chart_of_a_group_has_a_line_for_each_topic_of_several():
    state, group = world({"a": [10], "b": [9]}, {("a", 0): 4, ("b", 0): 9})
    lag.note(state, group, 0.0)
    state.topics["b"].ends = array("q", [20])
    lag.note(state, group, 15.0)
    assert lag_lines(group) == [("b", [0, 11]), ("a", [6, 6])]
    state, group = world({"a": [10]}, {("a", 0): 4})
    lag.note(state, group, 0.0)
    assert lag_lines(group) == [("lag", [6.0])]


def test_partitions_that_no_broker_told_of_count_for_nothing():
    # The topic was made again with fewer partitions, and the leader of one has not answered yet.
    state, group = world({"a": [-1, 20]}, {("a", 0): 4, ("a", 1): 15, ("a", 5): 7})
    lag.note(state, group, 0.0)
    (sample,) = group.samples
    assert (group.lag, dict(sample.ends.items()), len(sample.ends)) == (5, {("a", 1): 20}, 1)
    assert ("a", 0) not in sample.ends and sample.ends.get(("a", 5)) is None


def test_samples_of_an_idle_group_share_their_columns():
    state, group = world({"a": [10, 20]}, {("a", 0): 10, ("a", 1): 20})
    for moment in range(50):
        lag.note(state, group, moment * 15.0)
    assert [each.sentence for each in group.findings] == ["It has read everything."]
    assert len({id(sample.committed) for sample in group.samples}) == 1
    assert len({id(sample.ends) for sample in group.samples}) == 1
    group.committed = {("a", 0): 8, ("a", 1): 20}
    lag.note(state, group, 750.0)
    assert (group.samples[-1].back, group.samples[-1].moved, group.lag) == (2, True, 2)
    assert "rewound" in [each.rule for each in group.findings]


def test_a_group_with_other_partitions_gets_other_places():
    state, group = world({"a": [10, 20]}, {("a", 0): 10})
    lag.note(state, group, 0.0)
    group.committed = {("a", 0): 10, ("a", 1): 5}
    lag.note(state, group, 15.0)
    before, now = group.samples
    assert (before.lag, now.lag, now.moved) == (0, 15, True)
    assert list(pairs(before.committed, now.committed)) == [(("a", 0), 10, 10)]


def test_offsets_are_a_mapping_like_others():
    places = {("a", 0): 0, ("a", 1): 1}
    offsets = Offsets(places, array("q", [3, -1]))
    assert dict(offsets) == {("a", 0): 3} == offsets
    assert offsets == Offsets(dict(places), array("q", [3, -1])) != Offsets(places, array("q", [4, -1]))


def test_the_collector_waits_for_a_round_and_works_after_it():
    with garbage.held_back():
        assert not gc.isenabled()
    assert gc.isenabled()
