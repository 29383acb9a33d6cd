"""Members of a consumer group join, heartbeat, are assigned partitions, and go."""

from __future__ import annotations

import pytest

from ottla.coordinator.group.consumer.member import MemberState
from ottla.errors import ApiException, ErrorCode
from unit.coordinator.group.consumer.consumer_rig import GROUP, Member, Rig, settle, snapshot, topic_id

FOO = topic_id("foo")
HOUR_MS = 3_600_000


def all_of(topic: str, partitions: int) -> set[tuple[bytes, int]]:
    return {(topic_id(topic), number) for number in range(partitions)}


def refused(code: ErrorCode) -> pytest.RaisesExc[ApiException]:
    return pytest.RaisesExc(ApiException, check=lambda error: error.code is code)


def test_the_first_member_gets_everything_at_once() -> None:
    rig = Rig({"foo": 3})
    member = Member(rig, "a", ["foo"])

    response = member.join()

    assert response.member_id == "a"
    assert response.member_epoch == 2
    assert member.partitions == all_of("foo", 3)
    assert rig.group.state_name == "Stable"


def test_a_second_member_gets_its_share_when_the_first_has_given_it_up() -> None:
    rig = Rig({"foo": 4})
    first, second = Member(rig, "a", ["foo"]), Member(rig, "b", ["foo"])
    first.join()
    rig.clock.advance_ms(1000)

    second.join()
    assert second.partitions == set()
    assert rig.group.members["b"].state is MemberState.UNRELEASED_PARTITIONS

    first.beat()
    assert first.must_give_up()
    assert rig.group.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    second.beat()
    assert second.partitions == set()

    first.beat()
    second.beat()
    assert len(first.partitions) == len(second.partitions) == 2
    assert first.partitions | second.partitions == all_of("foo", 4)
    assert rig.group.state_name == "Stable"


def test_members_that_join_together_are_assigned_together() -> None:
    rig = Rig({"foo": 6})
    members = [Member(rig, name, ["foo"]) for name in "abc"]
    for member in members:
        member.join()
    assert rig.group.assignment_epoch == 2

    settle(rig, members)

    assert rig.group.assignment_epoch == rig.group.epoch == 4
    assert [len(member.partitions) for member in members] == [2, 2, 2]


def test_more_members_than_partitions_leave_some_idle() -> None:
    rig = Rig({"foo": 6})
    members = [Member(rig, f"m{number}", ["foo"]) for number in range(8)]
    for member in members:
        member.join()
    settle(rig, members)
    assert sorted(len(member.partitions) for member in members) == [0, 0, 1, 1, 1, 1, 1, 1]


def test_partitions_of_a_member_that_leaves_go_to_the_others() -> None:
    rig = Rig({"foo": 4})
    first, second = Member(rig, "a", ["foo"]), Member(rig, "b", ["foo"])
    first.join(), second.join()
    settle(rig, [first, second])

    response = second.leave()

    assert response.member_epoch == -1
    rig.clock.advance_ms(1000)
    first.beat()
    assert first.partitions == all_of("foo", 4)


def test_a_member_that_is_silent_is_fenced() -> None:
    rig = Rig({"foo": 2})
    first, second = Member(rig, "a", ["foo"]), Member(rig, "b", ["foo"])
    first.join(), second.join()
    settle(rig, [first, second])

    for _ in range(46):
        first.beat()
        rig.clock.advance_ms(1000)

    assert list(rig.group.members) == ["a"]
    first.beat()
    assert first.partitions == all_of("foo", 2)
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        second.beat()


def test_a_member_that_does_not_give_up_in_time_is_fenced() -> None:
    rig = Rig({"foo": 2})
    stubborn, patient = Member(rig, "a", ["foo"]), Member(rig, "b", ["foo"])
    stubborn.join()
    rig.clock.advance_ms(1000)
    patient.join()
    stubborn.beat()
    assert stubborn.must_give_up()

    for _ in range(61):
        rig.heartbeat(member_id="a", member_epoch=stubborn.epoch)
        patient.beat()
        rig.clock.advance_ms(1000)
        if "a" not in rig.group.members:
            break

    patient.beat()
    assert list(rig.group.members) == ["b"]
    assert patient.partitions == all_of("foo", 2)


def test_an_answer_without_news_carries_no_assignment() -> None:
    rig = Rig({"foo": 2})
    member = Member(rig, "a", ["foo"])
    assert member.join().assignment is not None
    assert member.beat().assignment is None
    # It sends all fields again, as after a lost response, and gets all of them back.
    response = rig.heartbeat(
        member_id="a",
        member_epoch=member.epoch,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=["foo"],
        topic_partitions=[],
    )
    assert response.assignment is not None


