"""Classic groups, step by step: joining, syncing, leaving, failing, coming back, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.config.broker import BrokerConfig
from ottla.coordinator.group.classic.state import ClassicState
from ottla.errors import ApiException, ErrorCode
from ottla.java_order import java_set_order
from unit.coordinator.coordinator_rig import GroupRig, subscription


@pytest.fixture
def rig() -> GroupRig:
    return GroupRig()


# -- forming


def test_a_dynamic_member_is_given_its_id_first(rig: GroupRig) -> None:
    refusal = rig.join(client_id="client").get()
    assert refusal.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert refusal.member_id.startswith("client-")
    joined = rig.join(refusal.member_id).get()
    assert (joined.error_code, joined.generation_id) == (0, 1)
    assert joined.leader == joined.member_id == refusal.member_id
    assert [member.member_id for member in joined.members] == [refusal.member_id]


def test_old_clients_join_in_one_step(rig: GroupRig) -> None:
    joined = rig.join(version=3).get()
    assert (joined.error_code, joined.generation_id) == (0, 1)


def test_the_first_rebalance_waits_for_more_members() -> None:
    rig = GroupRig(group_initial_rebalance_delay_ms=3000)
    first_id, first = rig.join_new()
    rig.clock.advance(2.9)
    second_id, second = rig.join_new()
    rig.clock.advance(0.2)
    assert not first.there, "a member came: wait as long again"
    rig.clock.advance(3)
    assert first.get().generation_id == second.get().generation_id == 1
    assert {m.member_id for m in first.get().members} == {first_id, second_id}
    assert second.get().members == []


def test_the_first_rebalance_does_not_wait_longer_than_the_rebalance_time_out() -> None:
    rig = GroupRig(group_initial_rebalance_delay_ms=3000)
    joins = [rig.join_new(rebalance_ms=5000)[1]]
    rig.clock.advance(2)
    joins.append(rig.join_new(rebalance_ms=5000)[1])
    rig.clock.advance(2)
    joins.append(rig.join_new(rebalance_ms=5000)[1])
    rig.clock.advance(1.1)
    assert all(join.there for join in joins)


def test_the_leader_assigns_and_everyone_gets_its_part(rig: GroupRig) -> None:
    leader, follower = rig.stable(2)
    group = rig.group()
    assert group.state is ClassicState.STABLE
    assert rig.sync(follower, group.generation).get().assignment == follower.encode()
    assert rig.heartbeat(leader, group.generation) == ErrorCode.NONE


def test_a_member_that_the_leader_forgot_gets_nothing(rig: GroupRig) -> None:
    (leader,) = rig.stable(1)
    other, _ = rig.join_new()
    rig.join(leader)
    generation = rig.group().generation
    waiting = rig.sync(other, generation)
    rig.sync(leader, generation, {leader: b"all"})
    assert waiting.get().assignment == b""


def test_the_protocol_that_most_like_best_wins(rig: GroupRig) -> None:
    first, _ = rig.join_new(protocols={"range": b"r", "sticky": b"s"})
    second, _ = rig.join_new(protocols={"sticky": b"s", "range": b"r"})
    third, join = rig.join_new(protocols={"sticky": b"s", "new": b"n", "range": b"r"})
    rig.join(first, protocols={"range": b"r", "sticky": b"s"})
    rig.join(second, protocols={"sticky": b"s", "range": b"r"})
    assert join.get().protocol_name == "sticky"
    assert rig.join("", protocols={"new": b"n"}).code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert rig.join("", protocol_type="connect").code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert rig.join("", group_id="h", protocol_type="").code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert third


# -- changing


def test_a_newcomer_makes_everyone_join_again(rig: GroupRig) -> None:
    leader, follower = rig.stable(2)
    generation = rig.group().generation
    newcomer, join = rig.join_new()
    assert not join.there
    assert rig.heartbeat(leader, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    assert rig.sync(follower, generation).code == ErrorCode.REBALANCE_IN_PROGRESS
    rig.join(leader)
    assert not join.there
    rig.join(follower)
    assert join.get().generation_id == generation + 1
    assert rig.group().state is ClassicState.COMPLETING_REBALANCE
    assert rig.heartbeat(newcomer, generation + 1) == ErrorCode.NONE


def test_a_newcomer_ends_the_syncs_that_wait(rig: GroupRig) -> None:
    leader, follower = rig.stable(2)
    for member in (leader, follower):
        rig.join(member, protocols={"range": b"changed"})
    generation = rig.group().generation
    waiting = rig.sync(follower, generation)
    rig.join_new()
    assert waiting.code == ErrorCode.REBALANCE_IN_PROGRESS
    assert leader


def test_members_that_do_not_join_in_time_are_out(rig: GroupRig) -> None:
    leader, follower = rig.stable(2, session_ms=200_000)
    _, join = rig.join_new(session_ms=200_000)
    rig.join(leader, session_ms=200_000)
    rig.clock.advance(59)
    assert not join.there
    rig.clock.advance(2)
    assert join.get().generation_id == rig.group().generation
    assert set(rig.group().members) == {leader, join.get().member_id}
    assert rig.heartbeat(follower, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_when_the_leader_stays_away_another_one_leads(rig: GroupRig) -> None:
    leader, follower = rig.stable(2, session_ms=200_000)
    newcomer, join = rig.join_new(session_ms=200_000)
    again = rig.join(follower, session_ms=200_000)
    rig.clock.advance(61)
    assert leader not in rig.group().members
    assert join.get().leader == again.get().leader in (follower, newcomer)


def test_a_member_that_goes_silent_is_out_and_the_others_share(rig: GroupRig) -> None:
    leader, follower = rig.stable(2, session_ms=10_000)
    generation = rig.group().generation
    rig.clock.advance(6)
    assert rig.heartbeat(leader, generation) == 0
    rig.clock.advance(5)
    assert rig.heartbeat(leader, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    assert rig.join(leader).get().generation_id == generation + 1
    assert set(rig.group().members) == {leader}
    assert follower


def test_a_commit_counts_as_a_sign_of_life(rig: GroupRig) -> None:
    (member,) = rig.stable(1, session_ms=10_000)
    for _ in range(3):
        rig.clock.advance(8)
        assert rig.commit(1, member_id=member, generation=1).get().topics[0].partitions[0].error_code == 0
    assert rig.heartbeat(member, 1) == 0


def test_an_id_that_is_never_used_is_forgotten(rig: GroupRig) -> None:
    refusal = rig.join(session_ms=10_000).get()
    rig.clock.advance(11)
    assert rig.join(refusal.member_id).code == ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.group().is_empty


def test_a_member_that_does_not_ask_for_its_part_is_out(rig: GroupRig) -> None:
    leader, follower = rig.stable(2, rebalance_ms=5_000, session_ms=30_000)
    for member in (follower, leader):
        rig.join(member, rebalance_ms=5_000, session_ms=30_000, protocols={"range": b"new"})
    generation = rig.group().generation
    rig.sync(leader, generation, {leader: b"a"})
    rig.clock.advance(6)
    assert set(rig.group().members) == {leader}
    assert rig.heartbeat(leader, generation) == ErrorCode.REBALANCE_IN_PROGRESS


def test_leaving_one_by_one_until_nobody_is_there(rig: GroupRig) -> None:
    leader, follower = rig.stable(2)
    assert rig.leave("stranger") == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert rig.leave(leader) == [0]
    assert rig.join(follower).get().leader == follower
    generation = rig.group().generation
    assert rig.leave(follower) == [0]
    assert rig.group().is_empty and rig.group().generation == generation + 1
    rig.restart()
    assert rig.group().is_empty and rig.group().generation == generation + 1
    assert rig.group().protocol_type == "consumer"


def test_a_pending_id_may_leave_too(rig: GroupRig) -> None:
    (leader,) = rig.stable(1)
    pending = rig.join().get().member_id
    rig.join(leader, protocols={"range": b"new"})
    assert rig.group().state is ClassicState.PREPARING_REBALANCE
    assert rig.leave(pending) == [0]
    assert rig.group().state is ClassicState.COMPLETING_REBALANCE


def test_who_joins_again_unchanged_gets_the_same_answer(rig: GroupRig) -> None:
    leader, follower = rig.stable(2)
    generation = rig.group().generation
    assert rig.join(follower).get().generation_id == generation
    assert rig.group().state is ClassicState.STABLE
    # The leader may know of new partitions.
    assert not rig.join(leader).there
    assert rig.group().state is ClassicState.PREPARING_REBALANCE


# -- static members


def test_a_static_member_comes_back_to_its_part_without_a_rebalance(rig: GroupRig) -> None:
    joined = rig.join(instance_id="i").get()
    rig.sync(joined.member_id, 1, {joined.member_id: b"mine"}, instance_id="i")
    again = rig.join(instance_id="i").get()
    assert again.member_id != joined.member_id and again.generation_id == 1
    assert again.skip_assignment and [m.group_instance_id for m in again.members] == ["i"]
    assert rig.sync(again.member_id, 1, instance_id="i").get().assignment == b"mine"
    assert rig.heartbeat(joined.member_id, 1, instance_id="i") == ErrorCode.FENCED_INSTANCE_ID
    assert rig.join(joined.member_id, instance_id="i").code == ErrorCode.FENCED_INSTANCE_ID
    assert rig.sync(joined.member_id, 1, instance_id="i").code == ErrorCode.FENCED_INSTANCE_ID
    fenced = rig.commit(1, member_id=joined.member_id, generation=1, instance_id="i")
    assert fenced.code == ErrorCode.FENCED_INSTANCE_ID
    assert rig.leave((joined.member_id, "i")) == [ErrorCode.FENCED_INSTANCE_ID]
    rig.restart()
    assert set(rig.group().members) == {again.member_id}


def test_a_live_member_that_uses_the_instance_id_of_another_is_fenced(rig: GroupRig) -> None:
    """Its own member id is valid; together with the other's instance id it is not."""
    leader = rig.join(instance_id="i").get().member_id
    rig.sync(leader, 1, {leader: b"mine"}, instance_id="i")
    waiting = rig.join(instance_id="j")
    rig.join(leader, instance_id="i")
    other = waiting.get().member_id
    generation = rig.group().generation
    rig.sync(leader, generation, {leader: b"a", other: b"b"}, instance_id="i")
    assert rig.heartbeat(other, generation, instance_id="j") == ErrorCode.NONE
    assert rig.heartbeat(other, generation, instance_id="i") == ErrorCode.FENCED_INSTANCE_ID
    assert rig.sync(other, generation, instance_id="i").code == ErrorCode.FENCED_INSTANCE_ID
    refused = rig.commit(1, member_id=other, generation=generation, instance_id="i")
    assert refused.code == ErrorCode.FENCED_INSTANCE_ID
    assert rig.heartbeat(other, generation, instance_id="unknown") == ErrorCode.UNKNOWN_MEMBER_ID


