"""The coordinator runtime on a real log in memory, on a clock that tests move; groups on top of it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from ottla.config.broker import BrokerConfig
from ottla.coordinator.group.classic.rebalance import SHORTEST_FORMING_MS
from ottla.coordinator.group.classic.state import ClassicState
from ottla.coordinator.group.context import RequestInfo
from ottla.coordinator.group.shard import SERDE, GroupShard
from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.coordinator.shard import ShardContext
from ottla.errors import ApiException
from ottla.log.partition_log import PartitionLog
from ottla.log.types import AppendInfo, AppendOrigin
from ottla.log.verification import UNVERIFIED, VerificationGuard
from ottla.metadata.image import MetadataImage
from ottla.testing.virtual_clock import VirtualClock
from ottla.wire import messages
from ottla.wire.codec import encode
from unit.log.log_rig import Rig as LogRig

TOPIC = "__consumer_offsets"


class Inline(Executor):
    """Runs its work at once, or when a test releases it."""

    def __init__(self) -> None:
        self.held: list[Callable[[], None]] | None = None

    def submit(self, work: Any, /, *words: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(work(*words, **options))
            except Exception as error:  # noqa: BLE001 - the future carries it
                future.set_exception(error)

        if self.held is None:
            run()
        else:
            self.held.append(run)
        return future

    def release(self) -> None:
        held, self.held = self.held or [], None
        for run in held:
            run()


class LogPartition:
    """A `CoordinatorPartition`. With `replicas_lag`, the high watermark moves only by `catch_up`."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.refusal: ApiException | None = None
        """What a check before an append raises."""
        self.fault: ApiException | None = None
        """What the append itself raises."""
        self.replicas_lag = False
        self.appends = 0
        self.on_change: Callable[[], None] | None = None

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    @property
    def max_batch_bytes(self) -> int:
        return self.log.config.max_message_bytes

    def check_can_append(self) -> None:
        if self.refusal is not None:
            raise self.refusal

    def append(
        self,
        batch: bytes,
        now_ms: int,
        transaction_version: int = 0,
        guard: VerificationGuard | None = None,
    ) -> AppendInfo:
        self.check_can_append()
        if self.fault is not None:
            raise self.fault
        self.appends += 1
        info = self.log.append_as_leader(
            batch,
            0,
            now_ms=now_ms,
            origin=AppendOrigin.COORDINATOR,
            transaction_version=transaction_version,
            guard=guard,
        )
        if not self.replicas_lag:
            self.log.high_watermark = self.log.log_end_offset
        return info

    def catch_up(self, offset: int | None = None) -> None:
        self.log.high_watermark = self.log.log_end_offset if offset is None else offset
        if self.on_change is not None:
            self.on_change()

    def read(self, offset: int, max_bytes: int) -> memoryview:
        return self.log.read(offset, max_bytes).records

    def listen(self, on_change: Callable[[], None] | None) -> None:
        self.on_change = on_change


class Answer:
    """What came of an operation: nothing yet, a response, or an error."""

    def __init__(self) -> None:
        self.outcomes: list[Any] = []

    @property
    def there(self) -> bool:
        return bool(self.outcomes)

    def get(self) -> Any:
        """The response; the error is raised."""
        (outcome,) = self.outcomes
        if isinstance(outcome, ApiException):
            raise outcome
        return outcome

    @property
    def code(self) -> int:
        """The error code: raised, or in the response."""
        (outcome,) = self.outcomes
        return int(outcome.code if isinstance(outcome, ApiException) else outcome.error_code)


