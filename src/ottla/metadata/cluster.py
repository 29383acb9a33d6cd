"""Converts registrations of brokers and controllers from and to their records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

from msgspec.structs import replace

from ottla.errors import ApiException, ErrorCode
from ottla.metadata.features import (
    CORDONED_LOG_DIRS_FROM,
    DIRECTORY_ASSIGNMENT_FROM,
    LATEST_METADATA_VERSION,
    MIGRATION_FROM,
)
from ottla.metadata.image import BrokerRegistration, ControllerRegistration, ListenerEndpoint, VersionRange
from ottla.wire import messages

T = TypeVar("T", covariant=True)

_FENCING = {-1: False, 0: None, 1: True}
_CONTROLLED_SHUTDOWN = {0: None, 1: True}


def broker_from_record(r: messages.RegisterBrokerRecord) -> BrokerRegistration:
    """The broker that a RegisterBrokerRecord registers."""
    return BrokerRegistration(
        id=r.broker_id,
        epoch=r.broker_epoch,
        incarnation_id=r.incarnation_id,
        listeners=_endpoints(r),
        features=_features(r),
        rack=r.rack,
        fenced=r.fenced,
        in_controlled_shutdown=r.in_controlled_shutdown,
        directories=tuple(sorted(r.log_dirs)),
        cordoned_directories=tuple(sorted(r.cordoned_log_dirs or ())),
        is_migrating_zk_broker=r.is_migrating_zk_broker,
    )


def broker_to_record(
    b: BrokerRegistration, metadata_version: int = LATEST_METADATA_VERSION
) -> messages.RegisterBrokerRecord:
    """The RegisterBrokerRecord for this broker, with the fields that this metadata.version has."""
    has_directories = metadata_version >= DIRECTORY_ASSIGNMENT_FROM
    has_cordoned = metadata_version >= CORDONED_LOG_DIRS_FROM
    cls = messages.RegisterBrokerRecord
    return cls(
        broker_id=b.id,
        broker_epoch=b.epoch,
        incarnation_id=b.incarnation_id,
        end_points=listeners_as(cls.BrokerEndpoint, b.listeners.values()),
        features=features_as(cls.BrokerFeature, b.features.items()),
        rack=b.rack,
        fenced=b.fenced,
        in_controlled_shutdown=b.in_controlled_shutdown,
        log_dirs=list(b.directories) if has_directories else [],
        cordoned_log_dirs=(list(b.cordoned_directories) or None) if has_cordoned else None,
        is_migrating_zk_broker=b.is_migrating_zk_broker and metadata_version >= MIGRATION_FROM,
    )


def changed_broker(b: BrokerRegistration, r: messages.BrokerRegistrationChangeRecord) -> BrokerRegistration:
    """The broker after a BrokerRegistrationChangeRecord."""
    if r.fenced not in _FENCING or r.in_controlled_shutdown not in _CONTROLLED_SHUTDOWN:
        raise ApiException(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"a BrokerRegistrationChangeRecord of broker {b.id} has fenced={r.fenced}, "
            f"in_controlled_shutdown={r.in_controlled_shutdown}, which are not valid",
        )
    fenced = _FENCING[r.fenced]
    in_controlled_shutdown = _CONTROLLED_SHUTDOWN[r.in_controlled_shutdown]
    return replace(
        b,
        fenced=b.fenced if fenced is None else fenced,
        in_controlled_shutdown=b.in_controlled_shutdown
        if in_controlled_shutdown is None
        else in_controlled_shutdown,
        directories=tuple(sorted(r.log_dirs)) if r.log_dirs else b.directories,
        cordoned_directories=(
            b.cordoned_directories if r.cordoned_log_dirs is None else tuple(sorted(r.cordoned_log_dirs))
        ),
    )


def controller_from_record(r: messages.RegisterControllerRecord) -> ControllerRegistration:
    """The controller that a RegisterControllerRecord registers."""
    return ControllerRegistration(
        id=r.controller_id,
        incarnation_id=r.incarnation_id,
        listeners=_endpoints(r),
        features=_features(r),
        zk_migration_ready=r.zk_migration_ready,
    )


def controller_to_record(c: ControllerRegistration) -> messages.RegisterControllerRecord:
    """The RegisterControllerRecord that registers this controller."""
    cls = messages.RegisterControllerRecord
    return cls(
        controller_id=c.id,
        incarnation_id=c.incarnation_id,
        zk_migration_ready=c.zk_migration_ready,
        end_points=listeners_as(cls.ControllerEndpoint, c.listeners.values()),
        features=features_as(cls.ControllerFeature, c.features.items()),
    )


def _endpoints(
    r: messages.RegisterBrokerRecord | messages.RegisterControllerRecord,
) -> dict[str, ListenerEndpoint]:
    return {e.name: ListenerEndpoint(e.name, e.host, e.port, e.security_protocol) for e in r.end_points}


def _features(
    r: messages.RegisterBrokerRecord | messages.RegisterControllerRecord,
) -> dict[str, VersionRange]:
    return {f.name: VersionRange(f.min_supported_version, f.max_supported_version) for f in r.features}


# Listeners and features of any registration message


class RegisteredListener(Protocol):
    """A listener of a registration: of the image, a request or a record."""

    @property
    def name(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def security_protocol(self) -> int: ...


class ListenerClass(Protocol[T]):
    """A message's class for a listener."""

    def __call__(self, *, name: str, host: str, port: int, security_protocol: int) -> T: ...


class FeatureClass(Protocol[T]):
    """A message's class for a supported feature."""

    def __call__(self, *, name: str, min_supported_version: int, max_supported_version: int) -> T: ...


def listeners_as(cls: ListenerClass[T], listeners: Iterable[RegisteredListener]) -> list[T]:
    """The listeners as entries of a message."""
    return [
        cls(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol) for e in listeners
    ]


def features_as(cls: FeatureClass[T], features: Iterable[tuple[str, VersionRange]]) -> list[T]:
    """The supported features as entries of a message."""
    return [
        cls(name=name, min_supported_version=levels.min, max_supported_version=levels.max)
        for name, levels in features
    ]