def test_before_version_9_a_returning_leader_is_not_told_that_it_leads(rig: GroupRig) -> None:
    joined = rig.join(instance_id="i").get()
    rig.sync(joined.member_id, 1, {joined.member_id: b"mine"}, instance_id="i")
    again = rig.join(instance_id="i", version=8).get()
    assert (again.leader, again.members, again.skip_assignment) == (joined.member_id, [], False)


def test_a_static_member_that_changes_makes_a_rebalance(rig: GroupRig) -> None:
    joined = rig.join(instance_id="i").get()
    rig.sync(joined.member_id, 1, {joined.member_id: b"mine"}, instance_id="i")
    again = rig.join(instance_id="i", protocols={"sticky": b"s"})
    # It has no protocol in common with its own old self, which still counts.
    assert again.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    again = rig.join(instance_id="i", protocols={"sticky": b"s", "range": b"r"}).get()
    assert again.generation_id == 2 and again.protocol_name == "sticky"


def test_a_static_member_that_restarts_while_its_join_waits_fences_it(rig: GroupRig) -> None:
    leader, _ = rig.stable(2)
    first = rig.join(instance_id="i")
    second = rig.join(instance_id="i")
    assert first.code == ErrorCode.FENCED_INSTANCE_ID
    assert not second.there and leader


