"""The transaction coordinator of this broker, put together: its runtime, its shards, the ways to other brokers."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from ottla.controller.names import TRANSACTIONS_TOPIC
from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.coordinator.shard import ShardContext
from ottla.coordinator.transaction.elsewhere import CoordinatorsElsewhere
from ottla.coordinator.transaction.marker_routes import MarkerRoutes
from ottla.coordinator.transaction.service import SERDE, ProducerIdSource, TransactionCoordinator
from ottla.coordinator.transaction.shard import TransactionShard
from ottla.metadata.broker_peers import BrokerPeers
from ottla.replica.coordination import CoordinatedPartitions

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.config.broker import BrokerConfig
    from ottla.coordinator.transaction.markers import MarkerWriter
    from ottla.log.types import TopicPartition
    from ottla.metadata.image import MetadataImage
    from ottla.peers import Peers
    from ottla.replica.manager import ReplicaManager


def make_transaction_coordinator(
    config: BrokerConfig,
    replicas: ReplicaManager,
    clock: Clock,
    executor: Executor,
    post: Callable[..., object],
    producer_ids: ProducerIdSource,
    local_markers: MarkerWriter,
    peers: Peers,
) -> TransactionCoordinator:
    """Ready to follow the metadata: shards are loaded as this broker becomes leader of their partitions."""

    def image() -> MetadataImage:
        return replicas.image

    def exists(tp: TopicPartition) -> bool:
        topic = replicas.image.topics.by_name.get(tp.topic)
        return topic is not None and tp.partition in topic.partitions

    def make_runtime(
        new_shard: Callable[[ShardContext], TransactionShard],
    ) -> CoordinatorRuntime[TransactionShard]:
        return CoordinatorRuntime(
            topic=TRANSACTIONS_TOPIC,
            clock=clock,
            executor=executor,
            post=post,
            partitions=CoordinatedPartitions(replicas, clock),
            serde=SERDE,
            new_shard=new_shard,
            image=replicas.image,
            linger_ms=0,
            load_buffer_bytes=config.int("transaction.state.log.load.buffer.size"),
            # Markers carry the epoch of their coordinator.
            reload_in_new_epoch=True,
        )

    def brokers(purpose: str) -> BrokerPeers:
        return BrokerPeers(peers, purpose, image, config.inter_broker_listener_name)

    timeout_s = config.int("request.timeout.ms") / 1000
    return TransactionCoordinator(
        config,
        clock,
        producer_ids,
        MarkerRoutes(config.node_id, clock, image, local_markers, brokers("markers"), timeout_s),
        CoordinatorsElsewhere(clock, brokers("transactions"), timeout_s),
        exists=exists,
        transaction_version=lambda: replicas.image.features.get("transaction.version", 0),
        make_runtime=make_runtime,
    )