def test_a_heartbeat_without_news_writes_nothing() -> None:
    rig = Rig({"foo": 2})
    member = Member(rig, "a", ["foo"])
    member.join()
    written = len(rig.log)
    for _ in range(5):
        rig.clock.advance_ms(1000)
        member.beat()
    assert len(rig.log) == written


def test_members_are_asked_back_soon_while_the_group_reconciles() -> None:
    rig = Rig({"foo": 4})
    first, second = Member(rig, "a", ["foo"]), Member(rig, "b", ["foo"])
    first.join()
    rig.clock.advance_ms(1000)
    second.join()
    assert second.interval_ms == 100
    first.beat()
    assert first.interval_ms == 100
    settle(rig, [first, second])
    assert (first.interval_ms, second.interval_ms) == (1000, 1000)


def test_an_interval_that_was_set_is_answered_as_it_is() -> None:
    rig = Rig({"foo": 2}, group_consumer_heartbeat_interval_ms="6000")
    member, second = Member(rig, "a", ["foo"]), Member(rig, "b", ["foo"])
    member.join()
    second.join()
    assert second.interval_ms == 6000, "also while the group is rebalancing"
    settle(rig, [member, second])
    assert member.interval_ms == 6000
    rig.set_group_config("consumer.heartbeat.interval.ms", "7000")
    member.beat()
    assert member.interval_ms == 7000


def test_the_session_timeout_of_the_group_counts() -> None:
    rig = Rig({"foo": 1})
    rig.set_group_config("consumer.session.timeout.ms", "50000")
    member = Member(rig, "a", ["foo"])
    member.join()
    rig.clock.advance_ms(49_999)
    assert "a" in rig.group.members
    rig.clock.advance_ms(1)
    assert rig.group.members == {}
    assert rig.group.state_name == "Empty"


def test_new_partitions_are_assigned() -> None:
    rig = Rig({"foo": 2})
    member = Member(rig, "a", ["foo"])
    member.join()
    rig.clock.advance_ms(1000)
    rig.add_partitions("foo", 4)
    member.beat()
    assert member.partitions == all_of("foo", 4)
    assert rig.group.epoch == 3


def test_a_topic_that_appears_later_is_assigned() -> None:
    rig = Rig()
    member = Member(rig, "a", ["foo"])
    member.join()
    assert member.partitions == set()
    rig.clock.advance_ms(1000)
    rig.create_topic("foo", 2)
    member.beat()
    assert member.partitions == all_of("foo", 2)


def test_a_deleted_topic_is_taken_away() -> None:
    rig = Rig({"foo": 2, "bar": 1})
    member = Member(rig, "a", ["foo", "bar"])
    member.join()
    rig.clock.advance_ms(1000)
    rig.delete_topic("foo")
    member.beat()
    member.beat()
    assert member.partitions == all_of("bar", 1)
    assert rig.group.state_name == "Stable"


def test_a_changed_subscription_takes_partitions_away_at_once() -> None:
    rig = Rig({"foo": 2, "bar": 2})
    member = Member(rig, "a", ["foo", "bar"])
    member.join()

    response = rig.heartbeat(
        member_id="a", member_epoch=member.epoch, subscribed_topic_names=["bar"], topic_partitions=None
    )

    assert {topic.topic_id for topic in response.assignment.topic_partitions} == {topic_id("bar")}
    assert rig.group.members["a"].state is MemberState.UNREVOKED_PARTITIONS


def test_every_member_may_prefer_an_assignor() -> None:
    rig = Rig({"foo": 4, "bar": 4})
    first, second = (Member(rig, name, ["foo", "bar"], assignor="range") for name in "ab")
    first.join(), second.join()
    settle(rig, [first, second])
    assert first.partitions == {(topic_id(topic), number) for topic in ("foo", "bar") for number in (0, 1)}
    assert rig.shard.consumer.describe(GROUP).assignor_name == "range"


def test_members_are_described_in_the_order_of_kafkas_hash_map() -> None:
    rig = Rig({"foo": 2})
    for name in ("member-1", "member-2"):
        Member(rig, name, ["foo"]).join()
    described = rig.shard.consumer.describe(GROUP)
    assert [member.member_id for member in described.members] == ["member-2", "member-1"]


# -- what is refused


def test_wrong_epochs_are_fenced() -> None:
    rig = Rig({"foo": 2})
    member = Member(rig, "a", ["foo"])
    member.join()
    with refused(ErrorCode.FENCED_MEMBER_EPOCH):
        rig.heartbeat(member_id="a", member_epoch=member.epoch + 1)
    with refused(ErrorCode.FENCED_MEMBER_EPOCH):
        rig.heartbeat(member_id="a", member_epoch=member.epoch - 1, topic_partitions=[])