def _stable_before_its_static_follower_syncs(rig: GroupRig) -> str:
    """A stable generation 2 of the static members `i`, its leader, and `j`, which has not synced; the id of `j`."""
    leader = rig.join(instance_id="i", session_ms=300_000).get().member_id
    rig.sync(leader, 1, {leader: b"all"}, instance_id="i")
    joining = rig.join(instance_id="j", session_ms=300_000)
    rig.join(leader, instance_id="i", session_ms=300_000)
    follower: str = joining.get().member_id
    rig.sync(leader, 2, {leader: b"one", follower: b"two"}, instance_id="i")
    assert (rig.group().state, rig.group().pending_sync) == (ClassicState.STABLE, {follower})
    return follower


def test_a_static_member_that_restarts_before_its_sync_leaves_no_pending_sync_behind(rig: GroupRig) -> None:
    _stable_before_its_static_follower_syncs(rig)
    again = rig.join(instance_id="j", session_ms=300_000).get()
    assert rig.group().pending_sync == {again.member_id}
    assert rig.sync(again.member_id, 2, instance_id="j").get().assignment == b"two"
    rig.clock.advance(61)
    group = rig.group()
    assert (group.state, group.generation, len(group.members)) == (ClassicState.STABLE, 2, 2)


def test_a_static_member_that_restarts_and_never_syncs_is_removed_in_time(rig: GroupRig) -> None:
    _stable_before_its_static_follower_syncs(rig)
    again = rig.join(instance_id="j", session_ms=300_000).get()
    rig.clock.advance(61)
    assert again.member_id not in rig.group().members
    assert rig.group().state is ClassicState.PREPARING_REBALANCE


