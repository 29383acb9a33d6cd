"""Offsets of groups: who may commit, what is fetched, transactions, expiry, deletion."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.coordinator.group.context import RequestInfo
from ottla.errors import ErrorCode
from ottla.metadata.delta import MetadataDelta
from ottla.wire import messages
from unit.coordinator.coordinator_rig import GroupRig, subscription

MINUTE = 60.0


@pytest.fixture
def rig() -> GroupRig:
    return GroupRig()


def code(answer: Any) -> int:
    return int(answer.get().topics[0].partitions[0].error_code)


def test_a_simple_consumer_commits_and_finds_it_again(rig: GroupRig) -> None:
    assert rig.fetch() == (-1, 0)
    assert code(rig.commit(5, metadata="m")) == 0
    assert code(rig.commit(3)) == 0
    assert rig.fetch() == (3, 0)
    assert rig.fetch(1) == (-1, 0)
    rig.restart()
    assert rig.fetch() == (3, 0)
    assert rig.group().is_empty and rig.group().protocol_type == ""


def test_metadata_may_be_so_long(rig: GroupRig) -> None:
    assert code(rig.commit(1, metadata="x" * 4096)) == 0
    assert code(rig.commit(2, metadata="x" * 4097)) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert rig.fetch() == (1, 0)
    assert code(rig.commit(1, group_id="new", metadata="x" * 4097)) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert rig.group("new") is None


def test_only_members_of_the_generation_commit(rig: GroupRig) -> None:
    leader, _ = rig.stable(2)
    generation = rig.group().generation
    assert code(rig.commit(1, member_id=leader, generation=generation)) == 0
    assert rig.commit(2, member_id=leader, generation=generation - 1).code == ErrorCode.ILLEGAL_GENERATION
    assert rig.commit(2, member_id="x", generation=generation).code == ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.commit(2).code == ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.commit(2, group_id="no", generation=1).code == ErrorCode.GROUP_ID_NOT_FOUND
    assert rig.commit(2, group_id="no", generation=1, version=8).code == ErrorCode.ILLEGAL_GENERATION
    assert rig.fetch() == (1, 0)


def test_while_the_assignment_is_made_nobody_commits(rig: GroupRig) -> None:
    member, _ = rig.join_new()
    refused = rig.commit(1, member_id=member, generation=1)
    assert refused.code == ErrorCode.REBALANCE_IN_PROGRESS


def test_while_the_members_join_the_old_generation_still_commits(rig: GroupRig) -> None:
    leader, _ = rig.stable(2)
    generation = rig.group().generation
    rig.join_new()
    assert code(rig.commit(1, member_id=leader, generation=generation)) == 0


def test_all_offsets_of_a_group(rig: GroupRig) -> None:
    for topic, partition in (("a", 0), ("a", 1), ("b", 0)):
        rig.commit(7, partition, topic=topic)
    everything = messages.OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)
    response = rig.read(lambda shard, now_ms: shard.commits.fetch(everything, False)).get()
    assert {(t.name, p.partition_index) for t in response.topics for p in t.partitions} == {
        ("a", 0),
        ("a", 1),
        ("b", 0),
    }
    nothing = messages.OffsetFetchRequest.OffsetFetchRequestGroup(group_id="no", topics=None)
    assert rig.read(lambda shard, now_ms: shard.commits.fetch(nothing, False)).get().topics == []


def test_an_offset_of_a_topic_that_was_replaced_is_not_told(rig: GroupRig) -> None:
    old, new = b"o" * 16, b"n" * 16
    rig.commit(5, topic_id=old)
    assert rig.fetch(topic_id=old) == rig.fetch() == (5, 0)
    assert rig.fetch(topic_id=new) == (-1, 0)


# -- transactions


def test_pending_offsets_count_when_the_transaction_commits(rig: GroupRig) -> None:
    rig.commit(1)
    assert code(rig.commit_in_transaction(7, 10)) == 0
    assert rig.fetch() == (1, 0)
    assert rig.fetch(stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    rig.restart()
    assert rig.fetch() == (1, 0)
    assert rig.fetch(stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    rig.end_transaction(7, commit=True)
    assert rig.fetch(stable=True) == (10, 0)
    rig.restart()
    assert rig.fetch(stable=True) == (10, 0)


def test_pending_offsets_vanish_when_it_aborts(rig: GroupRig) -> None:
    rig.commit(1)
    rig.commit_in_transaction(7, 10)
    rig.end_transaction(7, commit=False)
    assert rig.fetch(stable=True) == (1, 0)
    rig.restart()
    assert rig.fetch(stable=True) == (1, 0)


def test_the_later_commit_wins_whenever_the_marker_comes(rig: GroupRig) -> None:
    rig.commit_in_transaction(7, 10)
    rig.commit(20)
    rig.end_transaction(7, commit=True)
    assert rig.fetch() == (20, 0)
    rig.restart()
    assert rig.fetch() == (20, 0)


def test_two_transactions_hold_one_partition(rig: GroupRig) -> None:
    rig.commit_in_transaction(7, 10)
    rig.commit_in_transaction(8, 20)
    rig.end_transaction(7, commit=True)
    assert rig.fetch() == (10, 0)
    assert rig.fetch(stable=True)[1] == ErrorCode.UNSTABLE_OFFSET_COMMIT
    rig.end_transaction(8, commit=True)
    assert rig.fetch(stable=True) == (20, 0)


def test_a_transaction_of_a_stranger_to_the_group_is_refused(rig: GroupRig) -> None:
    rig.stable(1)
    assert code(rig.commit_in_transaction(7, 10)) == 0, "without a generation nothing is checked"
    part = messages.TxnOffsetCommitRequest
    request = part(group_id="g", producer_id=7, producer_epoch=0, generation_id=9, member_id="x", topics=[])
    info = RequestInfo(3, "c", "/h")
    refused = rig.write(lambda shard, now_ms: shard.commits.commit_transactional(info, request, now_ms))
    assert refused.code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_transaction_with_a_generation_of_a_group_that_is_gone_is_refused(rig: GroupRig) -> None:
    """Its offsets would create the group again, as if the member still owned the partitions."""
    part = messages.TxnOffsetCommitRequest
    request = part(
        group_id="gone", producer_id=7, producer_epoch=0, generation_id=0, member_id="x", topics=[]
    )
    info = RequestInfo(3, "c", "/h")
    refused = rig.write(lambda shard, now_ms: shard.commits.commit_transactional(info, request, now_ms))
    assert refused.code == ErrorCode.ILLEGAL_GENERATION
    assert rig.group("gone") is None


# -- deleting


def delete(rig: GroupRig, topic: str = "t", group_id: str = "g") -> Any:
    part = messages.OffsetDeleteRequest
    request = part(
        group_id=group_id,
        topics=[
            part.OffsetDeleteRequestTopic(
                name=topic, partitions=[part.OffsetDeleteRequestPartition(partition_index=0)]
            )
        ],
    )
    return rig.write(lambda shard, now_ms: shard.commits.delete(request))


def test_offsets_are_deleted_one_by_one(rig: GroupRig) -> None:
    rig.commit(5)
    rig.commit(5, 1)
    assert code(delete(rig)) == 0
    assert (rig.fetch(), rig.fetch(1)) == ((-1, 0), (5, 0))
    rig.restart()
    assert (rig.fetch(), rig.fetch(1)) == ((-1, 0), (5, 0))
    assert delete(rig, group_id="no").code == ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_that_members_use_are_not_deleted(rig: GroupRig) -> None:
    (member,) = rig.stable(1, protocols={"range": subscription("t")})
    rig.commit(5, member_id=member, generation=1)
    rig.commit(5, member_id=member, generation=1, topic="other")
    assert code(delete(rig)) == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert code(delete(rig, "other")) == 0
    assert rig.fetch() == (5, 0)


def test_of_members_that_are_no_consumers_nobody_knows_what_they_use(rig: GroupRig) -> None:
    rig.stable(1, protocol_type="connect")
    assert delete(rig).code == ErrorCode.NON_EMPTY_GROUP


def test_offsets_of_a_deleted_topic_are_forgotten(rig: GroupRig) -> None:
    topic = messages.TopicRecord(name="t", topic_id=b"t" * 16)
    delta = MetadataDelta(rig.image)
    delta.replay(topic)
    image = delta.apply(1, 1)
    rig.commit(5, topic_id=b"t" * 16)
    rig.commit(5, 1)
    rig.commit(5, topic="other")
    rig.commit_in_transaction(7, 6, 2)
    gone = MetadataDelta(image)
    gone.replay(messages.RemoveTopicRecord(topic_id=b"t" * 16))
    rig.runtime.publish(gone, gone.apply(2, 1), 0)
    rig.settle()
    rig.end_transaction(7, commit=True)
    assert [rig.fetch(n) for n in range(3)] == [(-1, 0)] * 3
    assert rig.fetch(topic="other") == (5, 0)


# -- expiring


def test_retention_counts_from_when_the_group_is_empty() -> None:
    rig = GroupRig(offsets_retention_minutes=60)
    (member,) = rig.stable(1, session_ms=1_000_000)
    rig.commit(5, member_id=member, generation=1)
    for _ in range(9):
        rig.clock.advance(10 * MINUTE)
        assert rig.heartbeat(member, 1) == 0
    assert rig.fetch() == (5, 0), "the group is in use"
    rig.leave(member)
    rig.clock.advance(50 * MINUTE)
    assert rig.fetch() == (5, 0)
    rig.restart()
    rig.clock.advance(21 * MINUTE)
    assert rig.fetch() == (-1, 0)
    assert rig.group() is None, "and the group with them"
    rig.restart()
    assert rig.group() is None


def test_of_a_simple_consumer_each_offset_counts_for_itself() -> None:
    rig = GroupRig(offsets_retention_minutes=60)
    rig.commit(5, 0)
    rig.clock.advance(40 * MINUTE)
    rig.commit(6, 1)
    rig.clock.advance(31 * MINUTE)
    assert (rig.fetch(0), rig.fetch(1)) == ((-1, 0), (6, 0))
    rig.clock.advance(40 * MINUTE)
    assert rig.group() is None


def test_topics_that_a_stable_group_left_expire_by_their_commits() -> None:
    rig = GroupRig(offsets_retention_minutes=60, group_max_session_timeout_ms=100_000_000)
    (member,) = rig.stable(1, session_ms=50_000_000, protocols={"range": subscription("t")})
    for topic in ("t", "left"):
        rig.commit(5, member_id=member, generation=1, topic=topic)
    rig.clock.advance(75 * MINUTE)
    assert rig.fetch(topic="t") == (5, 0)
    assert rig.fetch(topic="left") == (-1, 0)


def test_an_old_client_may_say_how_long_to_keep_it() -> None:
    rig = GroupRig(offsets_retention_minutes=60)
    rig.commit(5, retention_ms=20 * 60_000, version=4)
    rig.clock.advance(15 * MINUTE)
    assert rig.fetch() == (5, 0)
    rig.restart()
    rig.clock.advance(16 * MINUTE)
    assert rig.fetch() == (-1, 0)


def test_what_a_transaction_holds_does_not_expire() -> None:
    rig = GroupRig(offsets_retention_minutes=10)
    rig.commit(5)
    rig.commit_in_transaction(7, 6)
    rig.clock.advance(30 * MINUTE)
    assert rig.fetch() == (5, 0)
    rig.end_transaction(7, commit=False)
    rig.clock.advance(11 * MINUTE)
    assert rig.fetch() == (-1, 0) and rig.group() is None
