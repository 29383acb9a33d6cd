"""A streams group: its members, its topology and its target. Only replay changes it, with the exceptions below."""

from __future__ import annotations

from collections.abc import Mapping, Set
from enum import Enum
from typing import TYPE_CHECKING, Final

from ottla.coordinator.group.group import CommitPartitionValidator, ExpiryBase, GroupType
from ottla.coordinator.group.modern_group import ModernGroup
from ottla.coordinator.group.streams.configure import ConfiguredTopology
from ottla.coordinator.group.streams.member import StreamsMember
from ottla.coordinator.group.streams.records import group_tombstones
from ottla.coordinator.group.streams.tasks import NO_TASKS, OwnedTasks, TaskId, Tasks
from ottla.coordinator.group.streams.topology import Topology
from ottla.coordinator.records import CoordinatorRecord
from ottla.errors import ApiException, ErrorCode
from ottla.ids import GroupId, TopicName

if TYPE_CHECKING:
    from ottla.coordinator.timers import Timers

NO_EPOCH: Final = -1
_UNKNOWN_GENERATION: Final = -1
_FIRST_COMMIT_VERSION: Final = 9
_NO_PROCESSES: Final[frozenset[str]] = frozenset()


class StreamsGroupState(Enum):
    """The states, by the names that tools show."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    """Topics of its topology are missing or have the wrong number of partitions."""
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


def initial_rebalance_key(group_id: str) -> tuple[str, str]:
    """The timer until which a new group waits for more members."""
    return ("streams-initial-rebalance", group_id)


class StreamsGroup(ModernGroup[StreamsMember]):
    """Implements `Group`, and `TaskOwners` for reconciliation."""

    __slots__ = (
        "_active",
        "_standby",
        "_warmup",
        "assignment_configs",
        "configured",
        "endpoint_epoch",
        "shutdown_requested_by",
        "static_members",
        "targets",
        "topology",
        "validated_topology_epoch",
    )

    type = GroupType.STREAMS

    def __init__(self, group_id: GroupId) -> None:
        super().__init__(group_id)
        self.assignment_epoch = 1
        self.validated_topology_epoch = 0
        self.assignment_configs: Mapping[str, str] = {}
        self.topology: Topology | None = None
        self.static_members: dict[str, str] = {}
        self.targets: dict[str, Tasks] = {}
        self._active: dict[TaskId, str] = {}
        self._standby: dict[TaskId, set[str]] = {}
        self._warmup: dict[TaskId, set[str]] = {}
        # These are not in records: operations set them, also after a load.
        self.configured: ConfiguredTopology | None = None
        self.shutdown_requested_by: str | None = None
        self.endpoint_epoch = 0

    # -- members

    def put_member(self, member: StreamsMember) -> None:
        self._disown(self.members.get(member.id))
        self.members[member.id] = member
        self._own(member)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.id

    def remove_member(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        self._disown(member)
        if member is not None and member.instance_id is not None:
            self.static_members.pop(member.instance_id, None)
        if not self.members:
            self.shutdown_requested_by = None

    def target(self, member_id: str) -> Tasks:
        return self.targets.get(member_id, NO_TASKS)

    # -- TaskOwners

    def active_process(self, task: TaskId) -> str | None:
        return self._active.get(task)

    def standby_processes(self, task: TaskId) -> Set[str]:
        return self._standby.get(task, _NO_PROCESSES)

    def warmup_processes(self, task: TaskId) -> Set[str]:
        return self._warmup.get(task, _NO_PROCESSES)

    def _own(self, member: StreamsMember) -> None:
        for tasks in (member.assigned, member.pending_revocation):
            self._active.update(dict.fromkeys(tasks.active, member.process_id))
            for owners, owned in self._replicas(tasks):
                for task in owned:
                    owners.setdefault(task, set()).add(member.process_id)

    def _disown(self, member: StreamsMember | None) -> None:
        if member is None:
            return
        for tasks in (member.assigned, member.pending_revocation):
            for task in tasks.active:
                if self._active.get(task) == member.process_id:
                    del self._active[task]
            for owners, owned in self._replicas(tasks):
                for task in owned:
                    processes = owners.get(task, set())
                    processes.discard(member.process_id)
                    if not processes:
                        owners.pop(task, None)

    def _replicas(self, tasks: OwnedTasks) -> tuple[tuple[dict[TaskId, set[str]], Set[TaskId]], ...]:
        return (self._standby, tasks.standby), (self._warmup, tasks.warmup)

    # -- Group

    @property
    def state(self) -> StreamsGroupState:
        if not self.members:
            return StreamsGroupState.EMPTY
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return StreamsGroupState.NOT_READY
        if self.epoch > self.assignment_epoch:
            return StreamsGroupState.ASSIGNING
        if all(member.reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return StreamsGroupState.STABLE
        return StreamsGroupState.RECONCILING

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def protocol_type(self) -> str:
        return "streams"

    def validate_offset_commit(
        self, member_id: str, instance_id: str | None, epoch: int, api_version: int, is_transactional: bool
    ) -> CommitPartitionValidator | None:
        if epoch < 0 and not self.members:
            # Admin tools commit for an empty group.
            return None
        if is_transactional and epoch == _UNKNOWN_GENERATION and not member_id and instance_id is None:
            # Producers before KIP-447 do not send the member.
            return None
        member = self.member(member_id)
        if not is_transactional and api_version < _FIRST_COMMIT_VERSION:
            raise ApiException(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Members of streams groups must use OffsetCommit {_FIRST_COMMIT_VERSION} or later.",
            )
        if epoch == member.epoch:
            return None
        if epoch > member.epoch:
            raise _stale(f"The received member epoch {epoch} is newer than the member's, {member.epoch}.")
        return self._assignment_epoch_validator(member, epoch)

    def _assignment_epoch_validator(self, member: StreamsMember, epoch: int) -> CommitPartitionValidator:
        """A commit that was sent before the epoch rose is valid for tasks that the member has had since then."""
        topology = self.topology
        if topology is None:
            raise _stale("The group has no topology to check the commit against.")
        since = {**member.pending_revocation.active, **member.assigned.active}

        def validate(topic: str, topic_id: bytes, partition: int) -> None:
            subtopology = topology.subtopology_of(TopicName(topic))
            if subtopology is None:
                raise _stale(f"Topic {topic} is not in the topology.")
            task = TaskId(subtopology, partition)
            if task not in since:
                raise _stale(f"Task {task} is not assigned to the member.")
            if epoch < since[task]:
                raise _stale(f"The received member epoch {epoch} is older than task {task}'s, {since[task]}.")

        return validate

    def validate_offset_fetch(self, member_id: str, epoch: int) -> None:
        if not member_id and epoch < 0:
            return
        member = self.member(member_id)
        if epoch != member.epoch:
            raise _stale(f"The received member epoch {epoch} is not the member's, {member.epoch}.")

    def validate_offset_delete(self) -> None:
        """Always allowed; `is_subscribed_to_topic` protects the topics that members read."""

    def is_subscribed_to_topic(self, topic: str) -> bool:
        return (
            bool(self.members)
            and self.topology is not None
            and self.topology.subtopology_of(TopicName(topic)) is not None
        )

    def tombstones(self) -> list[CoordinatorRecord]:
        return group_tombstones(self.group_id, list(self.members))

    def expiry_base(self) -> ExpiryBase | None:
        return lambda offset: offset.commit_ms

    def cancel_timers(self, timers: Timers) -> None:
        timers.cancel(initial_rebalance_key(self.group_id))


def _stale(message: str) -> ApiException:
    return ApiException(ErrorCode.STALE_MEMBER_EPOCH, message)
