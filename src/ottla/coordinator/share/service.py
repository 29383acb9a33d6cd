"""The share coordinator as the APIs see it: passes requests to their shards partition by partition, and prunes.

The shard writes snapshots and updates; `persister` and the APIs send requests here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from ottla.clock import Clock, Timer
from ottla.coordinator.result import CoordinatorResult
from ottla.coordinator.runtime import CoordinatorRuntime, partition_for
from ottla.coordinator.share.shard import ShareCoordinatorShard
from ottla.coordinator.share.state import StateKey
from ottla.errors import ApiException, ErrorCode
from ottla.metadata.topic_names import SHARE_STATE_TOPIC
from ottla.promise import Done, Gather
from ottla.wire import messages

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig

_logger = logging.getLogger(__name__)


class PartitionData(Protocol):
    """One partition of a share state request; each of the five requests has its own class."""

    @property
    def partition(self) -> int: ...


class TopicData(Protocol):
    """One topic of a share state request."""

    @property
    def topic_id(self) -> bytes: ...

    @property
    def partitions(self) -> Sequence[PartitionData]: ...


class PartitionResult(Protocol):
    """One partition of a share state response."""

    @property
    def partition(self) -> int: ...

    @property
    def error_code(self) -> int: ...


class TopicResult(Protocol):
    """One topic of a share state response."""

    @property
    def topic_id(self) -> bytes: ...

    @property
    def partitions(self) -> Sequence[PartitionResult]: ...


class StateRequest(Protocol):
    """A share state request: partitions of topics of one group."""

    @property
    def group_id(self) -> str: ...

    @property
    def topics(self) -> Sequence[TopicData]: ...


class StateResponse(Protocol):
    """A share state response: a result for each partition of the request."""

    @property
    def results(self) -> Sequence[TopicResult]: ...


Req = TypeVar("Req", bound=StateRequest)
Resp = TypeVar("Resp", bound=StateResponse)


@dataclass(frozen=True, slots=True)
class StateApi(Generic[Req, Resp]):
    """One of the five share state APIs, which have one form: its message classes, and the shard's operation."""

    request: Callable[..., Req]
    topic_data: Callable[..., TopicData]
    response: Callable[..., Resp]
    topic_result: Callable[..., TopicResult]
    new_result: Callable[..., PartitionResult]
    operation: Callable[..., CoordinatorResult[Any]]
    """`(shard, key, the request's PartitionData, now_ms)`."""

    def partition_result(self, partition: int, error: ApiException) -> PartitionResult:
        """The result for a partition that an error concerns."""
        return self.new_result(partition=partition, error_code=error.code, error_message=error.message)


AnyStateApi = StateApi[Any, Any]

INITIALIZE: Final = StateApi(
    messages.InitializeShareGroupStateRequest,
    messages.InitializeShareGroupStateRequest.InitializeStateData,
    messages.InitializeShareGroupStateResponse,
    messages.InitializeShareGroupStateResponse.InitializeStateResult,
    messages.InitializeShareGroupStateResponse.PartitionResult,
    ShareCoordinatorShard.initialize,
)
READ: Final = StateApi(
    messages.ReadShareGroupStateRequest,
    messages.ReadShareGroupStateRequest.ReadStateData,
    messages.ReadShareGroupStateResponse,
    messages.ReadShareGroupStateResponse.ReadStateResult,
    messages.ReadShareGroupStateResponse.PartitionResult,
    ShareCoordinatorShard.read,
)
SUMMARY: Final = StateApi(
    messages.ReadShareGroupStateSummaryRequest,
    messages.ReadShareGroupStateSummaryRequest.ReadStateSummaryData,
    messages.ReadShareGroupStateSummaryResponse,
    messages.ReadShareGroupStateSummaryResponse.ReadStateSummaryResult,
    messages.ReadShareGroupStateSummaryResponse.PartitionResult,
    ShareCoordinatorShard.summary,
)
WRITE: Final = StateApi(
    messages.WriteShareGroupStateRequest,
    messages.WriteShareGroupStateRequest.WriteStateData,
    messages.WriteShareGroupStateResponse,
    messages.WriteShareGroupStateResponse.WriteStateResult,
    messages.WriteShareGroupStateResponse.PartitionResult,
    ShareCoordinatorShard.write,
)
DELETE: Final = StateApi(
    messages.DeleteShareGroupStateRequest,
    messages.DeleteShareGroupStateRequest.DeleteStateData,
    messages.DeleteShareGroupStateResponse,
    messages.DeleteShareGroupStateResponse.DeleteStateResult,
    messages.DeleteShareGroupStateResponse.PartitionResult,
    ShareCoordinatorShard.delete,
)