class RuntimeRig:
    """A runtime over shards of any kind, with one partition, on one log."""

    def __init__(self, new_shard: Callable[[ShardContext], Any], serde: Any = SERDE, **options: Any) -> None:
        self.clock = VirtualClock()
        self.logs = LogRig(cleanup_policy="compact", **options.pop("topic", {}))
        self.partition = LogPartition(self.logs.log)
        self.executor = Inline()
        self.opened = 0
        self.unprepared: list[Callable[[], None]] | None = None
        """Set it to a list to keep partitions unprepared: it then holds what to call."""
        self.image = MetadataImage(offset=0)
        self._options = {"linger_ms": 0, **options}
        self._new_shard = new_shard
        self._serde = serde
        self.runtime: CoordinatorRuntime[Any] = self._start()

    def _start(self) -> CoordinatorRuntime[Any]:
        runtime: CoordinatorRuntime[Any] = CoordinatorRuntime(
            topic=TOPIC,
            clock=self.clock,
            executor=self.executor,
            post=lambda call, *words: self.clock.call_later(0, call, *words),
            partitions=self,
            serde=self._serde,
            new_shard=self._new_shard,
            image=self.image,
            **self._options,
        )
        return runtime

    def prepare(self, topic: str, partition: int, proceed: Callable[[], None]) -> None:
        if self.unprepared is None:
            proceed()
        else:
            self.unprepared.append(proceed)

    def open(self, topic: str, partition: int) -> LogPartition:
        assert (topic, partition) == (TOPIC, 0)
        self.opened += 1
        return self.partition

    def elect(self) -> None:
        self.runtime.elect(0, 0)
        self.settle()

    def settle(self) -> None:
        """Let everything run that is due now."""
        self.clock.advance(0)

    def restart(self) -> None:
        """Another coordinator takes over, from the log alone."""
        self.runtime.shutdown()
        self.runtime = self._start()
        self.elect()

    def write(self, operation: Any) -> Answer:
        answer = Answer()
        self.runtime.write(0, operation, answer.outcomes.append, answer.outcomes.append)
        self.settle()
        return answer

    def read(self, operation: Any) -> Answer:
        answer = Answer()
        self.runtime.read(0, operation, answer.outcomes.append, answer.outcomes.append)
        self.settle()
        return answer

    @property
    def shard(self) -> Any:
        return self.runtime.shard(0)


def subscription(*topics: str) -> bytes:
    """What a consumer says about itself when it joins."""
    return b"\0\0" + encode(messages.ConsumerProtocolSubscription(topics=list(topics)), 0)


