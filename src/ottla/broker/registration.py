"""The registration requests of brokers and controllers: where a node listens, and what it supports."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from ottla.clock import Clock
from ottla.config.broker import BrokerConfig
from ottla.config.listeners import Listener
from ottla.ids import BrokerId
from ottla.log.checkpoints import read_clean_shutdown
from ottla.log.fs import Fs
from ottla.log.manager import LogManager
from ottla.metadata.features import SUPPORTED_FEATURES
from ottla.wire import messages

Addresses = Mapping[str, tuple[str, int]]

L = TypeVar("L")
F = TypeVar("F")


def broker_registration(
    config: BrokerConfig,
    clock: Clock,
    fs: Fs,
    log_manager: LogManager,
    cluster_id: str,
    addresses: Addresses,
) -> messages.BrokerRegistrationRequest:
    """The broker's request. Build it before the logs are loaded: loading removes the clean-shutdown files."""
    request = messages.BrokerRegistrationRequest
    return request(
        broker_id=BrokerId(config.node_id),
        cluster_id=cluster_id,
        incarnation_id=clock.random_uuid(),
        listeners=_endpoints(config, request.Listener, config.broker_listeners, addresses),
        features=_features(request.Feature),
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
        listeners=_endpoints(config, request.Listener, config.controller_listeners, addresses),
        features=_features(request.Feature),
    )


def _endpoints(
    config: BrokerConfig,
    listener_class: Callable[..., L],
    listeners: Iterable[Listener],
    addresses: Addresses,
) -> list[L]:
    found = []
    for listener in listeners:
        advertised = config.advertised(listener.name)
        host, port = addresses[listener.name]
        if advertised is not None:
            host, port = advertised.host, advertised.port
        elif not listener.host or listener.host in ("0.0.0.0", "::"):
            host = socket.gethostname()
        found.append(
            listener_class(
                name=listener.name, host=host, port=port, security_protocol=listener.protocol.value
            )
        )
    return found


def _previous_epoch(fs: Fs, log_manager: LogManager) -> int:
    """The broker epoch of the last clean shutdown, by which the controller knows that no data was lost; or -1."""
    epochs = {read_clean_shutdown(fs, directory.path) for directory in log_manager.dirs}
    epoch = epochs.pop() if len(epochs) == 1 else None
    return -1 if epoch is None else epoch


def _features(feature_class: Callable[..., F]) -> list[F]:
    return [
        feature_class(name=name, min_supported_version=levels.min, max_supported_version=levels.max)
        for name, levels in SUPPORTED_FEATURES.items()
    ]
