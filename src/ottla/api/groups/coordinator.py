"""The group coordinator of this broker, put together from its runtime, its shards and the replicas under them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from ottla.controller.names import OFFSETS_TOPIC
from ottla.coordinator.group.service import GroupCoordinator
from ottla.coordinator.group.shard import SERDE, GroupShard
from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.coordinator.shard import ShardContext
from ottla.records.codecs import Compression
from ottla.replica.coordination import CoordinatedPartitions

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.config.broker import BrokerConfig
    from ottla.replica.manager import ReplicaManager


def make_group_coordinator(
    config: BrokerConfig,
    replicas: ReplicaManager,
    clock: Clock,
    executor: Executor,
    post: Callable[..., object],
) -> GroupCoordinator:
    """Ready to follow the metadata: shards are loaded as this broker becomes leader of their partitions."""

    def new_shard(context: ShardContext) -> GroupShard:
        return GroupShard(context, coordinator.config, replicas.image)

    runtime = CoordinatorRuntime(
        topic=OFFSETS_TOPIC,
        clock=clock,
        executor=executor,
        post=post,
        partitions=CoordinatedPartitions(replicas, clock),
        serde=SERDE,
        new_shard=new_shard,
        image=replicas.image,
        compression=Compression(config.int("offsets.topic.compression.codec")),
        linger_ms=config.int("group.coordinator.append.linger.ms"),
        load_buffer_bytes=config.int("offsets.load.buffer.size"),
        write_timeout_ms=config.int("offsets.commit.timeout.ms"),
    )
    coordinator = GroupCoordinator(runtime, config)
    return coordinator
