"""The door to the group coordinator for the APIs: which shard keeps a group, and what is checked first."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from ottla.coordinator.group.shard import GroupShard
from ottla.coordinator.result import Done, Failed
from ottla.coordinator.runtime import CoordinatorRuntime, ReadOperation, WriteOperation, partition_for
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig

R = TypeVar("R")


class GroupCoordinator:
    """Routes operations on groups to their shards. `broker.groups` in the API handlers.

    An API file does: `broker.groups.write(request.group_id, lambda shard, now: shard.consumer.heartbeat(info, request,
    now), done, failed)` and answers PARKED; `done`/`failed` may be called before `write` returns.
    """

    __slots__ = ("config", "runtime")

    def __init__(self, runtime: CoordinatorRuntime[GroupShard], config: BrokerConfig) -> None:
        self.runtime = runtime
        self.config = config

    def partition_of(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` of a group. Raises COORDINATOR_NOT_AVAILABLE, INVALID_GROUP_ID."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "The group id is empty")
        count = self.runtime.partition_count
        if not count:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "__consumer_offsets does not exist yet")
        return partition_for(group_id, count)

    def write(
        self, group_id: str, operation: WriteOperation[GroupShard, R], done: Done[R], failed: Failed
    ) -> None:
        """Run a write operation on the group's shard (see `CoordinatorRuntime.write`)."""

    def read(
        self, group_id: str, operation: ReadOperation[GroupShard, R], done: Done[R], failed: Failed
    ) -> None:
        """Run a read operation on the group's shard."""

    def read_each(
        self,
        group_ids: list[str],
        operation: Callable[[GroupShard, str, int], R],
        on_error: Callable[[str, KafkaError], R],
        done: Done[list[R]],
    ) -> None:
        """Run a read operation per group: answers in the order of the ids, errors through `on_error`."""
