"""The door to the share coordinator: requests go to their shards partition by partition, and its periodic work.

Snapshots and updates are the shard's; who asks from where is `persister`'s and the APIs' business.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.clock import Clock, Timer
from ottla.coordinator.result import CoordinatorResult
from ottla.coordinator.runtime import CoordinatorRuntime, partition_for
from ottla.coordinator.share.shard import ShareCoordinatorShard
from ottla.coordinator.share.state import StateKey
from ottla.errors import ApiException, ErrorCode
from ottla.wire import messages

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig

_logger = logging.getLogger(__name__)

Message = Any
Answer = Callable[[Message], None]
_Operation = Callable[[ShareCoordinatorShard, StateKey, Message, int], CoordinatorResult[Message]]


@dataclass(frozen=True, slots=True)
class StateApi:
    """One of the five APIs: all ask about partitions of topics of one group, and answer with as many results."""

    request: Any
    topic_data: str
    response: Any
    topic_result: str
    operation: _Operation

    def partition_result(self, partition: int, error: ApiException) -> Message:
        return self.response.PartitionResult(
            partition=partition, error_code=error.code, error_message=error.message
        )


INITIALIZE: Final = StateApi(
    messages.InitializeShareGroupStateRequest,
    "InitializeStateData",
    messages.InitializeShareGroupStateResponse,
    "InitializeStateResult",
    ShareCoordinatorShard.initialize,
)
READ: Final = StateApi(
    messages.ReadShareGroupStateRequest,
    "ReadStateData",
    messages.ReadShareGroupStateResponse,
    "ReadStateResult",
    ShareCoordinatorShard.read,
)
SUMMARY: Final = StateApi(
    messages.ReadShareGroupStateSummaryRequest,
    "ReadStateSummaryData",
    messages.ReadShareGroupStateSummaryResponse,
    "ReadStateSummaryResult",
    ShareCoordinatorShard.summary,
)
WRITE: Final = StateApi(
    messages.WriteShareGroupStateRequest,
    "WriteStateData",
    messages.WriteShareGroupStateResponse,
    "WriteStateResult",
    ShareCoordinatorShard.write,
)
DELETE: Final = StateApi(
    messages.DeleteShareGroupStateRequest,
    "DeleteStateData",
    messages.DeleteShareGroupStateResponse,
    "DeleteStateResult",
    ShareCoordinatorShard.delete,
)

Ask = Callable[[StateApi, StateKey, Message, Answer], None]
"""`(api, key, the request's PartitionData, done)`: answers with one `PartitionResult`, an error inside it."""


class ShareCoordinator:
    """`broker.share_coordinator` in the API handlers. `delete_records(partition, offset)` prunes the topic."""

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

    def ask(self, api: StateApi, key: StateKey, part: Message, done: Answer) -> None:
        """Ask about one share partition of which this broker should be the coordinator."""

        def failed(error: ApiException) -> None:
            done(api.partition_result(key.partition, error))

        count = self.runtime.partition_count
        if not count:
            failed(
                ApiException(ErrorCode.COORDINATOR_NOT_AVAILABLE, "__share_group_state does not exist yet")
            )
            return
        self.runtime.write(
            partition_for(key.coordinator_key, count),
            lambda shard, now_ms: api.operation(shard, key, part, now_ms),
            done,
            failed,
        )

    def serve(self, api: StateApi, request: Message, done: Answer) -> None:
        """Answer one of the share coordinator's requests."""
        ask_each(self.ask, api, request, done)

    # -- periodic work

    def start(self) -> None:
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


def ask_each(ask: Ask, api: StateApi, request: Message, done: Answer) -> None:
    """Ask about each partition of a request, and answer when all answers are there, in the request's order."""
    if not request.group_id:
        done(api.response())
        return
    results = [
        getattr(api.response, api.topic_result)(
            topic_id=topic.topic_id, partitions=[None] * len(topic.partitions)
        )
        for topic in request.topics
    ]
    missing = sum(len(topic.partitions) for topic in request.topics)
    response = api.response(results=results)
    if not missing:
        done(api.response())
        return

    def answered(topic: int, place: int, result: Message) -> None:
        nonlocal missing
        results[topic].partitions[place] = result
        missing -= 1
        if not missing:
            done(response)

    for index, topic in enumerate(request.topics):
        for place, part in enumerate(topic.partitions):
            key = StateKey(request.group_id, topic.topic_id, part.partition)
            ask(api, key, part, partial(answered, index, place))


def _not_pruned(partition: int, error: ApiException) -> None:
    if error.code not in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
        _logger.warning("__share_group_state-%d could not be pruned: %s", partition, error.message)
