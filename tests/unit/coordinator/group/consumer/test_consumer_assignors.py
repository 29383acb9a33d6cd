"""The server-side assignors: everything assigned, evenly, to subscribers, with few moves, and fast."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator.group.consumer.assignors import assign_range, assign_uniform
from ottla.coordinator.group.consumer.member import Partitions
from ottla.coordinator.group.consumer.spec import GroupSpec, MemberSpec, SubscriptionType

TOPIC_IDS = [bytes([number]) * 16 for number in range(4)]
A, B, C = TOPIC_IDS[:3]

counts = st.dictionaries(st.sampled_from(TOPIC_IDS), st.integers(1, 12), min_size=1)
Groups = st.integers(1, 9)


def group(
    wants: dict[str, frozenset[bytes]],
    sizes: dict[bytes, int],
    had: dict[str, Partitions] | None = None,
    instances: dict[str, str] | None = None,
) -> GroupSpec:
    same = len(set(wants.values())) <= 1
    return GroupSpec(
        {
            member_id: MemberSpec(topics, (had or {}).get(member_id, {}), (instances or {}).get(member_id))
            for member_id, topics in wants.items()
        },
        SubscriptionType.HOMOGENEOUS if same else SubscriptionType.HETEROGENEOUS,
        sizes,
    )


def owners(assignment: dict[str, Partitions]) -> dict[tuple[bytes, int], str]:
    """Who has what; a partition with two owners fails here."""
    found: dict[tuple[bytes, int], str] = {}
    for member_id, partitions in assignment.items():
        for topic, numbers in partitions.items():
            assert numbers
            for number in numbers:
                assert found.setdefault((topic, number), member_id) == member_id
    return found


def loads(assignment: dict[str, Partitions]) -> list[int]:
    return sorted(sum(len(numbers) for numbers in partitions.values()) for partitions in assignment.values())


@given(sizes=counts, members=Groups, later=Groups)
def test_uniform_is_even_complete_and_sticky(sizes: dict[bytes, int], members: int, later: int) -> None:
    topics = frozenset(sizes)
    first = assign_uniform(group({f"m{n}": topics for n in range(members)}, sizes))
    total = sum(sizes.values())
    assert len(owners(first)) == total
    assert loads(first)[-1] - loads(first)[0] <= 1

    # The same again moves nothing.
    assert assign_uniform(group(dict.fromkeys(first, topics), sizes, first)) == first

    # With members gone or come, only what has to move does.
    second = assign_uniform(group({f"m{n}": topics for n in range(later)}, sizes, first))
    assert len(owners(second)) == total
    assert loads(second)[-1] - loads(second)[0] <= 1
    before, after = owners(first), owners(second)
    moved = sum(before[partition] != owner for partition, owner in after.items())
    if later >= members:
        # Newcomers get their share, and nothing moves between those who were there.
        assert all(
            before[partition] == owner or int(owner[1:]) >= members for partition, owner in after.items()
        )
    else:
        gone = sum(int(owner[1:]) >= later for owner in before.values())
        assert moved == gone


@given(
    sizes=st.just(dict.fromkeys(TOPIC_IDS, 0)).flatmap(
        lambda ids: st.fixed_dictionaries({topic: st.integers(1, 9) for topic in ids})
    ),
    wants=st.dictionaries(
        st.text("abcdef", min_size=1, max_size=2),
        st.frozensets(st.sampled_from(TOPIC_IDS)),
        min_size=1,
        max_size=7,
    ),
    drop=st.integers(0, 6),
)
def test_different_subscriptions_are_respected(
    sizes: dict[bytes, int], wants: dict[str, frozenset[bytes]], drop: int
) -> None:
    for assign in (assign_uniform, assign_range):
        first = assign(group(wants, sizes))
        _check(first, wants, sizes)
        fewer = {member_id: topics for n, (member_id, topics) in enumerate(wants.items()) if n != drop}
        _check(assign(group(fewer, sizes, first)), fewer, sizes)


def _check(
    assignment: dict[str, Partitions], wants: dict[str, frozenset[bytes]], sizes: dict[bytes, int]
) -> None:
    found = owners(assignment)
    wanted = frozenset[bytes]().union(*wants.values())
    assert set(found) == {(topic, number) for topic in wanted for number in range(sizes[topic])}
    assert all(topic in wants[owner] for (topic, _), owner in found.items())


def test_different_subscriptions_are_balanced() -> None:
    wants = {"a": frozenset([A]), "b": frozenset([A, B]), "c": frozenset([B])}
    assignment = assign_uniform(group(wants, {A: 6, B: 6}))
    assert loads(assignment) == [4, 4, 4]


def test_a_newcomer_with_another_subscription_is_given_what_others_have_too_much_of() -> None:
    wants = {"a": frozenset([A, B]), "b": frozenset([B])}
    alone = assign_uniform(group({"a": wants["a"]}, {A: 4, B: 4}))
    assignment = assign_uniform(group(wants, {A: 4, B: 4}, alone))
    assert assignment == {"a": {A: frozenset(range(4))}, "b": {B: frozenset(range(4))}}


def test_range_gives_neighbours_and_the_same_of_every_topic() -> None:
    topics = frozenset([A, B])
    assignment = assign_range(group({"x": topics, "y": topics, "z": topics}, {A: 7, B: 7}))
    for topic in topics:
        assert [sorted(assignment[member][topic]) for member in "xyz"] == [[0, 1, 2], [3, 4], [5, 6]]


def test_range_puts_static_members_first_by_their_instance() -> None:
    topics = frozenset([A])
    instances = {"z": "1", "y": "2"}
    assignment = assign_range(group(dict.fromkeys("xyz", topics), {A: 3}, instances=instances))
    assert {member: set(parts[A]) for member, parts in assignment.items()} == {"z": {0}, "y": {1}, "x": {2}}
    # Under a new member id the instance keeps its part.
    again = assign_range(group(dict.fromkeys("xy0", topics), {A: 3}, instances={"0": "1", "y": "2"}))
    assert again["0"] == assignment["z"]


def test_a_large_group_is_assigned_in_milliseconds() -> None:
    topics = frozenset([A])
    spec = group({f"m{number}": topics for number in range(500)}, {A: 1000})
    took = []
    for _ in range(5):
        start = time.thread_time()
        assignment = assign_uniform(spec)
        took.append(time.thread_time() - start)
    assert loads(assignment) == [2] * 500
    assert min(took) < 0.050
