"""The door to the group coordinator for the APIs: which shard keeps a group, and what is checked first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ottla.coordinator.group.shard import GroupShard
from ottla.coordinator.runtime import CoordinatorRuntime, ReadOperation, WriteOperation, partition_for
from ottla.errors import ApiException, ErrorCode
from ottla.promise import Done, Failed, Gather

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
        """The partition of `__consumer_offsets` that keeps a group. Raises COORDINATOR_NOT_AVAILABLE."""
        count = self.runtime.partition_count
        if not count:
            raise ApiException(ErrorCode.COORDINATOR_NOT_AVAILABLE, "__consumer_offsets does not exist yet")
        return partition_for(group_id, count)

    def write(
        self, group_id: str, operation: WriteOperation[GroupShard, R], done: Done[R], failed: Failed
    ) -> None:
        """Run a write operation on the group's shard (see `CoordinatorRuntime.write`)."""
        try:
            partition = self.partition_of(group_id)
        except ApiException as error:
            failed(error)
            return
        self.runtime.write(partition, operation, done, failed)

    def read(
        self, group_id: str, operation: ReadOperation[GroupShard, R], done: Done[R], failed: Failed
    ) -> None:
        """Run a read operation on the group's shard."""
        try:
            partition = self.partition_of(group_id)
        except ApiException as error:
            failed(error)
            return
        self.runtime.read(partition, operation, done, failed)

    def read_each(
        self,
        group_ids: Sequence[str],
        operation: Callable[[GroupShard, str, int], R],
        on_error: Callable[[str, ApiException], R],
        done: Done[list[R]],
    ) -> None:
        """Run a read operation per group: answers in the order of the ids, errors through `on_error`."""
        gathered = Gather(len(group_ids), done)
        for index, group_id in enumerate(group_ids):
            self.read(
                group_id,
                partial(_call, operation, group_id),
                partial(gathered.put, index),
                partial(_put_error, gathered, index, on_error, group_id),
            )

    def update_config(self, config: BrokerConfig) -> None:
        """The broker's configs changed."""
        self.config = config
        self.runtime.each_shard(lambda shard: shard.configure(config))


def require_group_id(group_id: str | None) -> None:
    """Raise INVALID_GROUP_ID for requests that need a group with a name."""
    if not group_id:
        raise ApiException(ErrorCode.INVALID_GROUP_ID, "The group id is empty")


def _call(operation: Callable[[GroupShard, str, int], R], group_id: str, shard: GroupShard, now_ms: int) -> R:
    return operation(shard, group_id, now_ms)


def _put_error(
    gathered: Gather[R],
    index: int,
    on_error: Callable[[str, ApiException], R],
    group_id: str,
    error: ApiException,
) -> None:
    gathered.put(index, on_error(group_id, error))
