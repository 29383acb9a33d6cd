"""Share groups: joining, share state before assignment, sharing out, leaving, resetting, and coming back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator.group.context import RequestInfo
from ottla.coordinator.group.share.assignor import assign
from ottla.coordinator.group.share.group import ShareGroup
from ottla.coordinator.group.share.heartbeat import HeartbeatResult, validate
from ottla.errors import ApiException, ErrorCode
from ottla.wire import messages
from unit.coordinator.group.consumer.consumer_rig import GROUP, Rig, topic_id

T = topic_id("t")


class ShareRig(Rig):
    """The rig of groups, with a share coordinator that initializes state when a test lets it."""

    def __init__(self, topics: dict[str, int] | None = None, **overrides: str) -> None:
        super().__init__(topics or {"t": 2}, **overrides)
        self.asked: list[Any] = []

    def beat(self, member: str, epoch: int, topics: list[str] | None = None) -> Any:
        request = messages.ShareGroupHeartbeatRequest(
            group_id=GROUP, member_id=member, member_epoch=epoch, subscribed_topic_names=topics
        )
        validate(request)
        info = RequestInfo(1, "c", "/127.0.0.1")
        answer: HeartbeatResult = self.answer(self.shard.share.heartbeat(info, request, self.clock.now_ms()))
        if answer.initialize is not None:
            self.asked.append(answer.initialize)
        return answer.response

    def make_state(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """The share coordinator answers all that it was asked."""
        response = messages.InitializeShareGroupStateResponse
        for request in self.asked:
            made = response(
                results=[
                    response.InitializeStateResult(
                        topic_id=topic.topic_id,
                        partitions=[
                            response.PartitionResult(partition=part.partition, error_code=error)
                            for part in topic.partitions
                        ],
                    )
                    for topic in request.topics
                ]
            )
            self.apply(self.shard.share.initialized(GROUP, made))
        self.asked.clear()

    def join(self, member: str, topics: tuple[str, ...] = ("t",)) -> Any:
        self.beat(member, 0, list(topics))
        self.make_state()
        self.clock.advance(2)
        return self.sync(member)

    def sync(self, member: str) -> Any:
        return self.beat(member, self.group.members[member].epoch)

    @property
    def group(self) -> ShareGroup:
        return self.shard.share.group(GROUP)

    def assigned(self, member: str) -> dict[bytes, set[int]]:
        return {topic: set(parts) for topic, parts in self.group.members[member].assigned.items()}


def code_of(action: Any, *arguments: Any) -> ErrorCode:
    with pytest.raises(ApiException) as refused:
        action(*arguments)
    return refused.value.code


def test_partitions_are_assigned_once_their_share_state_is_there() -> None:
    rig = ShareRig()
    first = rig.beat("a", 0, ["t"])
    assert first.member_epoch == 2, "as in Kafka, where a new group is in epoch 1 before its first member"
    assert first.assignment.topic_partitions == []
    assert first.heartbeat_interval_ms < 1000, "it is to come back soon"
    request = rig.asked[0]
    assert [part.start_offset for topic in request.topics for part in topic.partitions] == [-1, -1]
    assert rig.beat("a", 2).assignment is None
    assert len(rig.asked) == 1, "what was asked for is not asked for again at once"
    rig.make_state()
    second = rig.beat("a", 2)
    assert second.member_epoch == 3
    assert [sorted(topic.partitions) for topic in second.assignment.topic_partitions] == [[0, 1]]
    assert rig.beat("a", 3).heartbeat_interval_ms == 1000


@pytest.mark.parametrize(("interval_ms", "epoch"), [("1000", 3), ("0", 4)])
def test_a_topic_that_is_created_later_takes_one_epoch_where_assignments_are_batched(
    interval_ms: str, epoch: int
) -> None:
    rig = ShareRig(group_share_assignment_interval_ms=interval_ms)
    rig.beat("a", 0, ["later"])
    rig.clock.advance(2)
    rig.create_topic("later", 2)
    rig.sync("a")
    rig.make_state()
    answer = rig.sync("a")
    assert len(answer.assignment.topic_partitions[0].partitions) == 2
    assert (answer.member_epoch, rig.group.epoch) == (epoch, epoch)


def test_share_state_that_could_not_be_made_is_asked_for_again() -> None:
    rig = ShareRig()
    rig.beat("a", 0, ["t"])
    rig.make_state(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    rig.beat("a", 2)
    assert len(rig.asked) == 1


def test_share_state_that_a_wrong_clock_asked_for_is_asked_for_again() -> None:
    rig = ShareRig()
    rig.clock.jump_ms(9 * 3_600_000)
    rig.beat("a", 0, ["t"])
    rig.asked.clear()
    rig.clock.jump_ms(-9 * 3_600_000)
    rig.beat("a", 2)
    assert len(rig.asked) == 1


def test_an_assignment_of_a_wrong_clock_does_not_stop_a_share_group() -> None:
    rig = ShareRig()
    rig.clock.jump_ms(9 * 3_600_000)
    rig.join("a")
    rig.clock.jump_ms(-9 * 3_600_000)
    rig.join("b")
    rig.sync("a")
    assert len(rig.assigned("a")[T]) == len(rig.assigned("b")[T]) == 1


def test_new_partitions_get_share_state_and_members() -> None:
    rig = ShareRig()
    rig.join("a")
    rig.add_partitions("t", 3)
    rig.sync("a")
    assert [part.partition for topic in rig.asked[0].topics for part in topic.partitions] == [2]
    rig.make_state()
    rig.clock.advance(2)
    rig.sync("a")
    assert rig.assigned("a") == {T: {0, 1, 2}}


def test_members_share_out_and_then_share() -> None:
    rig = ShareRig()
    rig.join("a")
    rig.join("b")
    rig.sync("a")
    assert len(rig.assigned("a")[T]) == len(rig.assigned("b")[T]) == 1
    assert rig.assigned("a")[T] | rig.assigned("b")[T] == {0, 1}
    rig.join("c")
    assert len(rig.assigned("c")[T]) == 1


def test_a_member_leaves_and_its_partitions_go_to_others() -> None:
    rig = ShareRig()
    rig.join("a")
    rig.join("b")
    assert rig.beat("a", -1).member_epoch == -1
    rig.clock.advance(2)
    rig.sync("b")
    assert rig.assigned("b") == {T: {0, 1}}
    assert code_of(rig.beat, "a", 5) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_member_is_fenced() -> None:
    rig = ShareRig()
    rig.join("a")
    rig.clock.advance(44)
    assert "a" in rig.group.members
    rig.clock.advance(2)
    assert rig.group.is_empty and rig.group.state_name == "Empty"


def test_epochs_and_requests_are_checked() -> None:
    rig = ShareRig(group_share_max_size="2")
    rig.join("a")
    epoch = rig.group.members["a"].epoch
    assert rig.beat("a", epoch - 1).member_epoch == epoch, "an answer may have been lost"
    assert code_of(rig.beat, "a", epoch + 1) is ErrorCode.FENCED_MEMBER_EPOCH
    assert code_of(rig.beat, "b", 3) is ErrorCode.UNKNOWN_MEMBER_ID
    assert code_of(rig.beat, "b", 0) is ErrorCode.INVALID_REQUEST
    assert code_of(rig.beat, "b", -2) is ErrorCode.INVALID_REQUEST
    rig.join("b")
    assert code_of(rig.beat, "c", 0, ["t"]) is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_an_id_stands_for_one_type_of_group() -> None:
    rig = ShareRig()
    rig.heartbeat(
        member_id="a",
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    assert code_of(rig.beat, "b", 0, ["t"]) is ErrorCode.GROUP_ID_NOT_FOUND


def reset(rig: ShareRig, topic: str, offsets: dict[int, int]) -> Any:
    request = messages.AlterShareGroupOffsetsRequest
    return rig.answer(
        rig.shard.share.reset_offsets(
            request(
                group_id=GROUP,
                topics=[
                    request.AlterShareGroupOffsetsRequestTopic(
                        topic_name=topic,
                        partitions=[
                            request.AlterShareGroupOffsetsRequestPartition(
                                partition_index=number, start_offset=offset
                            )
                            for number, offset in offsets.items()
                        ],
                    )
                ],
            ),
            rig.clock.now_ms(),
        )
    )


def test_offsets_of_an_empty_group_are_reset_in_a_newer_epoch() -> None:
    rig = ShareRig()
    rig.join("a")
    assert code_of(reset, rig, "t", {0: 5}) is ErrorCode.NON_EMPTY_GROUP
    rig.beat("a", -1)
    done = reset(rig, "t", {0: 5, 7: 1})
    assert [part.error_code for part in done.response.responses[0].partitions] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    (part,) = done.initialize.topics[0].partitions
    assert (part.partition, part.start_offset, part.state_epoch) == (0, 5, rig.group.epoch)
    assert reset(rig, "nowhere", {0: 1}).initialize is None


def test_offsets_are_deleted_and_then_the_group() -> None:
    rig = ShareRig({"t": 2, "u": 1})
    rig.join("a", ("t", "u"))
    rig.beat("a", -1)
    request = messages.DeleteShareGroupOffsetsRequest
    deletion = rig.answer(
        rig.shard.share.begin_delete_offsets(
            request(
                group_id=GROUP,
                topics=[
                    request.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in ("t", "nowhere")
                ],
            )
        )
    )
    assert [topic.topic_name for topic in deletion.refused] == ["nowhere"]
    assert [part.partition for part in deletion.delete.topics[0].partitions] == [0, 1]
    rig.apply(rig.shard.share.deleted_offsets(GROUP, [T]))
    assert rig.group.initialized.keys() == {topic_id("u")}
    left = rig.answer(rig.shard.share.begin_delete(GROUP))
    assert [topic.topic_id for topic in left.topics] == [topic_id("u")]
    rig.apply(rig.shard.admin.delete(GROUP))
    assert rig.shard.groups.get(GROUP) is None
    assert rig.reload().groups.get(GROUP) is None


def test_deleted_topics_leave_the_group() -> None:
    rig = ShareRig({"t": 1, "u": 1})
    rig.join("a", ("t", "u"))
    rig.delete_topic("t")
    rig.clock.advance(2)
    assert rig.group.initialized.keys() == {topic_id("u")}
    rig.sync("a")
    assert rig.assigned("a") == {topic_id("u"): {0}}


@pytest.mark.parametrize("compacted", [False, True])
def test_a_new_coordinator_knows_the_same(compacted: bool) -> None:
    rig = ShareRig({"t": 3, "u": 2})
    rig.join("a")
    rig.join("b", ("t", "u"))
    rig.sync("a")
    again = rig.reload(compacted=compacted).share.group(GROUP)
    for field in ("members", "target", "epoch", "assignment_epoch", "metadata_hash", "state_partitions"):
        assert getattr(again, field) == getattr(rig.group, field), field
    assert again.subscriptions == rig.group.subscriptions


_TOPICS = [bytes([number]) * 16 for number in range(3)]


@given(
    sizes=st.lists(st.integers(0, 5), min_size=3, max_size=3),
    wishes=st.lists(st.sets(st.sampled_from(_TOPICS)), min_size=1, max_size=8),
    more=st.lists(st.sets(st.sampled_from(_TOPICS)), max_size=4),
    gone=st.integers(0, 3),
)
def test_the_simple_assignor_leaves_nothing_out(
    sizes: list[int], wishes: list[set[bytes]], more: list[set[bytes]], gone: int
) -> None:
    partitions = {topic: frozenset(range(size)) for topic, size in zip(_TOPICS, sizes, strict=True)}
    members = {f"m{number}": topics for number, topics in enumerate(wishes)}
    current = assign(members, partitions, {})
    later = {f"n{number}": topics for number, topics in enumerate(more)}
    later |= dict(list(members.items())[gone:])
    for wanted, assignment in ((members, current), (later, assign(later, partitions, current))):
        for topic, numbers in partitions.items():
            interested = [member for member, topics in wanted.items() if topic in topics]
            held = [number for member in wanted for number in assignment[member].get(topic, ())]
            if interested:
                assert set(held) == numbers, "every partition has a member"
            else:
                assert not held
        for member, topics in wanted.items():
            assert assignment[member].keys() <= topics
            if any(partitions[topic] for topic in topics):
                assert assignment[member] or len({frozenset(each) for each in wanted.values()}) > 1


def test_the_simple_assignor_moves_little() -> None:
    partitions = {_TOPICS[0]: frozenset(range(6))}
    one = assign({"a": {_TOPICS[0]}, "b": {_TOPICS[0]}}, partitions, {})
    two = assign({"a": {_TOPICS[0]}, "b": {_TOPICS[0]}, "c": {_TOPICS[0]}}, partitions, one)
    for member in ("a", "b"):
        assert two[member][_TOPICS[0]] < one[member][_TOPICS[0]]
        assert len(two[member][_TOPICS[0]]) == 2
