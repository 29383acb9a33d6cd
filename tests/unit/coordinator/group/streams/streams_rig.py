"""A shard's streams groups without a broker: operations give records, their bytes are replayed, time is virtual."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.config.broker import SINGLE_NODE, BrokerConfig
from ottla.coordinator.group.context import GroupContext, RequestInfo
from ottla.coordinator.group.groups import Groups
from ottla.coordinator.group.offsets import Offsets
from ottla.coordinator.group.shard import SERDE
from ottla.coordinator.group.streams.group import StreamsGroup
from ottla.coordinator.group.streams.groups import StreamsGroups
from ottla.coordinator.group.streams.heartbeat import HeartbeatResult
from ottla.coordinator.group.streams.tasks import TaskId
from ottla.coordinator.group.streams.validate import validate_heartbeat
from ottla.coordinator.records import CoordinatorRecord
from ottla.coordinator.result import CoordinatorResult
from ottla.coordinator.timers import TimerOperation, Timers
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.testing.virtual_clock import VirtualClock
from ottla.wire import messages as m

GROUP = "app"
Topics = Mapping[str, int]


def image_of(topics: Topics, configs: Mapping[str, str] | None = None) -> MetadataImage:
    delta = MetadataDelta(MetadataImage())
    for number, (name, partitions) in enumerate(topics.items(), start=1):
        topic_id = number.to_bytes(16, "big")
        delta.replay(m.TopicRecord(name=name, topic_id=topic_id))
        for index in range(partitions):
            delta.replay(
                m.PartitionRecord(
                    partition_id=index,
                    topic_id=topic_id,
                    replicas=[1],
                    isr=[1],
                    leader=1,
                    directories=[bytes(16)],
                )
            )
    for key, value in (configs or {}).items():
        delta.replay(m.ConfigRecord(resource_type=32, resource_name=GROUP, name=key, value=value))
    return delta.apply(1, 1)


def topic_info(name: str, partitions: int = 0, **configs: str) -> Any:
    return m.StreamsGroupHeartbeatRequest.TopicInfo(
        name=name,
        partitions=partitions,
        topic_configs=[
            m.StreamsGroupHeartbeatRequest.KeyValue(key=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )


def subtopology(
    id_: str,
    sources: list[str],
    *,
    reads: list[Any] | None = None,
    writes: list[str] | None = None,
    changelogs: list[str] | None = None,
    together: list[tuple[list[int], list[int]]] | None = None,
) -> Any:
    """`reads` are repartition topics, `together` copartition groups as (source, repartition) positions."""
    request = m.StreamsGroupHeartbeatRequest
    return request.Subtopology(
        subtopology_id=id_,
        source_topics=sources,
        repartition_source_topics=reads or [],
        repartition_sink_topics=writes or [],
        state_changelog_topics=[topic_info(name, cleanup_policy="compact") for name in changelogs or []],
        copartition_groups=[
            request.CopartitionGroup(source_topics=source, repartition_source_topics=repartition)
            for source, repartition in together or []
        ],
    )


def topology(*subtopologies: Any, epoch: int = 0) -> Any:
    return m.StreamsGroupHeartbeatRequest.Topology(epoch=epoch, subtopologies=list(subtopologies))


def task_structs(tasks: set[TaskId]) -> list[Any]:
    return [
        m.StreamsGroupHeartbeatRequest.TaskIds(subtopology_id=task.subtopology, partitions=[task.partition])
        for task in sorted(tasks)
    ]


def response_tasks(structs: list[Any] | None) -> set[TaskId] | None:
    if structs is None:
        return None
    return {TaskId(one.subtopology_id, index) for one in structs for index in one.partitions}


class StreamsRig:
    """One shard's streams groups, and everything ever written."""

    def __init__(self, topics: Topics, *, settings: Mapping[str, str] | None = None) -> None:
        self.clock = VirtualClock()
        quick = {"group.streams.initial.rebalance.delay.ms": "0", "group.streams.assignment.interval.ms": "0"}
        self.config = BrokerConfig({**SINGLE_NODE, **quick, **(settings or {})})
        self.log: list[tuple[bytes, bytes | None]] = []
        self._load(image_of(topics))

    def _load(self, image: MetadataImage) -> None:
        self.timers = Timers(self.clock, self._submit)
        groups = Groups()
        self.context = GroupContext(
            groups, Offsets(lambda group_id, ms: None), self.timers, self.clock, self.config, image
        )
        self.module = StreamsGroups(self.context)
        self._replays = self.module.replays()

    def reload(self) -> None:
        """Forget everything but the log: what another broker would have after taking over."""
        self.timers.cancel_all()
        self._load(self.context.image)
        for key, value in self.log:
            self._replay(SERDE.decode(key, value))
        self.module.on_loaded(self.clock.now_ms())

    def _submit(self, operation: TimerOperation, still_wanted: Any, failed: Any) -> None:
        if still_wanted():
            self._take(operation(self.clock.now_ms()))

    def _take(self, result: CoordinatorResult[Any]) -> Any:
        for record in result.records:
            written = (SERDE.key_bytes(record), SERDE.value_bytes(record))
            self.log.append(written)
            self._replay(SERDE.decode(*written))
        return result.response

    def write(self, records: list[CoordinatorRecord]) -> None:
        self._take(CoordinatorResult(records, None))

    def _replay(self, record: CoordinatorRecord) -> None:
        self._replays[record.key.NAME](record.key, record.value)

    @property
    def group(self) -> StreamsGroup:
        return self.context.groups.get_as(StreamsGroup, GROUP)

    def set_topics(self, topics: Topics, configs: Mapping[str, str] | None = None) -> None:
        old, new = self.context.image, image_of(topics, configs)
        self.context.image = new
        self.module.on_metadata_update(MetadataDelta.between(old, new))

    def heartbeat(self, member_id: str, epoch: int, **fields: Any) -> HeartbeatResult:
        request = m.StreamsGroupHeartbeatRequest(
            group_id=GROUP, member_id=member_id, member_epoch=epoch, **fields
        )
        validate_heartbeat(request)
        info = RequestInfo(0, "client", "/127.0.0.1")
        answer: HeartbeatResult = self._take(self.module.heartbeat(info, request, self.clock.now_ms()))
        return answer

    def join(
        self, member_id: str, topology: Any, process_id: str | None = None, **fields: Any
    ) -> HeartbeatResult:
        return self.heartbeat(
            member_id,
            0,
            topology=topology,
            process_id=process_id or f"process-{member_id}",
            rebalance_timeout_ms=60_000,
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
            **fields,
        )