class GroupRig(RuntimeRig):
    """One shard of the group coordinator, and requests as members send them."""

    def __init__(self, **settings: Any) -> None:
        words = {key.replace("_", "."): str(value) for key, value in settings.items()}
        self.config = BrokerConfig.single_node({"group.initial.rebalance.delay.ms": "0", **words})
        super().__init__(lambda context: GroupShard(context, self.config, self.image))
        self.elect()

    def group(self, group_id: str = "g") -> Any:
        return self.shard.groups.get(group_id)

    # -- members

    def join(
        self,
        member_id: str = "",
        *,
        group_id: str = "g",
        instance_id: str | None = None,
        protocols: dict[str, bytes] | None = None,
        protocol_type: str = "consumer",
        version: int = 9,
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        client_id: str = "c",
    ) -> Answer:
        request = messages.JoinGroupRequest(
            group_id=group_id,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            protocols=[
                messages.JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in (protocols or {"range": b"\0\0"}).items()
            ],
        )
        info = RequestInfo(version, client_id, "/127.0.0.1")
        joining = self.write(lambda shard, now_ms: shard.classic.join(info, request, now_ms))
        if not self.config.int("group.initial.rebalance.delay.ms"):
            self._let_it_form(group_id)
        return joining

    def _let_it_form(self, group_id: str) -> None:
        group = self.group(group_id)
        if group is not None and (group.previous_state, group.state) == (
            ClassicState.EMPTY,
            ClassicState.PREPARING_REBALANCE,
        ):
            self.clock.advance_ms(SHORTEST_FORMING_MS)

    def join_new(self, **options: Any) -> tuple[str, Answer]:
        """The two steps of a new dynamic member; its id, and its waiting join."""
        refusal = self.join(**options).get()
        return refusal.member_id, self.join(refusal.member_id, **options)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group_id: str = "g",
        instance_id: str | None = None,
        protocol: str | None = None,
    ) -> Answer:
        request = messages.SyncGroupRequest(
            group_id=group_id,
            member_id=member_id,
            generation_id=generation,
            group_instance_id=instance_id,
            protocol_name=protocol,
            assignments=[
                messages.SyncGroupRequest.SyncGroupRequestAssignment(member_id=each, assignment=assignment)
                for each, assignment in (assignments or {}).items()
            ],
        )
        info = RequestInfo(5, "c", "/127.0.0.1")
        return self.write(lambda shard, now_ms: shard.classic.sync(info, request, now_ms))

    def heartbeat(
        self, member_id: str, generation: int, group_id: str = "g", instance_id: str | None = None
    ) -> int:
        request = messages.HeartbeatRequest(
            group_id=group_id,
            member_id=member_id,
            generation_id=generation,
            group_instance_id=instance_id,
        )
        info = RequestInfo(4, "c", "/127.0.0.1")
        return self.write(lambda shard, now_ms: shard.classic.heartbeat(info, request, now_ms)).code

    def leave(self, *members: str | tuple[str, str], group_id: str = "g") -> list[int]:
        """By member id, or by (member id, instance id); the codes."""
        identity = messages.LeaveGroupRequest.MemberIdentity
        request = messages.LeaveGroupRequest(
            group_id=group_id,
            members=[
                identity(member_id=each)
                if isinstance(each, str)
                else identity(member_id=each[0], group_instance_id=each[1])
                for each in members
            ],
        )
        info = RequestInfo(5, "c", "/127.0.0.1")
        response = self.write(lambda shard, now_ms: shard.classic.leave(info, request, now_ms)).get()
        return [member.error_code for member in response.members]

    def stable(self, count: int = 2, **options: Any) -> list[str]:
        """A group with so many members, each with its own id as its assignment, leader first."""
        joins = [self.join_new(**options) for _ in range(count)]
        for _ in range(10):
            if all(join.there for _, join in joins):
                generation = self.group(options.get("group_id", "g")).generation
                if all(join.get().generation_id == generation for _, join in joins):
                    break
            joins = [
                (member_id, join if not join.there else self.join(member_id, **options))
                for member_id, join in joins
            ]
        leader = self.group(options.get("group_id", "g")).leader_id
        members = sorted((member_id for member_id, _ in joins), key=lambda each: each != leader)
        group_id = options.get("group_id", "g")
        generation = self.group(group_id).generation
        waiting = [self.sync(each, generation, group_id=group_id) for each in members[1:]]
        assert self.sync(leader, generation, {m: m.encode() for m in members}, group_id=group_id).code == 0
        assert all(each.code == 0 for each in waiting)
        return members

    # -- offsets

    def commit(
        self,
        offset: int,
        partition: int = 0,
        *,
        group_id: str = "g",
        topic: str = "t",
        member_id: str = "",
        generation: int = -1,
        instance_id: str | None = None,
        metadata: str = "",
        retention_ms: int = -1,
        version: int = 9,
        topic_id: bytes = bytes(16),
    ) -> Answer:
        part = messages.OffsetCommitRequest
        request = part(
            group_id=group_id,
            member_id=member_id,
            generation_id_or_member_epoch=generation,
            group_instance_id=instance_id,
            retention_time_ms=retention_ms,
            topics=[
                part.OffsetCommitRequestTopic(
                    name=topic,
                    topic_id=topic_id,
                    partitions=[
                        part.OffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=offset,
                            committed_metadata=metadata,
                        )
                    ],
                )
            ],
        )
        info = RequestInfo(version, "c", "/127.0.0.1")
        return self.write(lambda shard, now_ms: shard.commits.commit(info, request, now_ms))

    def commit_in_transaction(
        self, producer_id: int, offset: int, partition: int = 0, *, group_id: str = "g", topic: str = "t"
    ) -> Answer:
        part = messages.TxnOffsetCommitRequest
        request = part(
            transactional_id="x",
            group_id=group_id,
            producer_id=producer_id,
            producer_epoch=0,
            topics=[
                part.TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        part.TxnOffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=offset, committed_metadata=None
                        )
                    ],
                )
            ],
        )
        info = RequestInfo(3, "c", "/127.0.0.1")
        answer = Answer()
        self.runtime.write_transactional(
            0,
            producer_id,
            0,
            lambda shard, now_ms: shard.commits.commit_transactional(info, request, now_ms),
            answer.outcomes.append,
            answer.outcomes.append,
            UNVERIFIED,
        )
        self.settle()
        return answer

    def end_transaction(self, producer_id: int, *, commit: bool) -> Answer:
        answer = Answer()
        self.runtime.complete_transaction(
            0, producer_id, 0, 0, commit, answer.outcomes.append, answer.outcomes.append
        )
        self.settle()
        return answer

    def fetch(
        self,
        partition: int = 0,
        *,
        group_id: str = "g",
        topic: str = "t",
        stable: bool = False,
        topic_id: bytes = bytes(16),
    ) -> tuple[int, int]:
        """(offset, error code) of one partition."""
        part = messages.OffsetFetchRequest
        group = part.OffsetFetchRequestGroup(
            group_id=group_id,
            topics=[
                part.OffsetFetchRequestTopics(name=topic, topic_id=topic_id, partition_indexes=[partition])
            ],
        )
        response = self.read(lambda shard, now_ms: shard.commits.fetch(group, stable)).get()
        (found,) = response.topics[0].partitions
        return found.committed_offset, found.error_code
