"""The services for share groups on this broker: share coordinator, persister, share partitions and share groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.coordinator.group.share.service import ShareGroupService
    from ottla.coordinator.share.partition_metadata import PartitionMetadataClient
    from ottla.coordinator.share.persister import SharePersister
    from ottla.coordinator.share.routes import ShareStateRoutes
    from ottla.coordinator.share.service import ShareCoordinator
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image import MetadataImage
    from ottla.replica.share.manager import SharePartitions


@dataclass(slots=True)
class ShareServices:
    """`broker.share` in the API handlers."""

    config: BrokerConfig
    coordinator: ShareCoordinator
    routes: ShareStateRoutes
    persister: SharePersister
    partitions: SharePartitions
    groups: ShareGroupService
    partition_metadata: PartitionMetadataClient

    def publish(self, delta: MetadataDelta, image: MetadataImage, node_id: int) -> None:
        """A metadata publisher, after the replicas."""
        self.coordinator.runtime.publish(delta, image, node_id)
        self.routes.leaders_changed()
        self.partitions.publish(delta, image)

    def shutdown(self) -> None:
        """Fail pending requests, then stop the coordinator."""
        self.persister.shutdown()
        self.routes.close()
        self.partition_metadata.close()
        self.partitions.shutdown()
        self.coordinator.shutdown()
        self.coordinator.runtime.shutdown()