class StreamThread:
    """A member that follows its responses: takes and revokes tasks, and reports that in its next heartbeat."""

    def __init__(self, rig: StreamsRig, member_id: str, topology: Any, process_id: str | None = None) -> None:
        self.rig, self.id, self.topology, self.process_id = rig, member_id, topology, process_id
        self.epoch = 0
        self.active: set[TaskId] = set()
        self.standby: set[TaskId] = set()
        self._report = False
        self.last: HeartbeatResult

    def join(self, **fields: Any) -> HeartbeatResult:
        self.active, self.standby = set(), set()
        return self._take(self.rig.join(self.id, self.topology, self.process_id, **fields))

    def beat(self, **fields: Any) -> HeartbeatResult:
        if self._report:
            fields.update(
                active_tasks=task_structs(self.active),
                standby_tasks=task_structs(self.standby),
                warmup_tasks=[],
            )
        self._report = False
        return self._take(self.rig.heartbeat(self.id, self.epoch, **fields))

    def leave(self) -> None:
        self.rig.heartbeat(self.id, -1)

    def report_all(self) -> None:
        """Say in the next heartbeat what is run, as after an answer that was lost."""
        self._report = True

    def _take(self, answer: HeartbeatResult) -> HeartbeatResult:
        response = answer.response
        self.epoch = response.member_epoch
        active, standby = response_tasks(response.active_tasks), response_tasks(response.standby_tasks)
        if active is not None and standby is not None:
            self.active, self.standby = active, standby
            self._report = True
        self.last = answer
        return answer


def settle(threads: list[StreamThread], rounds: int = 12) -> None:
    """Heartbeats of all members in turn until nothing more can happen."""
    for _ in range(rounds):
        for thread in threads:
            thread.beat()
