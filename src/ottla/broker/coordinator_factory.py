"""Builds the three coordinators of a broker from the broker's other services.

Every coordinator runs on a `CoordinatorRuntime` that `_make_runtime` builds; they differ in topic, records and
settings. This module loads all coordinator code, so it is imported when the first coordinator is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from ottla.broker.coordinator_log import CoordinatedPartitions
from ottla.broker.coordinators import CoordinatorSet
from ottla.broker.share_services import ShareServices
from ottla.broker.topic_creation import auto_create_topics
from ottla.coordinator.group import shard as group_shard
from ottla.coordinator.group.service import GroupCoordinator
from ottla.coordinator.group.share.service import ShareGroupService
from ottla.coordinator.records import RecordSerde
from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.coordinator.shard import CoordinatorShard, ShardContext
from ottla.coordinator.share import records as share_records
from ottla.coordinator.share.partition_metadata import PartitionMetadataClient
from ottla.coordinator.share.persister import SharePersister
from ottla.coordinator.share.routes import ShareStateRoutes
from ottla.coordinator.share.service import ShareCoordinator
from ottla.coordinator.share.shard import ShareCoordinatorShard
from ottla.coordinator.transaction import service as transaction_service
from ottla.coordinator.transaction.add_partitions_manager import AddPartitionsToTxnManager
from ottla.coordinator.transaction.marker_router import TransactionMarkerRouter
from ottla.coordinator.transaction.service import TransactionCoordinator
from ottla.coordinator.transaction.shard import TransactionShard
from ottla.ids import BrokerId, TopicName
from ottla.metadata.endpoints import broker_endpoint
from ottla.metadata.topic_names import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC
from ottla.peers import BrokerPeers
from ottla.records.codecs import Compression
from ottla.replica.share.manager import SharePartitions
from ottla.replica.share.settings import share_settings
from ottla.replica.share.states import ShareSettings
from ottla.wire.enums import ConfigResourceType

if TYPE_CHECKING:
    from ottla.broker.services import Broker
    from ottla.log.types import TopicPartition

S = TypeVar("S", bound=CoordinatorShard)


def make_coordinators(broker: Broker, loop: asyncio.AbstractEventLoop) -> CoordinatorSet:
    """All three coordinators. Their shards are loaded as this broker becomes leader of their partitions."""
    post = loop.call_soon_threadsafe
    groups = _make_group_coordinator(broker, post)
    return CoordinatorSet(
        groups=groups,
        share=_make_share_services(broker, post, groups),
        transactions=_make_transaction_coordinator(broker, post),
    )


def _make_runtime(
    broker: Broker,
    post: Callable[..., object],
    topic: TopicName,
    serde: RecordSerde,
    new_shard: Callable[[ShardContext], S],
    *,
    load_buffer_key: str,
    linger_ms: int = 0,
    compression: Compression = Compression.NONE,
    write_timeout_ms: int = 5_000,
    reload_in_new_epoch: bool = False,
) -> CoordinatorRuntime[S]:
    return CoordinatorRuntime(
        topic=topic,
        clock=broker.clock,
        executor=broker.executor,
        post=post,
        partitions=CoordinatedPartitions(broker.replicas, broker.clock),
        serde=serde,
        new_shard=new_shard,
        image=broker.replicas.image,
        compression=compression,
        linger_ms=linger_ms,
        load_buffer_bytes=broker.config.int(load_buffer_key),
        reload_in_new_epoch=reload_in_new_epoch,
        write_timeout_ms=write_timeout_ms,
    )


def _broker_peers(broker: Broker, purpose: str) -> BrokerPeers:
    """Connections to the other brokers, at the endpoints that they have registered last."""
    listener_name = broker.config.inter_broker_listener_name
    replicas = broker.replicas
    return BrokerPeers(
        broker.peers, purpose, lambda node: broker_endpoint(replicas.image, BrokerId(node), listener_name)
    )


def _make_group_coordinator(broker: Broker, post: Callable[..., object]) -> GroupCoordinator:
    config = broker.config

    def new_shard(context: ShardContext) -> group_shard.GroupShard:
        return group_shard.GroupShard(context, coordinator.config, broker.replicas.image)

    runtime = _make_runtime(
        broker,
        post,
        OFFSETS_TOPIC,
        group_shard.SERDE,
        new_shard,
        load_buffer_key="offsets.load.buffer.size",
        linger_ms=config.int("group.coordinator.append.linger.ms"),
        compression=Compression(config.int("offsets.topic.compression.codec")),
        write_timeout_ms=config.int("offsets.commit.timeout.ms"),
    )
    coordinator = GroupCoordinator(runtime, config)
    return coordinator


def _make_share_services(
    broker: Broker, post: Callable[..., object], groups: GroupCoordinator
) -> ShareServices:
    config, replicas, clock = broker.config, broker.replicas, broker.clock

    def new_shard(context: ShardContext) -> ShareCoordinatorShard:
        return ShareCoordinatorShard(
            context,
            lambda: services.config.int("share.coordinator.snapshot.update.records.per.snapshot"),
        )

    def settings(group_id: str) -> ShareSettings:
        return share_settings(services.config, replicas.image.configs.of(ConfigResourceType.GROUP, group_id))

    def delete_records(partition: int, offset: int) -> None:
        replicas.find((SHARE_STATE_TOPIC, partition)).delete_records(offset)

    def high_watermark(topic: TopicName, partition: int) -> int:
        led = replicas.find((topic, partition))
        led.check_leader()
        return led.local_log().high_watermark

    runtime = _make_runtime(
        broker,
        post,
        SHARE_STATE_TOPIC,
        share_records.SERDE,
        new_shard,
        load_buffer_key="share.coordinator.load.buffer.size",
        linger_ms=config.int("share.coordinator.append.linger.ms"),
        compression=Compression(config.int("share.coordinator.state.topic.compression.codec")),
        write_timeout_ms=config.int("share.coordinator.write.timeout.ms"),
    )
    coordinator = ShareCoordinator(runtime, clock, lambda: services.config, delete_records)
    timeout_s = config.int("request.timeout.ms") / 1000
    routes = ShareStateRoutes(
        config.node_id, clock, coordinator, _broker_peers(broker, "share-state"), timeout_s
    )
    persister = SharePersister(routes.ask, clock, lambda: auto_create_topics(broker, [SHARE_STATE_TOPIC]))
    services = ShareServices(
        config,
        coordinator,
        routes,
        persister,
        SharePartitions(replicas, clock, persister, settings, config.int("group.share.max.share.sessions")),
        ShareGroupService(groups, persister),
        PartitionMetadataClient(
            config.node_id,
            clock,
            lambda: replicas.image,
            high_watermark,
            _broker_peers(broker, "partition-metadata"),
            timeout_s,
        ),
    )
    return services


def _make_transaction_coordinator(broker: Broker, post: Callable[..., object]) -> TransactionCoordinator:
    config, replicas, clock = broker.config, broker.replicas, broker.clock

    def exists(tp: TopicPartition) -> bool:
        topic = replicas.image.topics.by_name.get(tp.topic)
        return topic is not None and tp.partition in topic.partitions

    def make_runtime(
        new_shard: Callable[[ShardContext], TransactionShard],
    ) -> CoordinatorRuntime[TransactionShard]:
        return _make_runtime(
            broker,
            post,
            TRANSACTIONS_TOPIC,
            transaction_service.SERDE,
            new_shard,
            load_buffer_key="transaction.state.log.load.buffer.size",
            # Markers carry the epoch of their coordinator.
            reload_in_new_epoch=True,
        )

    timeout_s = config.int("request.timeout.ms") / 1000
    return TransactionCoordinator(
        config,
        clock,
        broker.producer_ids,
        TransactionMarkerRouter(
            config.node_id,
            clock,
            lambda: replicas.image,
            broker.local_markers,
            _broker_peers(broker, "markers"),
            timeout_s,
        ),
        AddPartitionsToTxnManager(clock, _broker_peers(broker, "transactions"), timeout_s),
        exists=exists,
        transaction_version=lambda: replicas.image.features.get("transaction.version", 0),
        make_runtime=make_runtime,
    )