def test_the_previous_epoch_is_taken_when_the_answer_was_lost() -> None:
    rig = Rig({"foo": 2})
    first, second = Member(rig, "a", ["foo"]), Member(rig, "b", ["foo"])
    first.join(), second.join()
    settle(rig, [first, second])
    before = first.epoch
    second.leave()
    rig.clock.advance_ms(1000)
    first.beat()
    assert first.epoch > before

    first.epoch = before
    first.owned = {}
    first.beat()
    assert first.epoch == rig.group.epoch


def test_unknown_groups_and_members_are_refused() -> None:
    rig = Rig({"foo": 2})
    with refused(ErrorCode.GROUP_ID_NOT_FOUND):
        rig.heartbeat(member_id="a", member_epoch=1)
    Member(rig, "a", ["foo"]).join()
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        rig.heartbeat(member_id="b", member_epoch=1)
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        rig.heartbeat(member_id="b", member_epoch=-1)


def test_a_full_group_refuses_newcomers() -> None:
    rig = Rig({"foo": 2}, group_consumer_max_size="1")
    member = Member(rig, "a", ["foo"])
    member.join()
    with refused(ErrorCode.GROUP_MAX_SIZE_REACHED):
        Member(rig, "b", ["foo"]).join()
    member.beat()


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"member_id": "", "member_epoch": 0}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "a", "member_epoch": 1, "group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "a", "member_epoch": 1, "instance_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "a", "member_epoch": 1, "rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "a", "member_epoch": 0}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "a", "member_epoch": 0, "rebalance_timeout_ms": 1}, ErrorCode.INVALID_REQUEST),
        (
            {"member_id": "a", "member_epoch": 0, "rebalance_timeout_ms": 1, "topic_partitions": []},
            ErrorCode.INVALID_REQUEST,
        ),
        ({"member_id": "a", "member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "a", "member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "a", "member_epoch": 1, "server_assignor": "mine"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
    ],
)
def test_bad_requests_are_refused(fields: dict[str, object], code: ErrorCode) -> None:
    with refused(code):
        Rig().heartbeat(**fields)


def test_version_0_gets_a_member_id_from_the_broker() -> None:
    rig = Rig({"foo": 1})
    response = rig.heartbeat(
        version=0, member_epoch=0, rebalance_timeout_ms=1, subscribed_topic_names=["foo"], topic_partitions=[]
    )
    assert response.member_id in rig.group.members


# -- static members


def test_a_static_member_comes_back_to_its_partitions() -> None:
    rig = Rig({"foo": 4})
    static, other = Member(rig, "a", ["foo"], instance_id="i"), Member(rig, "b", ["foo"])
    static.join(), other.join()
    settle(rig, [static, other])
    had, epoch = static.partitions, rig.group.epoch

    assert static.leave(-2).member_epoch == -2
    other.beat()
    assert rig.group.epoch == epoch

    again = Member(rig, "a2", ["foo"], instance_id="i")
    again.join()
    assert again.partitions == had
    assert rig.group.epoch == epoch
    assert set(rig.group.members) == {"a2", "b"}
    assert snapshot(rig.reload()) == snapshot(rig.shard)


def test_an_instance_id_in_use_is_not_given_away() -> None:
    rig = Rig({"foo": 1})
    Member(rig, "a", ["foo"], instance_id="i").join()
    with refused(ErrorCode.UNRELEASED_INSTANCE_ID):
        Member(rig, "b", ["foo"], instance_id="i").join()
    with refused(ErrorCode.FENCED_INSTANCE_ID):
        rig.heartbeat(member_id="b", member_epoch=1, instance_id="i")
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        rig.heartbeat(member_id="b", member_epoch=1, instance_id="j")
    with refused(ErrorCode.FENCED_INSTANCE_ID):
        rig.heartbeat(member_id="b", member_epoch=-2, instance_id="i")


def test_a_static_member_that_stays_away_loses_its_place() -> None:
    rig = Rig({"foo": 1})
    member = Member(rig, "a", ["foo"], instance_id="i")
    member.join()
    member.leave(-2)
    rig.clock.advance_ms(45_000)
    assert rig.group.members == {}
    assert rig.group.static_members == {}


# -- regular expressions


def test_a_regular_expression_matches_whole_names() -> None:
    rig = Rig({"foo-1": 1, "foo-2": 2, "a-foo-1": 1})
    member = Member(rig, "a", regex="foo-.*")
    member.join()
    assert member.interval_ms == 100
    rig.clock.advance_ms(1000)
    member.beat()
    assert member.partitions == all_of("foo-1", 1) | all_of("foo-2", 2)


