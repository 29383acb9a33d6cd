"""The group coordinator as the APIs see it: routes operations to the shard of a group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ottla.coordinator.group.shard import GroupShard
from ottla.coordinator.runtime import CoordinatorRuntime, ReadOperation, WriteOperation, partition_for
from ottla.errors import ApiException, ErrorCode
from ottla.ids import GroupId
from ottla.promise import Done, Failed, Gather

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.coordinator.group.repeated_commit import RepeatedCommit

R = TypeVar("R")


class GroupCoordinator:
    """Routes operations on groups to their shards. `broker.groups` in the API handlers.

    An API file calls `broker.groups.write(request.group_id, lambda shard, now: shard.consumer.heartbeat(info, request,
    now), done, failed)` and returns PARKED; `done` or `failed` may be called before `write` returns.
    """

    __slots__ = ("config", "runtime")

    def __init__(self, runtime: CoordinatorRuntime[GroupShard], config: BrokerConfig) -> None:
        self.runtime = runtime
        self.config = config

    def partition_of(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that keeps a group. Raises NOT_COORDINATOR before there is one."""
        count = self.runtime.partition_count
        if not count:
            # As in Kafka, without a message: clients look for the coordinator, which creates the topic.
            raise ApiException(ErrorCode.NOT_COORDINATOR)
        return partition_for(group_id, count)

    def write(
        self, group_id: str, operation: WriteOperation[GroupShard, R], done: Done[R], failed: Failed
    ) -> None:
        """Run a write operation on the group's shard (see `CoordinatorRuntime.write`)."""
        partition = self._partition_or_fail(group_id, failed)
        if partition is not None:
            self.runtime.write(partition, operation, done, failed)

    def repeat_commit(self, commit: RepeatedCommit) -> bool:
        """Append a commit that is committed with that. False: nothing has happened, and it needs `write`."""
        count = self.runtime.partition_count
        return bool(count) and self.runtime.write_at_once(partition_for(commit.group_id, count), commit)

    def read(
        self, group_id: str, operation: ReadOperation[GroupShard, R], done: Done[R], failed: Failed
    ) -> None:
        """Run a read operation on the group's shard."""
        partition = self._partition_or_fail(group_id, failed)
        if partition is not None:
            self.runtime.read(partition, operation, done, failed)

    def _partition_or_fail(self, group_id: str, failed: Failed) -> int | None:
        try:
            return self.partition_of(group_id)
        except ApiException as error:
            failed(error)
            return None

    def read_each(
        self,
        group_ids: Sequence[GroupId],
        operation: Callable[[GroupShard, GroupId, int], R],
        on_error: Callable[[GroupId, ApiException], R],
        done: Done[list[R]],
    ) -> None:
        """Run a read operation per group: responses in the order of the ids, errors through `on_error`."""
        gather = Gather(len(group_ids), done)
        for index, group_id in enumerate(group_ids):
            self.read(
                group_id,
                partial(_call, operation, group_id),
                partial(gather.put, index),
                partial(_put_error, gather, index, on_error, group_id),
            )

    def update_config(self, config: BrokerConfig) -> None:
        """The broker's configs changed."""
        self.config = config
        self.runtime.each_shard(lambda shard: shard.configure(config))


def require_group_id(group_id: str | None) -> None:
    """Raise INVALID_GROUP_ID for an empty group id."""
    if not group_id:
        raise ApiException(ErrorCode.INVALID_GROUP_ID, "The group id is empty")


def _call(
    operation: Callable[[GroupShard, GroupId, int], R], group_id: GroupId, shard: GroupShard, now_ms: int
) -> R:
    return operation(shard, group_id, now_ms)


def _put_error(
    gather: Gather[R],
    index: int,
    on_error: Callable[[GroupId, ApiException], R],
    group_id: GroupId,
    error: ApiException,
) -> None:
    gather.put(index, on_error(group_id, error))
