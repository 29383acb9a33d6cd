"""What a request handler may reach: the services of one node, held together and nothing more.

`ottla.server` builds and owns them; each service's behaviour is its own module's business.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.api.creations import TopicCreations

if TYPE_CHECKING:
    from ottla.api.share.services import ShareServices
    from ottla.api.transactions.local_markers import LocalMarkers
    from ottla.clock import Clock
    from ottla.config.broker import BrokerConfig
    from ottla.controller.controller import Controller
    from ottla.controller.lifecycle import BrokerLifecycle
    from ottla.coordinator.group.service import GroupCoordinator
    from ottla.coordinator.transaction.service import TransactionCoordinator
    from ottla.log.manager import LogManager
    from ottla.metadata.image import MetadataImage
    from ottla.raft.driver import RaftDriver
    from ottla.replica.fetch_sessions import FetchSessionCache
    from ottla.replica.manager import ReplicaManager
    from ottla.replica.producer_ids import ProducerIds


@dataclass(slots=True)
class Broker:
    """The services of one node. `config` and `image` are replaced as the cluster changes: read them per request."""

    node_id: int
    cluster_id: str
    config: BrokerConfig
    """Static settings with the dynamic broker configs of the published image on top."""
    image: MetadataImage
    """The newest published (committed and applied) metadata image."""
    clock: Clock
    executor: Executor
    log_manager: LogManager
    replicas: ReplicaManager
    controller: Controller
    raft: RaftDriver
    lifecycle: BrokerLifecycle
    fetch_sessions: FetchSessionCache
    producer_ids: ProducerIds
    groups: GroupCoordinator
    share: ShareServices
    transactions: TransactionCoordinator
    local_markers: LocalMarkers
    fail: Callable[[BaseException], None]
    """Stop the broker because of an error that nobody can repair; the reason is logged."""
    creations: TopicCreations = field(default_factory=TopicCreations)
    """Internal topics of streams groups that are being created, or could not be."""

    @property
    def is_controller(self) -> bool:
        return self.controller.active

    @property
    def broker_epoch(self) -> int:
        return self.lifecycle.broker_epoch
