"""Where replicas go when a topic moves or a broker is emptied, and how fast a move is."""

from __future__ import annotations

from array import array

import pytest

from ottla.console import moving
from ottla.console.sampler.state import TopicState


def topic(name, replicas, sizes=()):
    made = TopicState(name=name, topic_id=bytes(16), internal=False)
    made.replicas = replicas
    made.leaders = [each[0] for each in replicas]
    made.sizes = array("q", sizes)
    return made


def test_a_topic_is_spread_in_turn_and_what_is_there_already_stays():
    orders = topic("orders", [[1, 2], [2, 3], [1, 3]])
    assert moving.spread_out("orders", orders, [1, 2, 3], 2) == {}
    assert moving.spread_out("orders", orders, [4, 5], 1) == {
        ("orders", 0): [4],
        ("orders", 1): [5],
        ("orders", 2): [4],
    }


def test_an_emptied_broker_gives_to_those_that_have_least_and_keeps_the_order_of_replicas():
    topics = {"a": topic("a", [[1, 2], [2, 1], [3, 2]]), "b": topic("b", [[1], [1]])}
    wanted = moving.emptied(topics, 1, [2, 3, 4], {})
    assert wanted == {("a", 0): [4, 2], ("a", 1): [2, 3], ("b", 0): [4], ("b", 1): [3]}
    assert all(1 not in each for each in wanted.values())


def test_an_emptied_broker_gives_to_another_rack_than_the_other_replicas_are_in():
    topics = {"a": topic("a", [[1, 2]])}
    racks = {1: "x", 2: "y", 3: "y", 4: "x"}
    assert moving.emptied(topics, 1, [2, 3, 4], racks) == {("a", 0): [4, 2]}


def test_a_partition_that_is_everywhere_already_has_no_room():
    with pytest.raises(moving.NoRoom, match="a-0"):
        moving.emptied({"a": topic("a", [[1, 2]])}, 1, [2], {})


def test_loads_before_and_after_and_the_bytes_that_are_copied():
    topics = {"a": topic("a", [[1, 2], [2, 1]], (100, 10))}
    wanted = {("a", 0): [3, 2]}
    assert moving.loads(topics, {}, [1, 2, 3])[1] == moving.Load(2, 1, 110)
    after = moving.loads(topics, wanted, [1, 2, 3])
    assert (after[1], after[3]) == (moving.Load(1, 0, 10), moving.Load(1, 1, 100))
    assert moving.copied(topics, wanted) == 100


def test_pace_is_of_the_looks_that_are_kept():
    assert moving.pace([(1.0, 10)], 100) is None
    assert moving.pace([(1.0, 10), (3.0, 10)], 100) is None
    assert moving.pace([(1.0, 10), (2.0, 20), (3.0, 50)], 100) == (20.0, 2.5)
