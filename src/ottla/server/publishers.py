"""The parts of a node that follow the metadata, in the order in which they get a new image."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.broker.services import Broker, Node
from ottla.controller.settings import Settings
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import ENTITY_DEFAULT, MetadataImage
from ottla.metadata.publisher import Publisher
from ottla.server.environment import Listeners
from ottla.server.peer_security import PeerSecurity
from ottla.server.tls_reload import TlsReloader
from ottla.wire.enums import ConfigResourceType


def node_publishers(
    node: Node, listeners: Listeners, settings: Settings, tls: TlsReloader, to_peers: PeerSecurity
) -> Iterable[Publisher]:
    """For a node of any role: its effective settings, and the image that requests see."""
    own = _own_resources(node)

    def publish_config(delta: MetadataDelta, image: MetadataImage) -> None:
        if delta.changed_configs & own:
            node.config = settings.current(image)
            listeners.update(node.config)
            to_peers.update(node.config)
            tls.update(node.config)

    def publish_image(delta: MetadataDelta, image: MetadataImage) -> None:
        node.image = image

    return (publish_config, publish_image)


def broker_publishers(broker: Broker, settings: Settings) -> Iterable[Publisher]:
    """For a broker: settings first, then the hosted partitions, then the image, then the coordinators."""
    own = _own_resources(broker)

    def publish_config(delta: MetadataDelta, image: MetadataImage) -> None:
        if delta.changed_configs & own:
            broker.config = settings.current(image)
            broker.log_manager.update_config(broker.config)
            broker.replicas.update_broker_config(broker.config)
            broker.coordinators.update_config(broker.config)
            broker.lifecycle.configs_changed()

    def publish_image(delta: MetadataDelta, image: MetadataImage) -> None:
        broker.departures.note(broker.image, image)
        broker.image = image

    def publish_coordinators(delta: MetadataDelta, image: MetadataImage) -> None:
        broker.coordinators.publish(delta, image, broker.node_id)

    return (publish_config, broker.replicas.publish, publish_image, publish_coordinators)


def _own_resources(node: Node) -> set[tuple[int, str]]:
    return {
        (int(ConfigResourceType.BROKER), ENTITY_DEFAULT),
        (int(ConfigResourceType.BROKER), str(node.node_id)),
    }
