"""A consumer's lookups and commits through librdkafka, with this API's exceptions."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as EnginePartition

from ottla.client.errors import CommitFailedError, KafkaError, for_code, from_engine
from ottla.client.futures import Future
from ottla.client.structs import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from ottla.errors import ErrorCode

if TYPE_CHECKING:
    from confluent_kafka import KafkaError as EngineError

    from ottla.client.engine_types import EngineSettings

EARLIEST = -2
LATEST = -1
_NO_OFFSET = -1001
_PUMP_S = 0.02

_NOT_OURS = {
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.STALE_MEMBER_EPOCH,
}

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


def open_consumer(settings: EngineSettings) -> Consumer:
    try:
        return Consumer(settings)
    except KafkaException as problem:
        raise from_engine(problem.args[0]) from None


def ours(partitions: Iterable[EnginePartition]) -> list[TopicPartition]:
    return [TopicPartition(one.topic, one.partition) for one in partitions]


def theirs(positions: Mapping[TopicPartition, int]) -> list[EnginePartition]:
    return [EnginePartition(tp.topic, tp.partition, offset) for tp, offset in positions.items()]


def list_offsets(
    engine: Consumer, wanted: Mapping[TopicPartition, int], timeout_s: float
) -> dict[TopicPartition, int]:
    """Offsets by time, where EARLIEST and LATEST are times as well."""
    if not wanted:
        return {}
    try:
        found = engine.offsets_for_times(theirs(wanted), timeout=timeout_s)
    except KafkaException as problem:
        raise from_engine(problem.args[0]) from None
    for one in found:
        if one.error is not None:
            raise from_engine(one.error)
    return {TopicPartition(one.topic, one.partition): one.offset for one in found}


def records_at_times(
    settings: EngineSettings, wanted: Mapping[TopicPartition, int], isolation_level: str, timeout_s: float
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """The first record at or after each time. Only the engine's admin client returns that record's own time."""
    from confluent_kafka import IsolationLevel
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._listoffsets import OffsetSpec

    if not wanted:
        return {}
    level = IsolationLevel.READ_COMMITTED if "un" not in isolation_level else IsolationLevel.READ_UNCOMMITTED
    admin = AdminClient(settings)
    request = {
        EnginePartition(tp.topic, tp.partition): OffsetSpec.for_timestamp(at) for tp, at in wanted.items()
    }
    found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
    try:
        answers = admin.list_offsets(request, isolation_level=level, request_timeout=timeout_s)
        for one, answer in answers.items():
            result = answer.result()
            epoch = result.leader_epoch if result.leader_epoch is not None else -1
            found[TopicPartition(one.topic, one.partition)] = (
                OffsetAndTimestamp(result.offset, result.timestamp, epoch) if result.offset >= 0 else None
            )
    except KafkaException as problem:
        raise from_engine(problem.args[0]) from None
    return found


def committed(
    engine: Consumer, partitions: Iterable[TopicPartition], timeout_s: float
) -> dict[TopicPartition, OffsetAndMetadata]:
    """The committed offsets of the group; partitions without one are left out."""
    try:
        found = engine.committed(theirs(dict.fromkeys(partitions, _NO_OFFSET)), timeout=timeout_s)
    except KafkaException as problem:
        raise from_engine(problem.args[0]) from None
    offsets = {}
    for one in found:
        if one.error is not None:
            raise from_engine(one.error)
        if one.offset >= 0:
            epoch = one.leader_epoch if one.leader_epoch is not None else -1
            offsets[TopicPartition(one.topic, one.partition)] = OffsetAndMetadata(
                one.offset, one.metadata or "", epoch
            )
    return offsets


def commit(engine: Consumer, offsets: Offsets) -> None:
    """Commit and wait for the answer."""
    if not offsets:
        return
    try:
        answers = engine.commit(offsets=_engine_offsets(offsets), asynchronous=False)
    except KafkaException as problem:
        raise _commit_error(problem.args[0]) from None
    for answer in answers or ():
        if answer.error is not None:
            raise _commit_error(answer.error)


def _engine_offsets(offsets: Offsets) -> list[EnginePartition]:
    wanted = []
    for tp, one in offsets.items():
        epoch = getattr(one, "leader_epoch", None)
        known = {} if epoch is None or epoch < 0 else {"leader_epoch": epoch}
        wanted.append(EnginePartition(tp.topic, tp.partition, one.offset, one.metadata or "", **known))
    return wanted


def _commit_error(error: EngineError) -> KafkaError:
    if error.code() in _NOT_OURS:
        cause = for_code(error.code()).__name__
        return CommitFailedError(f"the group gave these partitions to another member meanwhile ({cause})")
    return from_engine(error)


class Committer:
    """Commits in the background. The engine reports results while the consumer polls; a `get` on such a
    commit's future polls for it."""

    def __init__(self, pump: Callable[[float], None]) -> None:
        self._pump = pump
        self._pending: deque[tuple[Offsets, Future[Offsets]]] = deque()

    def commit(
        self, engine: Consumer, offsets: Offsets, callback: Callable[..., object] | None
    ) -> Future[Offsets]:
        """The future and the callback, `callback(offsets, response_or_exception)`, get the result."""
        future = _Commit(self._pump)
        if callback is not None:
            future.add_both(lambda result: callback(offsets, result))
        if not offsets:
            future.success(offsets)
            return future
        self._pending.append((offsets, future))
        try:
            engine.commit(offsets=_engine_offsets(offsets), asynchronous=True)
        except KafkaException as problem:
            self._pending.pop()
            future.failure(_commit_error(problem.args[0]))
        return future

    def committed(self, error: EngineError | None, partitions: list[EnginePartition]) -> None:
        """Take the engine's result of one commit: the oldest one with these offsets."""
        found = {TopicPartition(one.topic, one.partition): one.offset for one in partitions}
        for number, (offsets, future) in enumerate(self._pending):
            if {tp: one.offset for tp, one in offsets.items()} == found:
                del self._pending[number]
                failed = error or next((one.error for one in partitions if one.error is not None), None)
                if failed is None:
                    future.success(offsets)
                else:
                    future.failure(_commit_error(failed))
                return

    def wait(self, timeout_s: float) -> None:
        """Wait for the commits under way."""
        deadline = time.monotonic() + timeout_s
        while self._pending and time.monotonic() < deadline:
            self._pump(_PUMP_S)


class _Commit(Future[Offsets]):
    """A commit's future. A caller that waits for it polls."""

    __slots__ = ("_pump",)

    def __init__(self, pump: Callable[[float], None]) -> None:
        super().__init__()
        self._pump = pump

    def _wait(self, timeout: float | None) -> bool:
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.is_done and (deadline is None or time.monotonic() < deadline):
            self._pump(_PUMP_S)
        return self.is_done