def test_topics_created_later_match_after_ten_seconds() -> None:
    rig = Rig({"foo-1": 1})
    member = Member(rig, "a", regex="foo-.*")
    member.join()
    settle(rig, [member])
    rig.create_topic("foo-2", 2)
    member.beat()
    assert member.partitions == all_of("foo-1", 1)
    rig.clock.advance_ms(10_000)
    member.beat()
    rig.clock.advance_ms(1)
    member.beat()
    assert member.partitions == all_of("foo-1", 1) | all_of("foo-2", 2)


def test_topics_match_after_a_lookup_by_a_wrong_clock() -> None:
    rig = Rig({"foo-1": 1})
    member = Member(rig, "a", regex="foo-.*")
    rig.clock.jump_ms(9 * HOUR_MS)
    member.join()
    settle(rig, [member])
    rig.clock.jump_ms(-9 * HOUR_MS)
    rig.create_topic("foo-2", 2)
    settle(rig, [member])
    assert member.partitions == all_of("foo-1", 1) | all_of("foo-2", 2)


@pytest.mark.parametrize("regex", ["(a)\\1", "(?=a)b", "(?<!a)b", "*", "["])
def test_what_re2_does_not_know_is_refused(regex: str) -> None:
    rig = Rig({"a": 1})
    with refused(ErrorCode.INVALID_REGULAR_EXPRESSION):
        Member(rig, "m", regex=regex).join()
    assert rig.log == []


def test_an_expression_that_nobody_uses_is_forgotten() -> None:
    rig = Rig({"foo": 1, "bar": 1})
    first, second = Member(rig, "a", regex="f.*"), Member(rig, "b", ["bar"])
    first.join(), second.join()
    settle(rig, [first, second])
    assert set(rig.group.subscriptions.resolved) == {"f.*"}
    first.leave()
    assert rig.group.subscriptions.resolved == {}
    assert rig.group.subscriptions.topics() == {"bar"}
    assert snapshot(rig.reload()) == snapshot(rig.shard)


def test_names_and_an_expression_add_up() -> None:
    rig = Rig({"foo": 1, "bar": 1, "baz": 1})
    member = Member(rig, "a", ["foo"], regex="ba[rz]")
    member.join()
    settle(rig, [member])
    assert member.partitions == all_of("foo", 1) | all_of("bar", 1) | all_of("baz", 1)


# -- restarts


def test_a_restart_goes_on_where_the_group_was() -> None:
    rig = Rig({"foo": 4})
    first, second = Member(rig, "a", ["foo"]), Member(rig, "b", ["foo"])
    first.join()
    rig.clock.advance_ms(1000)
    second.join()
    first.beat()
    before = snapshot(rig.shard)

    rig.restart()

    assert snapshot(rig.shard) == before
    settle(rig, [first, second])
    assert first.partitions | second.partitions == all_of("foo", 4)
    rig.restart()
    rig.clock.advance_ms(45_000)
    assert rig.group.members == {}


@pytest.mark.parametrize("jump_h", [-9, 9])
def test_an_assignment_of_a_wrong_clock_does_not_stop_the_group(jump_h: int) -> None:
    """Seed 100243: the last target was dated nine hours ahead, and no member got partitions until then."""
    rig = Rig({"foo": 4})
    first, second = Member(rig, "a", ["foo"]), Member(rig, "b", ["foo"])
    rig.clock.jump_ms(jump_h * HOUR_MS)
    first.join()
    rig.clock.jump_ms(-jump_h * HOUR_MS)
    rig.restart()
    second.join()
    settle(rig, [first, second])
    assert len(first.partitions) == len(second.partitions) == 2


def test_an_assignment_of_a_clock_that_is_a_little_ahead_delays_the_next_one() -> None:
    rig = Rig({"foo": 4})
    first, second = Member(rig, "a", ["foo"]), Member(rig, "b", ["foo"])
    rig.clock.jump_ms(200)
    first.join()
    rig.clock.jump_ms(-200)
    second.join()
    rig.clock.advance_ms(1199)
    second.beat()
    assert rig.group.assignment_epoch < rig.group.epoch
    rig.clock.advance_ms(1)
    second.beat()
    assert rig.group.assignment_epoch == rig.group.epoch


def test_an_empty_group_can_be_deleted() -> None:
    rig = Rig({"foo": 1})
    member = Member(rig, "a", ["foo"])
    member.join()
    with refused(ErrorCode.NON_EMPTY_GROUP):
        rig.group.validate_delete()
    member.leave()
    group = rig.group
    group.validate_delete()
    for record in group.tombstones():
        rig.shard.replay(0, -1, -1, record)
    assert rig.shard.groups.get(GROUP) is None
