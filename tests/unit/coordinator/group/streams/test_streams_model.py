"""A streams group under everything that can happen to it: no task active twice, all assigned once it is quiet."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from effort import examples
from ottla.coordinator.group.streams.group import StreamsGroup, StreamsGroupState
from ottla.coordinator.group.streams.tasks import TaskId
from ottla.errors import ApiException, ErrorCode
from unit.coordinator.group.streams.streams_rig import (
    StreamsRig,
    StreamThread,
    settle,
    subtopology,
    topic_info,
    topology,
)

APPLICATION = topology(
    subtopology("0", ["in"], writes=["again"]),
    subtopology("1", [], reads=[topic_info("again")], changelogs=["log"]),
)
MEMBERS = [f"m{number}" for number in range(5)]
REJOIN = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)


class StreamsGroupMachine(RuleBasedStateMachine):
    """Members run exactly the tasks of their last response, and stop them when they are fenced."""

    def __init__(self) -> None:
        super().__init__()
        self.partitions = 3
        self.standbys = 0
        self.threads: dict[str, StreamThread] = {}
        self.rig = StreamsRig({})

    @initialize(partitions=st.integers(1, 4))
    def create_topics(self, partitions: int) -> None:
        self.partitions = partitions
        self._publish()

    def _publish(self) -> None:
        topics = dict.fromkeys(("in", "again", "log"), self.partitions)
        self.rig.set_topics(topics, {"streams.num.standby.replicas": str(self.standbys)})

    @rule(member=st.sampled_from(MEMBERS))
    def join(self, member: str) -> None:
        if member not in self.threads:
            self.threads[member] = StreamThread(
                self.rig, member, APPLICATION, f"process-{int(member[1:]) // 2}"
            )
        self.threads[member].join()

    @rule(data=st.data())
    def beat(self, data: Any) -> None:
        if self.threads:
            self._beat(self.threads[data.draw(st.sampled_from(sorted(self.threads)))])

    def _beat(self, thread: StreamThread) -> None:
        try:
            thread.beat()
        except ApiException as error:
            assert error.code in REJOIN, error
            thread.join()

    @rule(data=st.data())
    def lose_an_answer(self, data: Any) -> None:
        """The heartbeat arrives, the answer does not: the member says the same again."""
        if self.threads:
            thread = self.threads[data.draw(st.sampled_from(sorted(self.threads)))]
            before = thread.epoch, set(thread.active), set(thread.standby)
            self._beat(thread)
            if thread.epoch != 0 and before[0] != 0 and thread.id in self.rig.group.members:
                thread.epoch, thread.active, thread.standby = before
                thread.report_all()

    @rule(data=st.data())
    def leave(self, data: Any) -> None:
        if self.threads:
            thread = self.threads.pop(data.draw(st.sampled_from(sorted(self.threads))))
            try:
                thread.leave()
            except ApiException as error:
                assert error.code in REJOIN, error

    @rule(data=st.data())
    def die(self, data: Any) -> None:
        """It stops working at once; the group finds out when its session ends."""
        if self.threads:
            self.threads.pop(data.draw(st.sampled_from(sorted(self.threads))))

    @rule(seconds=st.sampled_from([1, 20, 50]))
    def pass_time(self, seconds: int) -> None:
        self.rig.clock.advance(seconds)
        # A thread stops its tasks by itself when it could not heartbeat for so long.
        known = self.rig.context.groups.get("app")
        members = known.members if isinstance(known, StreamsGroup) else {}
        for thread in self.threads.values():
            if thread.id not in members:
                thread.active, thread.standby = set(), set()

    @rule(more=st.integers(1, 2))
    def grow(self, more: int) -> None:
        self.partitions = min(self.partitions + more, 6)
        self._publish()

    @rule(standbys=st.integers(0, 2))
    def want_standbys(self, standbys: int) -> None:
        self.standbys = standbys
        self._publish()

    @rule()
    def fail_over(self) -> None:
        """Another broker reads the log: it finds the same group."""
        before = self._hard_state()
        self.rig.reload()
        assert self._hard_state() == before

    def _hard_state(self) -> Any:
        group = self.rig.context.groups.get("app")
        if not isinstance(group, StreamsGroup):
            return None
        return (
            group.epoch,
            group.metadata_hash,
            group.validated_topology_epoch,
            group.assignment_configs,
            group.assignment_epoch,
            group.assignment_ms,
            group.topology,
            group.members,
            group.targets,
            group.state,
        )

    @rule()
    def come_to_rest(self) -> None:
        if not self.threads:
            return
        self.rig.clock.advance(0.001)
        for _ in range(4):
            for thread in self.threads.values():
                self._beat(thread)
            self.rig.clock.advance(15)
        threads = list(self.threads.values())
        settle(threads)
        active = Counter(task for thread in threads for task in thread.active)
        assert active == Counter(TaskId(id_, index) for id_ in "01" for index in range(self.partitions))
        processes = {self.rig.group.members[thread.id].process_id for thread in threads}
        standby = Counter(task for thread in threads for task in thread.standby)
        spare = min(self.standbys, len(processes) - 1)
        wanted = Counter({TaskId("1", index): spare for index in range(self.partitions)})
        assert standby == +wanted
        assert self.rig.group.state is StreamsGroupState.STABLE

    @invariant()
    def no_task_runs_twice(self) -> None:
        active = Counter(task for thread in self.threads.values() for task in thread.active)
        assert not active or max(active.values()) == 1, active

    @invariant()
    def no_process_has_a_task_twice(self) -> None:
        known = self.rig.context.groups.get("app")
        if not isinstance(known, StreamsGroup):
            return
        copies: Counter[tuple[str, TaskId]] = Counter()
        for member in known.members.values():
            copies.update(
                (member.process_id, task) for task in {*member.assigned.active, *member.assigned.standby}
            )
        assert not copies or max(copies.values()) == 1, copies


StreamsGroupMachine.TestCase.settings = settings(
    max_examples=examples(40), stateful_step_count=40, deadline=None
)
TestStreamsGroup = StreamsGroupMachine.TestCase