def test_a_static_member_whose_new_id_cannot_be_written_still_has_to_sync(rig: GroupRig) -> None:
    follower = _stable_before_its_static_follower_syncs(rig)
    rig.partition.fault = ApiException(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert rig.join(instance_id="j", session_ms=300_000).code
    assert rig.group().pending_sync == {follower}


def test_an_admin_takes_a_static_member_out_by_its_instance(rig: GroupRig) -> None:
    joined = rig.join(instance_id="i").get()
    rig.sync(joined.member_id, 1, {joined.member_id: b"mine"}, instance_id="i")
    assert rig.leave(("", "j"), ("", "i")) == [ErrorCode.UNKNOWN_MEMBER_ID, 0]
    assert rig.group().is_empty


def test_static_members_are_waited_for_until_their_session_ends(rig: GroupRig) -> None:
    joined = rig.join(instance_id="i", session_ms=100_000, rebalance_ms=20_000).get()
    rig.sync(joined.member_id, 1, {joined.member_id: b"mine"}, instance_id="i")
    _, join = rig.join_new(session_ms=100_000, rebalance_ms=20_000)
    rig.clock.advance(21)
    assert join.get().generation_id == 2
    assert joined.member_id in rig.group().members, "it is static: its session decides"
    rig.clock.advance(80)
    assert joined.member_id not in rig.group().members


# -- refusals


def test_strangers_and_old_generations_are_refused(rig: GroupRig) -> None:
    (member,) = rig.stable(1)
    assert rig.join("stranger").code == ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.join("stranger", group_id="other").code == ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.sync("stranger", 1).code == ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.sync(member, 7).code == ErrorCode.ILLEGAL_GENERATION
    assert rig.sync(member, 1, protocol="other").code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert rig.sync(member, 1, group_id="other").code == ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.heartbeat("stranger", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.heartbeat(member, 7) == ErrorCode.ILLEGAL_GENERATION
    assert rig.heartbeat(member, 1, "other") == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_takes_nobody_else() -> None:
    rig = GroupRig(group_max_size=2)
    leader, follower = rig.stable(2)
    assert rig.join().code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert rig.join(leader).there is False
    rig.join(follower)
    assert rig.group().state is ClassicState.COMPLETING_REBALANCE


def test_members_over_a_lowered_limit_are_left_out_after_a_restart() -> None:
    rig = GroupRig()
    members = rig.stable(3)
    rig.config = BrokerConfig({**rig.config.static, "group.max.size": "2"})
    rig.restart()
    assert rig.group().state is ClassicState.PREPARING_REBALANCE
    codes = [rig.join(member) for member in members]
    assert codes[2].code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert codes[0].get().generation_id == codes[1].get().generation_id


def test_when_it_resigns_who_waits_is_sent_away(rig: GroupRig) -> None:
    leader, follower = rig.stable(2)
    _, join = rig.join_new()
    rig.runtime.resign(0)
    assert join.code == ErrorCode.NOT_COORDINATOR
    assert leader and follower


def test_an_assignment_that_cannot_be_kept_is_not_handed_out(rig: GroupRig) -> None:
    leader, follower = rig.stable(2)
    for member in (follower, leader):
        rig.join(member, protocols={"range": b"new"})
    generation = rig.group().generation
    waiting = rig.sync(follower, generation)
    rig.partition.refusal = ApiException(ErrorCode.NOT_ENOUGH_REPLICAS, "no")
    assert rig.sync(leader, generation, {leader: b"a"}).code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert waiting.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert rig.group().state is ClassicState.PREPARING_REBALANCE


# -- what is kept


def described(rig: GroupRig, version: int = 6) -> Any:
    return rig.read(lambda shard, now_ms: shard.classic.describe("g", version)).get()


def test_a_stable_group_is_the_same_after_a_restart(rig: GroupRig) -> None:
    members = rig.stable(3, protocols={"range": subscription("t")})
    before = described(rig)
    assert (before.group_state, before.protocol_type, before.protocol_data) == ("Stable", "consumer", "range")
    assert {m.member_assignment for m in before.members} == {m.encode() for m in members}
    rig.restart()
    assert described(rig) == before
    assert rig.group().is_subscribed_to_topic("t") and not rig.group().is_subscribed_to_topic("other")
    assert rig.heartbeat(members[2], rig.group().generation) == 0
    rig.clock.advance(11)
    assert rig.group().is_empty, "sessions run again after a restart"


def test_members_are_described_in_the_order_of_kafkas_hash_map(rig: GroupRig) -> None:
    names = rig.stable(7)
    assert [member.member_id for member in described(rig).members] == java_set_order(names) != list(names)


def test_unknown_groups_are_dead_or_not_found(rig: GroupRig) -> None:
    assert (described(rig).group_state, described(rig).error_code) == ("Dead", ErrorCode.GROUP_ID_NOT_FOUND)
    assert (described(rig, 5).group_state, described(rig, 5).error_code) == ("Dead", 0)


def test_listing_by_state_and_type(rig: GroupRig) -> None:
    rig.stable(1, group_id="busy")
    rig.commit(1, group_id="simple")

    def listed(states: list[str], types: list[str]) -> list[tuple[str, str, str, str]]:
        groups = rig.read(lambda shard, now_ms: shard.admin.list(states, types)).get()
        return [(g.group_id, g.protocol_type, g.group_state, g.group_type) for g in groups]

    busy, simple = ("busy", "consumer", "Stable", "classic"), ("simple", "", "Empty", "classic")
    # The order of the hash map in which Kafka keeps groups.
    assert listed([], []) == [simple, busy]
    assert listed(["stable"], []) == [busy]
    assert listed([" EMPTY "], ["Classic"]) == [simple]
    assert listed([], ["share"]) == []
    assert listed([], ["unheard of"]) == []


def test_only_groups_without_members_can_be_deleted(rig: GroupRig) -> None:
    def delete(group_id: str) -> Any:
        return rig.write(lambda shard, now_ms: shard.admin.delete(group_id))

    (member,) = rig.stable(1)
    rig.commit(5, member_id=member, generation=1)
    assert delete("g").code == ErrorCode.NON_EMPTY_GROUP
    assert delete("nobody").code == ErrorCode.GROUP_ID_NOT_FOUND
    rig.leave(member)
    assert delete("g").code == 0
    assert rig.group() is None and rig.fetch() == (-1, 0)
    rig.restart()
    assert rig.group() is None and rig.fetch() == (-1, 0)
