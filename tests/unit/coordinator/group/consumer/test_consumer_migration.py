"""Groups move from the classic to the consumer protocol and back, member by member, without a stop."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.coordinator.group.classic.group import ClassicGroup
from ottla.coordinator.group.classic.rebalance import SHORTEST_FORMING_MS
from ottla.coordinator.group.classic.state import ClassicState
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.errors import ApiException, ErrorCode
from unit.coordinator.group.consumer.consumer_classic_client import ClassicClient
from unit.coordinator.group.consumer.consumer_rig import GROUP, Member, Rig, settle, snapshot, topic_id


def refused(code: ErrorCode) -> pytest.RaisesExc[ApiException]:
    return pytest.RaisesExc(ApiException, check=lambda error: error.code is code)


def classic_group(rig: Rig, **options: Any) -> ClassicClient:
    """A stable classic group of one member that has all four partitions of foo."""
    client = ClassicClient(rig, ["foo"], **options)
    client.join()
    rig.clock.advance_ms(SHORTEST_FORMING_MS)
    group = rig.shard.groups.get(GROUP)
    assert isinstance(group, ClassicGroup)
    (client.member_id,) = group.members
    client.generation = group.generation
    client.sync({client.member_id: {"foo": [0, 1, 2, 3]}})
    assert group.state is ClassicState.STABLE
    assert len(client.owned["foo"]) == 4
    return client


def settle_mixed(rig: Rig, new: list[Member], old: list[ClassicClient]) -> None:
    for _ in range(10):
        for member in new:
            member.beat()
        for client in old:
            client.step()
        rig.clock.advance_ms(1000)
    assert rig.group.state_name == "Stable"


def test_a_member_of_the_new_protocol_upgrades_the_group() -> None:
    rig = Rig({"foo": 4})
    old = classic_group(rig)
    new = Member(rig, "n", ["foo"])

    new.join()

    assert isinstance(rig.shard.groups.get(GROUP), ConsumerGroup)
    assert rig.group.members[old.member_id].uses_classic_protocol
    epoch = rig.group.epoch
    assert epoch == old.generation + 1
    # The old member still has everything; it hears of the rebalance with its next heartbeat.
    assert new.partitions == set()
    assert old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert snapshot(rig.reload(compacted=True)) == snapshot(rig.shard)

    settle_mixed(rig, [new], [old])
    assert len(new.partitions) == len(old.partitions) == 2
    assert not new.partitions & old.partitions
    assert rig.group.epoch == old.generation == new.epoch == epoch, (
        "no step of a migration starts another epoch"
    )


def test_a_classic_member_takes_what_is_free_only() -> None:
    rig = Rig({"foo": 4})
    new = Member(rig, "n", ["foo"])
    new.join()
    rig.clock.advance_ms(1000)
    old = ClassicClient(rig, ["foo"])
    old.join()
    old.sync()
    assert old.partitions == set()
    assert new.partitions == {(topic_id("foo"), number) for number in range(4)}

    settle_mixed(rig, [new], [old])
    assert len(new.partitions) == len(old.partitions) == 2
    described = rig.shard.consumer.describe(GROUP)
    assert {member.member_id: member.member_type for member in described.members} == {
        "n": 1,
        old.member_id: 0,
    }


def test_the_group_is_classic_again_when_the_last_new_member_leaves() -> None:
    rig = Rig({"foo": 4})
    old = classic_group(rig)
    new = Member(rig, "n", ["foo"])
    new.join()
    settle_mixed(rig, [new], [old])
    epoch = rig.group.epoch

    new.leave()

    group = rig.shard.groups.get(GROUP)
    assert isinstance(group, ClassicGroup)
    assert group.state is ClassicState.PREPARING_REBALANCE
    assert group.generation == epoch
    assert list(group.members) == [old.member_id]
    # Replaying the log gives the same group, without the rebalance that is under way.
    loaded = rig.reload(compacted=True).groups.get(GROUP)
    assert isinstance(loaded, ClassicGroup)
    assert (loaded.generation, list(loaded.members)) == (epoch, [old.member_id])
    assert len(rig.reload().groups) == 1

    # The old member joins again and leads the group from now on.
    assert old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    response = old.join()
    assert response.leader == old.member_id
    old.sync({old.member_id: {"foo": [0, 1, 2, 3]}})
    assert len(old.partitions) == 4
    assert old.heartbeat() is ErrorCode.NONE


def test_a_silent_new_member_brings_the_downgrade_too() -> None:
    rig = Rig({"foo": 4})
    old = classic_group(rig)
    new = Member(rig, "n", ["foo"])
    new.join()
    settle_mixed(rig, [new], [old])
    for _ in range(10):
        rig.clock.advance_ms(5000)
        old.heartbeat()
    assert isinstance(rig.shard.groups.get(GROUP), ClassicGroup)


def test_a_rolling_restart_upgrades_everyone() -> None:
    rig = Rig({"foo": 4})
    old = classic_group(rig)
    first = Member(rig, "n1", ["foo"])
    first.join()
    settle_mixed(rig, [first], [old])
    old.leave()
    second = Member(rig, "n2", ["foo"])
    second.join()
    settle(rig, [first, second])
    assert rig.group.classic_member_count == 0
    assert len(first.partitions) == len(second.partitions) == 2


def test_a_static_member_keeps_its_partitions_when_it_changes_protocol() -> None:
    rig = Rig({"foo": 4})
    old = classic_group(rig, instance_id="i")
    had = old.partitions

    new = Member(rig, "n", ["foo"], instance_id="i")
    new.join()
    assert new.partitions == had
    assert list(rig.group.members) == ["n"]
    # The one before is fenced.
    assert old.heartbeat() is ErrorCode.FENCED_INSTANCE_ID

    # And back again: the last of the new protocol is replaced by a classic one.
    new.leave(-2)
    back = ClassicClient(rig, ["foo"], instance_id="i")
    response = back.join()
    assert not response.error_code
    group = rig.shard.groups.get(GROUP)
    assert isinstance(group, ClassicGroup)
    back.sync()
    assert back.partitions == had
    loaded = rig.reload(compacted=True).groups.get(GROUP)
    assert isinstance(loaded, ClassicGroup)
    assert list(loaded.members) == [back.member_id]


def test_a_classic_member_that_waits_is_sent_away_by_the_upgrade() -> None:
    rig = Rig({"foo": 4}, group_initial_rebalance_delay_ms="3000")
    old = ClassicClient(rig, ["foo"])
    old.join()
    assert old.waiting is not None
    answers: list[Any] = []
    old.waiting.then(answers.append, answers.append)

    Member(rig, "n", ["foo"]).join()

    assert [answer.error_code for answer in answers] == [ErrorCode.REBALANCE_IN_PROGRESS]
    assert not old.join().error_code
    assert set(rig.group.members) == {"n", old.member_id}


def test_a_classic_member_that_does_not_come_back_is_fenced() -> None:
    rig = Rig({"foo": 4})
    old = classic_group(rig)
    new = Member(rig, "n", ["foo"])
    new.join()
    for _ in range(61):
        # It lives, but it does not join.
        assert old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
        new.beat()
        rig.clock.advance_ms(1000)
        if old.member_id not in rig.group.members:
            break
    assert old.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    new.beat()
    assert len(new.partitions) == 4


def test_classic_members_are_held_to_their_generation() -> None:
    rig = Rig({"foo": 4})
    Member(rig, "n", ["foo"]).join()
    old = ClassicClient(rig, ["foo"])
    old.join()
    old.generation += 1
    assert old.heartbeat() is ErrorCode.ILLEGAL_GENERATION
    with refused(ErrorCode.ILLEGAL_GENERATION):
        old.sync()
    with refused(ErrorCode.ILLEGAL_GENERATION):
        rig.group.validate_offset_commit(old.member_id, None, old.generation, 8, False)
    old.member_id = "n"
    assert old.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_without_leave_to_upgrade_the_new_member_is_refused(policy: str) -> None:
    rig = Rig({"foo": 4}, group_consumer_migration_policy=policy)
    old = classic_group(rig)
    with refused(ErrorCode.GROUP_ID_NOT_FOUND):
        Member(rig, "n", ["foo"]).join()
    assert old.heartbeat() is ErrorCode.NONE


def test_without_leave_to_migrate_a_classic_member_is_refused() -> None:
    rig = Rig({"foo": 4}, group_consumer_migration_policy="disabled")
    Member(rig, "n", ["foo"]).join()
    with refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL):
        ClassicClient(rig, ["foo"]).join()


def test_without_leave_to_downgrade_the_group_stays() -> None:
    rig = Rig({"foo": 4}, group_consumer_migration_policy="upgrade")
    old = classic_group(rig)
    new = Member(rig, "n", ["foo"])
    new.join()
    settle_mixed(rig, [new], [old])
    new.leave()
    rig.clock.advance_ms(1000)
    assert isinstance(rig.shard.groups.get(GROUP), ConsumerGroup)


def test_an_assignor_of_its_own_keeps_a_group_classic() -> None:
    rig = Rig({"foo": 4})
    old = ClassicClient(rig, ["foo"])
    old.join()
    rig.clock.advance_ms(SHORTEST_FORMING_MS)
    group = rig.shard.groups.get(GROUP)
    assert isinstance(group, ClassicGroup)
    old.generation = group.generation
    old.user_data = b"mine"
    old.sync({old.member_id: {"foo": [0]}})
    with pytest.raises(ApiException) as refusal:
        Member(rig, "n", ["foo"]).join()
    assert refusal.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert refusal.value.message == (
        f"Cannot upgrade classic group {GROUP} to consumer group because an unsupported custom assignor is in use. "
        "Please refer to the documentation or switch to a default assignor before re-attempting the upgrade."
    )
    assert rig.shard.groups.get(GROUP) is group


def test_empty_groups_take_either_protocol() -> None:
    rig = Rig({"foo": 4})
    old = classic_group(rig)
    old.leave()
    new = Member(rig, "n", ["foo"])
    new.join()
    assert list(rig.group.members) == ["n"]
    assert len(new.partitions) == 4
    new.leave()
    classic_group(rig)
    loaded = rig.reload(compacted=True).groups.get(GROUP)
    assert isinstance(loaded, ClassicGroup)
