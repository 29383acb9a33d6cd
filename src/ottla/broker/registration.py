"""The registration requests of a node's broker and controller: its listeners, features and directories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.clock import Clock
from ottla.config.broker import BrokerConfig
from ottla.config.listeners import Listener
from ottla.log.checkpoints import read_clean_shutdown
from ottla.log.fs import Fs
from ottla.log.manager import LogManager
from ottla.metadata.cluster import features_as, listeners_as
from ottla.metadata.features import SUPPORTED_FEATURES
from ottla.metadata.image import ListenerEndpoint
from ottla.wire import messages


class Addresses(NamedTuple):
    """Where a node can be reached: the addresses of its listeners, and the machine's name."""

    listeners: Mapping[str, tuple[str, int]]
    """Host and port of each listener by name."""
    host_name: str
    """For listeners that accept connections on every interface."""


def broker_registration(
    config: BrokerConfig,
    clock: Clock,
    fs: Fs,
    log_manager: LogManager,
    cluster_id: str,
    addresses: Addresses,
) -> messages.BrokerRegistrationRequest:
    """The BrokerRegistrationRequest. Call it before the logs are loaded: that removes the clean shutdown files."""
    request = messages.BrokerRegistrationRequest
    return request(
        broker_id=config.node_id,
        cluster_id=cluster_id,
        incarnation_id=clock.random_uuid(),
        listeners=listeners_as(request.Listener, _endpoints(config, config.broker_listeners, addresses)),
        features=features_as(request.Feature, SUPPORTED_FEATURES.items()),
        rack=config.opt_str("broker.rack"),
        log_dirs=[directory.directory_id for directory in log_manager.dirs if not directory.offline],
        previous_broker_epoch=_previous_epoch(fs, log_manager),
    )


def controller_registration(
    config: BrokerConfig, clock: Clock, addresses: Addresses
) -> messages.ControllerRegistrationRequest:
    """The ControllerRegistrationRequest."""
    request = messages.ControllerRegistrationRequest
    return request(
        controller_id=config.node_id,
        incarnation_id=clock.random_uuid(),
        listeners=listeners_as(request.Listener, _endpoints(config, config.controller_listeners, addresses)),
        features=features_as(request.Feature, SUPPORTED_FEATURES.items()),
    )


def _endpoints(
    config: BrokerConfig, listeners: Iterable[Listener], addresses: Addresses
) -> list[ListenerEndpoint]:
    endpoints = []
    for listener in listeners:
        advertised = config.advertised(listener.name)
        host, port = addresses.listeners[listener.name]
        if advertised is not None:
            host, port = advertised.host, advertised.port
        elif not listener.host or listener.host in ("0.0.0.0", "::"):
            host = addresses.host_name
        endpoints.append(ListenerEndpoint(listener.name, host, port, listener.protocol.value))
    return endpoints


def _previous_epoch(fs: Fs, log_manager: LogManager) -> int:
    """The broker epoch of the last clean shutdown, which proves that no records were lost; -1 if there was none."""
    epochs = {read_clean_shutdown(fs, directory.path) for directory in log_manager.dirs}
    epoch = epochs.pop() if len(epochs) == 1 else None
    return -1 if epoch is None else epoch
