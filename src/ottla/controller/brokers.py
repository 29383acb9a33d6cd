"""Registration, heartbeats, controlled shutdown and unregistration of brokers; registration of controllers.

    FENCED ──caught up, wants unfencing──▶ UNFENCED ──wants to shut down, leads──▶ CONTROLLED_SHUTDOWN
       ▲                                   │ wants to be fenced                        │ leads nothing any more,
       └───────────────────────────────────┘                                           ▼ others know
       └──────────wants to shut down───────────────────────────────────────────▶ SHUTDOWN_NOW

Pure functions of the image. Sessions and offsets, which only the running controller knows, are arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final

from ottla.controller import partitions
from ottla.controller.cluster import check_broker_epoch
from ottla.controller.result import ControllerResult
from ottla.controller.settings import Settings
from ottla.errors import ApiException, ErrorCode
from ottla.ids import BrokerId
from ottla.metadata.cluster import features_as, listeners_as
from ottla.metadata.features import (
    CONTROLLER_REGISTRATION_FROM,
    CORDONED_LOG_DIRS_FROM,
    DIRECTORY_ASSIGNMENT_FROM,
    KRAFT_VERSION,
    METADATA_VERSION,
)
from ottla.metadata.image import BrokerRegistration, MetadataImage, VersionRange
from ottla.wire.classes import WireMessage
from ottla.wire.messages import (
    BrokerHeartbeatResponse,
    BrokerRegistrationChangeRecord,
    BrokerRegistrationResponse,
    ControllerRegistrationResponse,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
    UnregisterBrokerResponse,
)

if TYPE_CHECKING:
    from ottla.wire.messages import (
        BrokerHeartbeatRequest,
        BrokerRegistrationRequest,
        ControllerRegistrationRequest,
        UnregisterBrokerRequest,
    )

_FENCE: Final = 1
_UNFENCE: Final = -1
_IN_CONTROLLED_SHUTDOWN: Final = 1
_RESERVED_DIRECTORIES: Final = 100
"""Directory ids below this number, as integers, have a special meaning."""


class BrokerControlState(Enum):
    """The state of a broker in the controller."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shut down now"

    @property
    def fenced(self) -> bool:
        return self in (BrokerControlState.FENCED, BrokerControlState.SHUTDOWN_NOW)


def register_broker(
    image: MetadataImage,
    request: BrokerRegistrationRequest,
    settings: Settings,
    *,
    next_offset: int,
    session_is_alive: bool,
) -> ControllerResult[BrokerRegistrationResponse]:
    """Decide BrokerRegistration. The new broker epoch is `next_offset`."""
    if request.cluster_id != settings.cluster_id:
        raise ApiException(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {settings.cluster_id}, but got cluster ID {request.cluster_id}.",
        )
    existing = image.brokers.get(request.broker_id)
    new_incarnation = existing is None or existing.incarnation_id != request.incarnation_id
    if existing is not None and new_incarnation and session_is_alive:
        raise ApiException(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"Another broker is registered with the id {request.broker_id}. If it was restarted just now, "
            "this resolves itself when its session has expired.",
        )
    if request.is_migrating_zk_broker:
        raise ApiException(ErrorCode.BROKER_ID_NOT_REGISTERED, "Brokers with ZooKeeper cannot register.")
    _check_directories(image, request)
    _check_features(image, request)
    record = _registration_record(image, request)
    records: list[WireMessage] = []
    if existing is None or new_incarnation:
        records += _previous_incarnation_gone(image, request, settings, existing)
        record.broker_epoch = next_offset
    else:
        record.fenced = existing.fenced
        record.in_controlled_shutdown = existing.in_controlled_shutdown
        record.broker_epoch = existing.epoch
    # The registration comes last: if only a part is written, the broker registers again and everything is repeated.
    records.append(record)
    return ControllerResult(
        records, BrokerRegistrationResponse(broker_epoch=record.broker_epoch), atomic=False
    )


def _check_directories(image: MetadataImage, request: BrokerRegistrationRequest) -> None:
    if image.metadata_version < DIRECTORY_ASSIGNMENT_FROM:
        return
    if not request.log_dirs:
        raise _invalid_registration("The registration names no log directory.")
    if any(int.from_bytes(directory) < _RESERVED_DIRECTORIES for directory in request.log_dirs):
        raise _invalid_registration("The registration names a reserved directory id.")
    if len(set(request.log_dirs)) < len(request.log_dirs):
        raise _invalid_registration("The registration names a directory twice.")
    for broker in image.brokers.values():
        if broker.id != request.broker_id and set(broker.directories) & set(request.log_dirs):
            raise _invalid_registration(
                f"Broker {broker.id} is already registered with one of the directories."
            )


