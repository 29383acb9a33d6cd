"""Builds the broker role of a node: the partitions that it hosts, its coordinators, its registration."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import fields
from typing import TYPE_CHECKING, TypeVar

from ottla.broker.controller_channel import ControllerChannel
from ottla.broker.coordinators import Coordinators, CoordinatorSet
from ottla.broker.lifecycle import BrokerLifecycle
from ottla.broker.markers import LocalMarkerWriter
from ottla.broker.recently_fenced import RecentlyFencedBrokers
from ottla.broker.services import Broker, Node
from ottla.clock import Clock
from ottla.config.broker import BrokerConfig
from ottla.config.topic import TopicConfig
from ottla.controller.settings import Settings
from ottla.errors import ApiException, ErrorCode
from ottla.ids import BrokerId
from ottla.log.manager import LogManager
from ottla.metadata.features import CORDONED_LOG_DIRS_FROM
from ottla.metadata.image import MetadataImage
from ottla.metadata.publisher import MetadataLoader
from ottla.replica.fetch_sessions import FetchSessionCache
from ottla.replica.manager import ClusterLink, ReplicaManager
from ottla.replica.offload import Offloader
from ottla.replica.producer_ids import BlockDone, ProducerIds
from ottla.wire import messages
from ottla.wire.classes import WireRequest, WireResponse
from ottla.wire.enums import ConfigResourceType

if TYPE_CHECKING:
    from ottla.wire.messages import BrokerRegistrationRequest


Resp = TypeVar("Resp", bound=WireResponse)


def make_lifecycle(
    config: BrokerConfig,
    clock: Clock,
    channel: ControllerChannel,
    loader: MetadataLoader,
    log_manager: LogManager,
    registration: BrokerRegistrationRequest,
) -> BrokerLifecycle:
    """The broker's side of its registration with the active controller."""

    def cordoned() -> list[bytes] | None:
        if loader.image.metadata_version < CORDONED_LOG_DIRS_FROM:
            return None
        return [each.directory_id for each in log_manager.dirs if log_manager.is_cordoned(each)]

    return BrokerLifecycle(
        clock,
        registration=registration,
        send=channel.send,
        metadata_offset=lambda: loader.image.offset,
        heartbeat_interval_ms=config.int("broker.heartbeat.interval.ms"),
        cordoned_directories=cordoned,
    )


def topic_configs(settings: Settings, image: MetadataImage) -> Callable[[str], TopicConfig]:
    """The effective configuration of each topic, for loading its logs."""
    config = settings.current(image)

    def of(topic: str) -> TopicConfig:
        return TopicConfig.in_force(config, image.configs.of(ConfigResourceType.TOPIC, topic))

    return of


def make_broker(
    node: Node,
    lifecycle: BrokerLifecycle,
    log_manager: LogManager,
    executor: Executor,
    loop: asyncio.AbstractEventLoop,
) -> Broker:
    """All services of a broker, on loaded logs. None of them follows the metadata yet."""
    config, clock = node.config, node.clock

    def to_controller(
        request: WireRequest[Resp], done: Callable[[Resp], object], failed: Callable[[object], object]
    ) -> None:
        timeout_s = config.int("request.timeout.ms") / 1000
        node.to_controller.send(request, done, failed, timeout_s=timeout_s)

    cluster = ClusterLink(
        peers=node.peers,
        to_controller=to_controller,
        broker_epoch=lambda: lifecycle.broker_epoch,
        gate=node.gate,
    )
    offload = Offloader(executor, loop.call_soon_threadsafe)
    replicas = ReplicaManager(log_manager, clock, offload, config.node_id, config, cluster)

    def coordinators() -> CoordinatorSet:
        # Loaded at first use: see `Coordinators`.
        from ottla.broker.coordinator_factory import make_coordinators

        return make_coordinators(broker, loop)

    broker = Broker(
        **{each.name: getattr(node, each.name) for each in fields(Node)},
        log_manager=log_manager,
        replicas=replicas,
        lifecycle=lifecycle,
        fetch_sessions=FetchSessionCache(clock, config.int("max.incremental.fetch.session.cache.slots")),
        departures=RecentlyFencedBrokers(clock),
        producer_ids=ProducerIds(_allocator(node, lifecycle)),
        coordinators=Coordinators(coordinators),
        local_markers=LocalMarkerWriter(
            replicas, clock, lambda *marker: broker.groups.runtime.complete_transaction(*marker)
        ),
    )
    return broker


def _allocator(node: Node, lifecycle: BrokerLifecycle) -> Callable[[BlockDone], None]:
    """A function that gets blocks of producer ids from the controller."""

    def allocate(done: BlockDone) -> None:
        def answered(response: messages.AllocateProducerIdsResponse) -> None:
            error = None
            if response.error_code:
                error = ApiException(
                    ErrorCode.of(response.error_code), "the controller allocated no producer ids"
                )
            done(response.producer_id_start, response.producer_id_len, error)

        request = messages.AllocateProducerIdsRequest(
            broker_id=BrokerId(node.node_id), broker_epoch=lifecycle.broker_epoch
        )
        timeout_s = node.config.int("request.timeout.ms") / 1000
        node.to_controller.send(request, answered, lambda error: done(-1, 0, error), timeout_s=timeout_s)

    return allocate