Ask = Callable[[AnyStateApi, StateKey, PartitionData, Done[PartitionResult]], None]
"""`(api, key, the request's PartitionData, done)`: calls `done` with one `PartitionResult`, which may have an error."""


class ShareCoordinator:
    """`broker.share.coordinator` in the API handlers. `delete_records(partition, offset)` prunes the topic."""

    __slots__ = ("_clock", "_config", "_delete_records", "_pruned", "_timers", "runtime")

    def __init__(
        self,
        runtime: CoordinatorRuntime[ShareCoordinatorShard],
        clock: Clock,
        config: Callable[[], BrokerConfig],
        delete_records: Callable[[int, int], None],
    ) -> None:
        self.runtime = runtime
        self._clock = clock
        self._config = config
        self._delete_records = delete_records
        self._pruned: dict[int, int] = {}
        self._timers: dict[str, Timer] = {}

    # -- requests

    def ask(self, api: AnyStateApi, key: StateKey, part: PartitionData, done: Done[PartitionResult]) -> None:
        """Run an operation on one share partition that this broker should coordinate."""

        def failed(error: ApiException) -> None:
            done(api.partition_result(key.partition, error))

        count = self.runtime.partition_count
        if not count:
            failed(
                ApiException(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{SHARE_STATE_TOPIC} does not exist yet")
            )
            return
        self.runtime.write(
            partition_for(key.coordinator_key, count),
            lambda shard, now_ms: api.operation(shard, key, part, now_ms),
            done,
            failed,
        )

    def serve(self, api: StateApi[Req, Resp], request: Req, done: Done[Resp]) -> None:
        """Answer one request of the share state APIs."""
        ask_each(self.ask, api, request, done)

    # -- periodic work

    def start(self) -> None:
        """Start the timers for pruning and for snapshots of cold partitions."""
        self._schedule("share.coordinator.state.topic.prune.interval.ms", self._prune)
        self._schedule("share.coordinator.cold.partition.snapshot.interval.ms", self._snapshot_cold)

    def shutdown(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _schedule(self, interval_key: str, work: Callable[[int], None]) -> None:
        interval_ms = self._config().int(interval_key)

        def run() -> None:
            self._schedule(interval_key, work)
            work(interval_ms)

        self._timers[interval_key] = self._clock.call_later(interval_ms / 1000, run)

    def _prune(self, interval_ms: int) -> None:
        for partition in range(self.runtime.partition_count):
            if self.runtime.is_active(partition):
                self.runtime.read(
                    partition,
                    lambda shard, now_ms: shard.redundant_before(),
                    partial(self._prune_one, partition),
                    partial(_not_pruned, partition),
                )

    def _prune_one(self, partition: int, offset: int) -> None:
        if offset <= self._pruned.get(partition, 0):
            return
        try:
            self._delete_records(partition, offset)
        except ApiException as error:
            _not_pruned(partition, error)
        else:
            self._pruned[partition] = offset

    def _snapshot_cold(self, interval_ms: int) -> None:
        self.runtime.write_all(lambda shard, now_ms: shard.snapshot_cold(now_ms, interval_ms))


def ask_each(ask: Ask, api: StateApi[Req, Resp], request: Req, done: Done[Resp]) -> None:
    """Ask about each partition of a request; responds when all results are there, in the request's order."""
    parts = [(topic, part) for topic in request.topics for part in topic.partitions]
    if not request.group_id or not parts:
        done(api.response())
        return

    def all_there(results: list[PartitionResult]) -> None:
        ordered = iter(results)
        done(
            api.response(
                results=[
                    api.topic_result(
                        topic_id=topic.topic_id, partitions=[next(ordered) for _ in topic.partitions]
                    )
                    for topic in request.topics
                ]
            )
        )

    gather: Gather[PartitionResult] = Gather(len(parts), all_there)
    for index, (topic, part) in enumerate(parts):
        key = StateKey(request.group_id, topic.topic_id, part.partition)
        ask(api, key, part, partial(gather.put, index))


def _not_pruned(partition: int, error: ApiException) -> None:
    if error.code not in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
        _logger.warning("%s-%d could not be pruned: %s", SHARE_STATE_TOPIC, partition, error.message)