def _check_features(image: MetadataImage, request: BrokerRegistrationRequest) -> None:
    """The broker must support every finalized level. A feature that it does not name has level 0 only."""
    ranges = dict(_features(request))
    if METADATA_VERSION not in ranges:
        raise _invalid_registration(f"The registration's features do not contain {METADATA_VERSION}.")
    for name in {*ranges, *image.features} - {KRAFT_VERSION}:
        low, high = ranges.get(name, (0, 0))
        finalized = image.features.get(name, 0)
        if not low <= finalized <= high:
            raise ApiException(
                ErrorCode.UNSUPPORTED_VERSION,
                f"The broker does not support the finalized version {finalized} of {name}: "
                f"it wants one between {low} and {high}.",
            )


def _registration_record(image: MetadataImage, request: BrokerRegistrationRequest) -> RegisterBrokerRecord:
    record = RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        rack=request.rack,
        end_points=listeners_as(RegisterBrokerRecord.BrokerEndpoint, request.listeners),
        features=features_as(RegisterBrokerRecord.BrokerFeature, _features(request)),
    )
    if image.metadata_version >= DIRECTORY_ASSIGNMENT_FROM:
        record.log_dirs = list(request.log_dirs)
    return record


def _previous_incarnation_gone(
    image: MetadataImage,
    request: BrokerRegistrationRequest,
    settings: Settings,
    existing: BrokerRegistration | None,
) -> Sequence[WireMessage]:
    """Partition changes for a restart: the broker leaves the ISRs, and after a crash it is not eligible either."""
    clean = existing is not None and existing.epoch == request.previous_broker_epoch
    if image.elr_enabled and not clean:
        return partitions.changes_for_unclean_shutdown(image, settings, request.broker_id)
    return partitions.changes_for_broker_leaving(image, settings, request.broker_id)


def heartbeat(
    image: MetadataImage,
    request: BrokerHeartbeatRequest,
    settings: Settings,
    *,
    registration_offset: int,
    others_know_shutdown: bool,
) -> tuple[BrokerControlState, ControllerResult[BrokerHeartbeatResponse]]:
    """Decide BrokerHeartbeat. Returns the broker's next state too.

    `others_know_shutdown`: all active brokers have read the records that started this broker's controlled shutdown.
    """
    broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    caught_up = request.current_metadata_offset >= registration_offset
    current = _current_state(broker)
    state = _next_state(image, current, request, caught_up, others_know_shutdown)
    records: list[WireMessage] = []
    if state is not current:
        records += _records_for_state(image, settings, broker, state)
    records += _records_for_directories(image, settings, broker, request)
    response = BrokerHeartbeatResponse(
        is_caught_up=caught_up,
        is_fenced=state.fenced,
        should_shut_down=state is BrokerControlState.SHUTDOWN_NOW,
    )
    return state, ControllerResult(records, response, atomic=False)


def _current_state(broker: BrokerRegistration) -> BrokerControlState:
    if broker.fenced:
        return BrokerControlState.FENCED
    if broker.in_controlled_shutdown:
        return BrokerControlState.CONTROLLED_SHUTDOWN
    return BrokerControlState.UNFENCED


def _next_state(
    image: MetadataImage,
    current: BrokerControlState,
    request: BrokerHeartbeatRequest,
    caught_up: bool,
    others_know_shutdown: bool,
) -> BrokerControlState:
    state = BrokerControlState
    if current is state.FENCED:
        if request.want_shut_down:
            return state.SHUTDOWN_NOW
        return state.UNFENCED if caught_up and not request.want_fence else state.FENCED
    leads = partitions.leads_any(image, request.broker_id) if request.want_shut_down else False
    if current is state.UNFENCED:
        if request.want_fence:
            return state.SHUTDOWN_NOW if request.want_shut_down else state.FENCED
        if request.want_shut_down:
            return state.CONTROLLED_SHUTDOWN if leads else state.SHUTDOWN_NOW
        return state.UNFENCED
    leads = leads or partitions.leads_any(image, request.broker_id)
    return state.CONTROLLED_SHUTDOWN if leads or not others_know_shutdown else state.SHUTDOWN_NOW


