"""The services of one node that request handlers use.

`ottla.server` builds and owns them; each service's own module defines its behaviour.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ottla.broker.client_telemetry import ClientTelemetry
from ottla.broker.topic_creation import InternalTopicCreations
from ottla.counters import NodeCounters
from ottla.errors import ApiException, ErrorCode
from ottla.security.quotas.managers import ClientQuotas

if TYPE_CHECKING:
    from ottla.broker.controller_channel import ControllerChannel
    from ottla.broker.coordinators import Coordinators
    from ottla.broker.lifecycle import BrokerLifecycle
    from ottla.broker.markers import LocalMarkerWriter
    from ottla.broker.recently_fenced import RecentlyFencedBrokers
    from ottla.broker.share_services import ShareServices
    from ottla.clock import Clock
    from ottla.config.broker import BrokerConfig
    from ottla.controller.controller import Controller
    from ottla.coordinator.group.service import GroupCoordinator
    from ottla.coordinator.transaction.service import TransactionCoordinator
    from ottla.credentials.delegation_tokens import TokenKey
    from ottla.ids import BrokerId, TopicName
    from ottla.log.manager import LogManager
    from ottla.log.write_gate import WriteGate
    from ottla.metadata.image import MetadataImage
    from ottla.peers import Peers
    from ottla.raft.driver import RaftDriver
    from ottla.replica.fetch_sessions import FetchSessionCache
    from ottla.replica.manager import ReplicaManager
    from ottla.replica.producer_ids import ProducerIds
    from ottla.security.audit import AuditFile
    from ottla.security.authorizer import Authorizer
    from ottla.security.node_identity import NodeIdentity


class StoreChanges(Protocol):
    """The key and trust stores of this node's listeners."""

    def check(self, config: BrokerConfig, done: Callable[[ApiException | None], object]) -> None:
        """Check, without using it, what a configuration would put in force."""
        ...


@dataclass(slots=True)
class Node:
    """The services of a node of any role. Handlers on controller listeners get this.

    `config` and `image` are replaced as the cluster changes: read them for each request.
    """

    node_id: BrokerId
    cluster_id: str
    config: BrokerConfig
    """Static settings, overridden by the dynamic broker configs of the published image."""
    image: MetadataImage
    """The newest published (committed and applied) metadata image."""
    clock: Clock
    executor: Executor
    raft: RaftDriver
    peers: Peers
    local_controller: Controller | None
    """None on a node without the controller role."""
    to_controller: ControllerChannel
    """Sends requests to the active controller, on whatever node it is."""
    gate: WriteGate
    """Holds back clients' writes while the disk cannot keep up."""
    authorizer: Authorizer | None
    """Decides what clients may do; None where everyone may do everything."""
    audit: AuditFile | None
    """Gets logins, denials and changes; None without `ottla.audit.log.file`."""
    node_identity: NodeIdentity
    """Which connections may send the requests of which nodes."""
    tls_stores: StoreChanges
    """Checks changes of key and trust stores before they are stored."""
    fail: Callable[[BaseException], None]
    """Stop the node because of an unrecoverable error. The reason is logged."""
    token_key: TokenKey | None = field(default=None, kw_only=True)
    """The secrets of delegation tokens follow from it; None where there are no tokens."""
    quotas: ClientQuotas = field(default_factory=ClientQuotas, kw_only=True)
    """Limits clients; while no quota is set it measures nothing."""
    counters: NodeCounters = field(default_factory=NodeCounters, kw_only=True)
    """The requests and connections of this node."""

    @property
    def controller(self) -> Controller:
        """This node's controller, active or not. Raises NOT_CONTROLLER if it has none."""
        if self.local_controller is None:
            raise ApiException(ErrorCode.NOT_CONTROLLER, "This node is not a controller.")
        return self.local_controller

    @property
    def is_controller(self) -> bool:
        """Whether this node is the active controller."""
        return self.local_controller is not None and self.local_controller.active


@dataclass(slots=True)
class Broker(Node):
    """The services of a node that has the broker role."""

    log_manager: LogManager
    replicas: ReplicaManager
    lifecycle: BrokerLifecycle
    fetch_sessions: FetchSessionCache
    producer_ids: ProducerIds
    coordinators: Coordinators
    local_markers: LocalMarkerWriter
    departures: RecentlyFencedBrokers
    """Brokers that were fenced a moment ago, which Metadata still lists."""
    creations: InternalTopicCreations = field(default_factory=InternalTopicCreations)
    """Internal topics of streams groups that are being created, or could not be."""
    telemetry: ClientTelemetry = field(default_factory=ClientTelemetry)
    """Clients that send their own metrics."""
    auto_creating: set[TopicName] = field(default_factory=set)
    """Topics whose creation by the controller is in progress because a client named them."""

    @property
    def groups(self) -> GroupCoordinator:
        return self.coordinators.get().groups

    @property
    def share(self) -> ShareServices:
        return self.coordinators.get().share

    @property
    def transactions(self) -> TransactionCoordinator:
        return self.coordinators.get().transactions

    @property
    def broker_epoch(self) -> int:
        return self.lifecycle.broker_epoch
