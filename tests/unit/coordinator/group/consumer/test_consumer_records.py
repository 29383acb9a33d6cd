"""Records of other versions: what an older or a newer coordinator has left is taken as it was meant."""

from __future__ import annotations

import pytest

from ottla.coordinator.group.consumer import records as write
from ottla.coordinator.group.consumer.member import ConsumerGroupMember, MemberState
from ottla.coordinator.records import CoordinatorRecord
from ottla.errors import ApiException, ErrorCode
from ottla.wire import messages
from unit.coordinator.group.consumer.consumer_rig import GROUP, Member, Rig, topic_id

FOO = topic_id("foo")


def replay(rig: Rig, *records: CoordinatorRecord) -> None:
    for record in records:
        rig.shard.replay(0, -1, -1, record)


def current(state: int) -> CoordinatorRecord:
    """An assignment as it was written before partitions had epochs of their own."""
    value = messages.ConsumerGroupCurrentMemberAssignmentValue
    return CoordinatorRecord(
        messages.ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id="a"),
        value(
            member_epoch=5,
            previous_member_epoch=4,
            state=state,
            assigned_partitions=[value.TopicPartitions(topic_id=FOO, partitions=[0, 1])],
        ),
    )


def test_partitions_without_epochs_count_from_the_members_epoch() -> None:
    rig = Rig({"foo": 2})
    replay(rig, current(0))
    assert rig.group.members["a"].assigned == {FOO: {0: 5, 1: 5}}
    assert rig.group.is_owned(FOO, 1)


def test_a_member_in_a_state_of_a_later_version_starts_from_nothing() -> None:
    rig = Rig({"foo": 2})
    member = ConsumerGroupMember("a", topic_names=frozenset(["foo"]), rebalance_timeout_ms=1000)
    replay(
        rig,
        write.member_subscription(GROUP, member),
        write.group_epoch(GROUP, 5, 1),
        write.target_assignment(GROUP, "a", {FOO: frozenset([0, 1])}),
        write.target_epoch(GROUP, 5, 0),
        current(9),
    )
    assert rig.group.members["a"].state is MemberState.UNKNOWN
    with pytest.raises(ApiException) as refused:
        rig.heartbeat(member_id="a", member_epoch=5)
    assert refused.value.code is ErrorCode.FENCED_MEMBER_EPOCH
    again = Member(rig, "a", ["foo"])
    again.join()
    assert rig.group.members["a"].state is MemberState.STABLE


def test_the_metadata_record_of_kafka_4_0_is_cleared_away() -> None:
    rig = Rig({"foo": 1})
    key = messages.ConsumerGroupPartitionMetadataKey(group_id=GROUP)
    replay(rig, CoordinatorRecord(key, messages.ConsumerGroupPartitionMetadataValue()))
    assert rig.group.has_partition_metadata
    Member(rig, "a", ["foo"]).join()
    assert not rig.group.has_partition_metadata


def test_a_compacted_log_may_show_two_holders_for_a_while() -> None:
    """Of a member that gave a partition up, came back and left, only what it had first may be left to read."""
    rig = Rig({"foo": 2})
    owned = {FOO: {0: 3}}
    replay(rig, write.current_assignment(GROUP, ConsumerGroupMember("a", epoch=4, assigned=owned)))
    replay(rig, write.current_assignment(GROUP, ConsumerGroupMember("b", epoch=2, assigned=owned)))
    replay(rig, write.current_assignment(GROUP, ConsumerGroupMember("a", epoch=5)))
    assert rig.group.is_owned(FOO, 0)
    replay(rig, write.current_assignment(GROUP, ConsumerGroupMember("b", epoch=5)))
    assert not rig.group.is_owned(FOO, 0)


def test_tombstones_of_groups_that_are_gone_do_nothing() -> None:
    rig = Rig()
    replay(rig, *write.group_tombstones(GROUP, ["a"], ["x.*"]))
    assert rig.shard.groups.get(GROUP) is None