def _records_for_state(
    image: MetadataImage, settings: Settings, broker: BrokerRegistration, state: BrokerControlState
) -> list[WireMessage]:
    change = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch)
    if state is BrokerControlState.UNFENCED:
        change.fenced = _UNFENCE
        return [change, *partitions.changes_for_broker_unfenced(image, settings, broker.id)]
    leaving = partitions.changes_for_broker_leaving(image, settings, broker.id)
    if state is BrokerControlState.CONTROLLED_SHUTDOWN:
        change.in_controlled_shutdown = _IN_CONTROLLED_SHUTDOWN
        return [change, *leaving]
    if broker.fenced:
        return []
    change.fenced = _FENCE
    return [*leaving, change]


def fence_broker(
    image: MetadataImage, settings: Settings, broker_id: BrokerId, broker_epoch: int
) -> ControllerResult[None]:
    """Fence a broker whose session has expired or whose process is gone: it may not lead or be in sync."""
    broker = image.brokers.get(broker_id)
    records: list[WireMessage] = []
    if broker is not None and broker.epoch == broker_epoch and not broker.fenced:
        records = _records_for_state(image, settings, broker, BrokerControlState.FENCED)
    return ControllerResult(records, None, atomic=False)


def _records_for_directories(
    image: MetadataImage, settings: Settings, broker: BrokerRegistration, request: BrokerHeartbeatRequest
) -> list[WireMessage]:
    """Records for log directories that the broker reports as failed or cordoned."""
    records: list[WireMessage] = []
    failed = set(broker.directories).intersection(request.offline_log_dirs)
    if failed and image.metadata_version >= DIRECTORY_ASSIGNMENT_FROM:
        records.append(
            BrokerRegistrationChangeRecord(
                broker_id=broker.id,
                broker_epoch=broker.epoch,
                log_dirs=[directory for directory in broker.directories if directory not in failed],
            )
        )
        records += partitions.changes_for_failed_directories(image, settings, broker.id, failed)
    cordoned = request.cordoned_log_dirs
    if (
        cordoned is not None
        and set(cordoned) != set(broker.cordoned_directories)
        and image.metadata_version >= CORDONED_LOG_DIRS_FROM
    ):
        records.append(
            BrokerRegistrationChangeRecord(
                broker_id=broker.id, broker_epoch=broker.epoch, cordoned_log_dirs=list(cordoned)
            )
        )
    return records


def unregister_broker(
    image: MetadataImage, request: UnregisterBrokerRequest, settings: Settings
) -> ControllerResult[UnregisterBrokerResponse]:
    """Decide UnregisterBroker: remove a broker that will not come back."""
    broker = image.brokers.get(BrokerId(request.broker_id))
    if broker is None:
        raise ApiException(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {request.broker_id} is not currently registered."
        )
    records: list[WireMessage] = [*partitions.changes_for_broker_unregistered(image, settings, broker.id)]
    records.append(UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch))
    return ControllerResult(records, UnregisterBrokerResponse(error_message=None), atomic=False)


def register_controller(
    image: MetadataImage, request: ControllerRegistrationRequest
) -> ControllerResult[ControllerRegistrationResponse]:
    """Decide ControllerRegistration."""
    if image.metadata_version < CONTROLLER_REGISTRATION_FROM:
        raise ApiException(
            ErrorCode.UNSUPPORTED_VERSION,
            f"metadata.version {image.metadata_version} has no controller registrations.",
        )
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        zk_migration_ready=False,
        end_points=listeners_as(RegisterControllerRecord.ControllerEndpoint, request.listeners),
        features=features_as(RegisterControllerRecord.ControllerFeature, _features(request)),
    )
    return ControllerResult([record], ControllerRegistrationResponse(error_message=None))


def _features(
    request: BrokerRegistrationRequest | ControllerRegistrationRequest,
) -> list[tuple[str, VersionRange]]:
    return [
        (feature.name, VersionRange(feature.min_supported_version, feature.max_supported_version))
        for feature in request.features
    ]


def _invalid_registration(message: str) -> ApiException:
    return ApiException(ErrorCode.INVALID_REGISTRATION, message)
