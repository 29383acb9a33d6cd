"""Streams groups as their members see them: joining, tasks handed over, topics that come late, time running out."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.coordinator.group.streams.group import StreamsGroupState
from ottla.coordinator.group.streams.status import StatusCode
from ottla.coordinator.group.streams.tasks import TaskId
from ottla.errors import ApiException, ErrorCode
from ottla.wire import messages as m
from unit.coordinator.group.streams.streams_rig import (
    GROUP,
    StreamsRig,
    StreamThread,
    settle,
    subtopology,
    topic_info,
    topology,
)

TOPICS = {"in": 4, "log": 4}
COUNT = topology(subtopology("0", ["in"], changelogs=["log"]))


def all_tasks(count: int = 4) -> set[TaskId]:
    return {TaskId("0", index) for index in range(count)}


def codes(thread: StreamThread) -> list[int]:
    return [status.status_code for status in thread.last.response.status]


def refused(error: pytest.ExceptionInfo[ApiException]) -> ErrorCode:
    return error.value.code


@pytest.fixture
def rig() -> StreamsRig:
    return StreamsRig(TOPICS)


def joined(rig: StreamsRig, *names: str, described: Any = COUNT) -> list[StreamThread]:
    threads = [StreamThread(rig, name, described) for name in names]
    for thread in threads:
        thread.join()
    settle(threads)
    return threads


def test_the_first_member_gets_every_task(rig: StreamsRig) -> None:
    thread = StreamThread(rig, "m1", COUNT)
    thread.join()
    assert thread.active == all_tasks()
    assert thread.epoch == 2
    assert codes(thread) == []
    thread.beat()
    assert thread.last.response.active_tasks is None, "an unchanged assignment is not sent again"
    assert rig.group.state is StreamsGroupState.STABLE


def test_a_task_is_given_only_when_it_was_given_up(rig: StreamsRig) -> None:
    first, second = StreamThread(rig, "m1", COUNT), StreamThread(rig, "m2", COUNT)
    first.join()
    second.join()
    assert second.active == set()
    assert rig.group.state is StreamsGroupState.RECONCILING
    second.beat()
    assert second.active == set(), "the first member does not know of it yet"
    before = set(first.active)
    first.beat()
    given_up = before - first.active
    assert len(given_up) == 2
    second.beat()
    assert second.active == set(), "it knows, but has not reported that it is done"
    first.beat()
    second.beat()
    assert second.active == given_up
    settle([first, second])
    assert first.active | second.active == all_tasks()
    assert first.epoch == second.epoch == 3
    assert rig.group.state is StreamsGroupState.STABLE


def test_the_tasks_of_a_member_that_leaves_are_taken_over(rig: StreamsRig) -> None:
    first, second = joined(rig, "m1", "m2")
    second.leave()
    assert rig.group.state is StreamsGroupState.ASSIGNING
    settle([first])
    assert first.active == all_tasks()
    first.leave()
    assert rig.group.state is StreamsGroupState.EMPTY
    with pytest.raises(ApiException) as error:
        first.leave()
    assert refused(error) is ErrorCode.UNKNOWN_MEMBER_ID
    assert error.value.message == f"Member m1 is not a member of group {GROUP}."


def test_a_silent_member_is_removed_when_its_session_ends(rig: StreamsRig) -> None:
    first, _silent = joined(rig, "m1", "m2")
    for _ in range(5):
        rig.clock.advance(10)
        first.beat()
    assert set(rig.group.members) == {"m1"}
    settle([first])
    assert first.active == all_tasks()


def test_a_member_that_keeps_what_it_should_give_up_is_removed(rig: StreamsRig) -> None:
    first, second = StreamThread(rig, "m1", COUNT), StreamThread(rig, "m2", COUNT)
    first.join()
    second.join()
    first.beat()
    # It goes on heartbeating without ever saying that the tasks are gone.
    for _ in range(6):
        assert "m1" in rig.group.members
        rig.heartbeat("m1", first.epoch)
        second.beat()
        rig.clock.advance(10)
    assert set(rig.group.members) == {"m2"}
    with pytest.raises(ApiException) as error:
        first.beat()
    assert refused(error) is ErrorCode.UNKNOWN_MEMBER_ID
    settle([second])
    assert second.active == all_tasks()


def test_standbys_stand_in_other_processes(rig: StreamsRig) -> None:
    rig.set_topics(TOPICS, {"streams.num.standby.replicas": "1"})
    first, second = joined(rig, "m1", "m2")
    assert first.active | second.active == all_tasks()
    assert first.standby == second.active
    assert second.standby == first.active
    assert rig.group.assignment_configs == {"num.standby.replicas": "1"}


def test_more_standbys_make_a_new_assignment(rig: StreamsRig) -> None:
    first, second = joined(rig, "m1", "m2")
    assert not first.standby
    rig.set_topics(TOPICS, {"streams.num.standby.replicas": "1"})
    settle([first, second])
    assert first.standby == second.active and second.standby == first.active


def test_internal_topics_are_asked_for_and_then_used() -> None:
    rig = StreamsRig({"in": 2})
    described = topology(
        subtopology("0", ["in"], writes=["again"]),
        subtopology("1", [], reads=[topic_info("again")], changelogs=["log"]),
    )
    thread = StreamThread(rig, "m1", described)
    answer = thread.join()
    assert {name: topic.partitions for name, topic in answer.topics_to_create.items()} == {
        "again": 2,
        "log": 2,
    }
    assert codes(thread) == [StatusCode.MISSING_INTERNAL_TOPICS]
    assert thread.active == set()
    thread.beat()
    assert rig.group.state is StreamsGroupState.NOT_READY
    rig.set_topics({"in": 2, "again": 2, "log": 2})
    thread.beat()
    assert codes(thread) == []
    assert thread.active == {TaskId(id_, index) for id_ in "01" for index in range(2)}
    assert rig.group.state is StreamsGroupState.STABLE


def test_a_deleted_source_topic_stops_the_group_and_its_return_starts_it(rig: StreamsRig) -> None:
    (thread,) = joined(rig, "m1")
    rig.set_topics({"log": 4})
    settle([thread])
    assert codes(thread) == [StatusCode.MISSING_SOURCE_TOPICS]
    assert thread.active == set()
    assert rig.group.state is StreamsGroupState.NOT_READY
    rig.set_topics(TOPICS)
    settle([thread])
    assert thread.active == all_tasks()


def test_a_topic_that_grows_makes_more_tasks() -> None:
    rig = StreamsRig({"in": 2})
    (thread,) = joined(rig, "m1", described=topology(subtopology("0", ["in"])))
    assert thread.active == all_tasks(2)
    rig.set_topics({"in": 5})
    settle([thread])
    assert thread.active == all_tasks(5)


def test_a_new_group_waits_for_more_members() -> None:
    rig = StreamsRig(TOPICS, settings={"group.streams.initial.rebalance.delay.ms": "3000"})
    first, second = StreamThread(rig, "m1", COUNT), StreamThread(rig, "m2", COUNT)
    first.join()
    assert codes(first) == [StatusCode.ASSIGNMENT_DELAYED]
    assert first.active == set()
    rig.clock.advance(1)
    second.join()
    first.beat()
    rig.clock.advance(3)
    first.beat()
    second.beat()
    assert len(first.active) == len(second.active) == 2
    assert codes(first) == codes(second) == []


def test_assignments_keep_their_distance_in_time() -> None:
    rig = StreamsRig(TOPICS, settings={"group.streams.assignment.interval.ms": "1000"})
    first, second = StreamThread(rig, "m1", COUNT), StreamThread(rig, "m2", COUNT)
    first.join()
    second.join()
    assert codes(second) == [StatusCode.ASSIGNMENT_DELAYED]
    rig.clock.advance(1)
    settle([first, second])
    assert len(first.active) == len(second.active) == 2


def test_an_assignment_of_a_wrong_clock_does_not_stop_a_streams_group() -> None:
    rig = StreamsRig(TOPICS, settings={"group.streams.assignment.interval.ms": "1000"})
    first, second = StreamThread(rig, "m1", COUNT), StreamThread(rig, "m2", COUNT)
    rig.clock.jump_ms(9 * 3_600_000)
    first.join()
    rig.clock.jump_ms(-9 * 3_600_000)
    second.join()
    settle([first, second])
    assert len(first.active) == len(second.active) == 2


def test_members_are_asked_back_soon_while_tasks_move(rig: StreamsRig) -> None:
    first, second = StreamThread(rig, "m1", COUNT), StreamThread(rig, "m2", COUNT)
    first.join()
    assert first.last.response.heartbeat_interval_ms == 1000
    second.join()
    assert second.last.response.heartbeat_interval_ms == 100
    settle([first, second])
    assert second.last.response.heartbeat_interval_ms == 1000
    rig.set_topics(TOPICS, {"streams.heartbeat.interval.ms": "7000"})
    settle([first, second])
    assert second.last.response.heartbeat_interval_ms == 7000


def test_a_lost_answer_is_forgiven_and_anything_else_fenced(rig: StreamsRig) -> None:
    (thread,) = joined(rig, "m1")
    second = StreamThread(rig, "m2", COUNT)
    second.join()
    old = thread.epoch
    thread.beat()
    thread.beat()
    assert thread.epoch > old
    owned = [
        m.StreamsGroupHeartbeatRequest.TaskIds(subtopology_id="0", partitions=[thread.active.pop().partition])
    ]
    rig.heartbeat("m1", old, active_tasks=owned, standby_tasks=[], warmup_tasks=[])
    for epoch, fields in (
        (old, {}),
        (thread.epoch + 1, {}),
        (old - 1, {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}),
    ):
        with pytest.raises(ApiException) as error:
            rig.heartbeat("m1", epoch, **fields)
        assert refused(error) is ErrorCode.FENCED_MEMBER_EPOCH
        assert error.value.message.endswith("The member must abandon all its partitions and rejoin.")


def test_a_member_that_joins_again_gets_its_tasks_again(rig: StreamsRig) -> None:
    first, _second = joined(rig, "m1", "m2")
    had = set(first.active)
    first.join()
    assert first.active == had


def test_one_member_can_ask_all_to_shut_down(rig: StreamsRig) -> None:
    first, second = joined(rig, "m1", "m2")
    first.beat(shutdown_application=True)
    second.beat()
    assert codes(second) == [StatusCode.SHUTDOWN_APPLICATION]
    first.leave()
    second.leave()
    second.join()
    assert codes(second) == [], "an application that returns starts again"


def test_endpoints_tell_where_partitions_are() -> None:
    rig = StreamsRig({"in": 2, "narrow": 1})
    described = topology(subtopology("0", ["in", "narrow"]))
    endpoint = m.StreamsGroupHeartbeatRequest.Endpoint(host="here", port=4711)
    first, second = StreamThread(rig, "m1", described), StreamThread(rig, "m2", described)
    first.join(user_endpoint=endpoint)
    second.join()
    known = 0
    for _ in range(6):
        first.beat(endpoint_information_epoch=known)
        known = first.last.response.endpoint_information_epoch
        second.beat(endpoint_information_epoch=-1)
    (found,) = second.last.response.partitions_by_user_endpoint
    assert (found.user_endpoint.host, found.user_endpoint.port) == ("here", 4711)
    (task,) = first.active
    partitions = {one.topic: one.partitions for one in found.active_partitions}
    assert partitions == {"in": [task.partition], "narrow": [task.partition] if task.partition == 0 else []}
    first.beat(endpoint_information_epoch=known)
    assert first.last.response.partitions_by_user_endpoint is None, "nothing has changed"


def test_a_topology_cannot_change_and_an_old_one_is_told_so() -> None:
    rig = StreamsRig(TOPICS)
    StreamThread(rig, "m1", topology(subtopology("0", ["in"]), epoch=2)).join()
    with pytest.raises(ApiException) as error:
        StreamThread(rig, "m2", topology(subtopology("0", ["in", "log"]), epoch=2)).join()
    assert refused(error) is ErrorCode.INVALID_REQUEST
    stale = StreamThread(rig, "m2", topology(subtopology("0", ["log"]), epoch=1))
    stale.join()
    assert codes(stale) == [StatusCode.STALE_TOPOLOGY]


def test_a_full_group_takes_nobody_else() -> None:
    rig = StreamsRig(TOPICS, settings={"group.streams.max.size": "1"})
    joined(rig, "m1")
    with pytest.raises(ApiException) as error:
        StreamThread(rig, "m2", COUNT).join()
    assert refused(error) is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_only_tasks_that_exist_can_be_owned(rig: StreamsRig) -> None:
    (thread,) = joined(rig, "m1")
    for id_, index in (("9", 0), ("0", 4), ("0", -1)):
        claimed = [m.StreamsGroupHeartbeatRequest.TaskIds(subtopology_id=id_, partitions=[index])]
        with pytest.raises(ApiException) as error:
            rig.heartbeat("m1", thread.epoch, active_tasks=claimed, standby_tasks=[], warmup_tasks=[])
        assert refused(error) is ErrorCode.INVALID_REQUEST


def test_who_is_not_there_is_told_so(rig: StreamsRig) -> None:
    with pytest.raises(ApiException) as error:
        rig.heartbeat("m1", 1)
    assert refused(error) is ErrorCode.GROUP_ID_NOT_FOUND
    joined(rig, "m1")
    with pytest.raises(ApiException) as error:
        rig.heartbeat("m2", 1)
    assert refused(error) is ErrorCode.UNKNOWN_MEMBER_ID


EMPTY = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
FIRST = {"rebalance_timeout_ms": 1000, "topology": COUNT, "process_id": "p", **EMPTY}


@pytest.mark.parametrize(
    ("epoch", "fields", "code"),
    [
        (0, {**FIRST, "instance_id": "static"}, ErrorCode.INVALID_REQUEST),
        (0, {**FIRST, "rack_id": " "}, ErrorCode.INVALID_REQUEST),
        (0, {**FIRST, "rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        (0, {**FIRST, "topology": None}, ErrorCode.INVALID_REQUEST),
        (0, {**FIRST, "active_tasks": None}, ErrorCode.INVALID_REQUEST),
        (0, {**FIRST, "task_offsets": []}, ErrorCode.INVALID_REQUEST),
        (
            0,
            {**FIRST, "topology": topology(subtopology("0", ["in"]), epoch=-1)},
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
        ),
        (
            0,
            {**FIRST, "topology": topology(subtopology("0", ["in"]), subtopology("0", ["in"]))},
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
        ),
        (
            0,
            {**FIRST, "topology": topology(subtopology("0", ["in"], together=[([1], [])]))},
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
        ),
        (
            0,
            {**FIRST, "topology": topology(subtopology("0", ["in"], together=[([], [-1])]))},
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
        ),
        (1, {"topology": COUNT}, ErrorCode.INVALID_REQUEST),
        (1, {"active_tasks": []}, ErrorCode.INVALID_REQUEST),
        (-2, {}, ErrorCode.INVALID_REQUEST),
        (-3, {}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_requests_that_make_no_sense(
    rig: StreamsRig, epoch: int, fields: dict[str, Any], code: ErrorCode
) -> None:
    with pytest.raises(ApiException) as error:
        rig.heartbeat("m1", epoch, **fields)
    assert refused(error) is code


def test_commits_are_checked_by_epoch_and_by_task(rig: StreamsRig) -> None:
    first, _second = joined(rig, "m1", "m2")
    group = rig.group
    assert group.validate_offset_commit("m1", None, first.epoch, 9, False) is None
    for member, epoch, version, code in (
        ("m9", 1, 9, ErrorCode.UNKNOWN_MEMBER_ID),
        ("m1", first.epoch, 8, ErrorCode.UNSUPPORTED_VERSION),
        ("m1", first.epoch + 1, 9, ErrorCode.STALE_MEMBER_EPOCH),
    ):
        with pytest.raises(ApiException) as error:
            group.validate_offset_commit(member, None, epoch, version, False)
        assert refused(error) is code
    check = group.validate_offset_commit("m1", None, 2, 9, False)
    assert check is not None
    mine = next(iter(first.active)).partition
    check("in", bytes(16), mine)
    other = next(iter(all_tasks() - first.active)).partition
    for topic, partition in (("in", other), ("elsewhere", 0)):
        with pytest.raises(ApiException) as error:
            check(topic, bytes(16), partition)
        assert refused(error) is ErrorCode.STALE_MEMBER_EPOCH


def test_a_group_is_described_with_its_topology(rig: StreamsRig) -> None:
    first, _second = joined(rig, "m1", "m2")
    described = rig.module.describe(GROUP)
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Stable", 3, 3)
    (one,) = described.topology.subtopologies
    assert one.source_topics == ["in"]
    (changelog,) = one.state_changelog_topics
    assert (changelog.name, changelog.partitions) == ("log", 4)
    member = next(member for member in described.members if member.member_id == "m1")
    assert {task.partition for task in first.active} == set(member.assignment.active_tasks[0].partitions)
    assert member.assignment == member.target_assignment
    rig.reload()
    described = rig.module.describe(GROUP)
    assert described.topology.subtopologies[0].state_changelog_topics[0].partitions == 0, (
        "as the application said"
    )


def test_deleting_a_group_leaves_nothing(rig: StreamsRig) -> None:
    (thread,) = joined(rig, "m1")
    with pytest.raises(ApiException) as error:
        rig.group.validate_delete()
    assert refused(error) is ErrorCode.NON_EMPTY_GROUP
    thread.leave()
    rig.group.validate_delete()
    rig.write(rig.group.tombstones())
    assert rig.context.groups.get(GROUP) is None
    assert rig.context.groups.subscribed_to("in") == frozenset()
    assert len(rig.timers) == 0
    rig.reload()
    assert rig.context.groups.get(GROUP) is None
