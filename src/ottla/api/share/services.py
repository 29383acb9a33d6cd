"""What serves queues on this broker, put together: share coordinator, persister, share partitions, share groups."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.controller.names import SHARE_STATE_TOPIC
from ottla.coordinator.group.share.service import ShareGroupService
from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.coordinator.shard import ShardContext
from ottla.coordinator.share.persister import SharePersister
from ottla.coordinator.share.records import SERDE
from ottla.coordinator.share.routes import ShareStateRoutes
from ottla.coordinator.share.service import ShareCoordinator
from ottla.coordinator.share.shard import ShareCoordinatorShard
from ottla.metadata.broker_peers import BrokerPeers
from ottla.metadata.image import ConfigResourceType
from ottla.records.codecs import Compression
from ottla.replica.coordination import CoordinatedPartitions
from ottla.replica.share.manager import SharePartitions
from ottla.replica.share.settings import share_settings
from ottla.replica.share.states import ShareSettings

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.config.broker import BrokerConfig
    from ottla.coordinator.group.service import GroupCoordinator
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image import MetadataImage
    from ottla.peers import Peers
    from ottla.replica.manager import ReplicaManager


@dataclass(slots=True)
class ShareServices:
    """`broker.share` in the API handlers."""

    config: BrokerConfig
    coordinator: ShareCoordinator
    routes: ShareStateRoutes
    persister: SharePersister
    partitions: SharePartitions
    groups: ShareGroupService

    def publish(self, delta: MetadataDelta, image: MetadataImage, node_id: int) -> None:
        """A metadata publisher, after the replicas."""
        self.coordinator.runtime.publish(delta, image, node_id)
        self.routes.leaders_changed()
        self.partitions.publish(delta, image)

    def shutdown(self) -> None:
        self.persister.shutdown()
        self.routes.close()
        self.partitions.shutdown()
        self.coordinator.shutdown()
        self.coordinator.runtime.shutdown()


def make_share_services(
    config: BrokerConfig,
    replicas: ReplicaManager,
    clock: Clock,
    executor: Executor,
    post: Callable[..., object],
    groups: GroupCoordinator,
    make_topic: Callable[[], object],
    peers: Peers,
) -> ShareServices:
    """Ready to follow the metadata. `make_topic` creates `__share_group_state`."""

    def new_shard(context: ShardContext) -> ShareCoordinatorShard:
        return ShareCoordinatorShard(
            context,
            lambda: services.config.int("share.coordinator.snapshot.update.records.per.snapshot"),
        )

    def settings(group_id: str) -> ShareSettings:
        return share_settings(services.config, replicas.image.configs.of(ConfigResourceType.GROUP, group_id))

    def delete_records(partition: int, offset: int) -> None:
        replicas.partition(SHARE_STATE_TOPIC, partition).delete_records(offset)

    runtime = CoordinatorRuntime(
        topic=SHARE_STATE_TOPIC,
        clock=clock,
        executor=executor,
        post=post,
        partitions=CoordinatedPartitions(replicas, clock),
        serde=SERDE,
        new_shard=new_shard,
        image=replicas.image,
        compression=Compression(config.int("share.coordinator.state.topic.compression.codec")),
        linger_ms=config.int("share.coordinator.append.linger.ms"),
        load_buffer_bytes=config.int("share.coordinator.load.buffer.size"),
        write_timeout_ms=config.int("share.coordinator.write.timeout.ms"),
    )
    coordinator = ShareCoordinator(runtime, clock, lambda: services.config, delete_records)
    routes = ShareStateRoutes(
        config.node_id,
        clock,
        coordinator,
        BrokerPeers(peers, "share-state", lambda: replicas.image, config.inter_broker_listener_name),
        config.int("request.timeout.ms") / 1000,
    )
    persister = SharePersister(routes.ask, clock, make_topic)
    services = ShareServices(
        config,
        coordinator,
        routes,
        persister,
        SharePartitions(replicas, clock, persister, settings, config.int("group.share.max.share.sessions")),
        ShareGroupService(groups, persister),
    )
    return services
