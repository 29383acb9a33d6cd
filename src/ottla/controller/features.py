"""UpdateFeatures: raises and lowers finalized feature levels within the range that every node supports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Protocol

from ottla.controller.result import NO_ERROR, ApiError, ControllerResult
from ottla.controller.settings import MIN_ISR_KEY, Settings
from ottla.errors import ApiException, ErrorCode
from ottla.metadata.features import (
    DEPENDENCIES,
    ELR_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    SUPPORTED_FEATURES,
)
from ottla.metadata.image import ENTITY_DEFAULT, MetadataImage, VersionRange
from ottla.wire.classes import WireMessage
from ottla.wire.enums import ConfigResourceType, UpgradeType
from ottla.wire.messages import ConfigRecord, FeatureLevelRecord, UpdateFeaturesResponse

if TYPE_CHECKING:
    from ottla.wire.messages import UpdateFeaturesRequest

_RECORDS_CHANGED_AT: Final = frozenset({7, 8, 11, 13, 14, 15, 17, 23, 30})
"""Levels of metadata.version that added records or fields which an earlier level cannot represent."""

_UPGRADE_TYPES: Final = frozenset(UpgradeType) - {UpgradeType.UNKNOWN}


class QuorumVersion(Protocol):
    """kraft.version, which the quorum keeps in control records of its own."""

    @property
    def kraft_version(self) -> int: ...

    def check_kraft_version(self, level: int) -> None:
        """Raise INVALID_UPDATE_VERSION if kraft.version cannot be raised to this level now."""
        ...


def update_features(
    image: MetadataImage,
    request: UpdateFeaturesRequest,
    settings: Settings,
    version: int,
    quorum: QuorumVersion,
) -> ControllerResult[UpdateFeaturesResponse]:
    """Decide UpdateFeatures: all of the updates, or none. The caller raises kraft.version when this succeeded."""
    updates = {update.feature: update for update in request.feature_updates}
    proposed = {**image.features, **{name: update.max_version_level for name, update in updates.items()}}
    records: list[WireMessage] = []
    error = NO_ERROR
    try:
        for update in updates.values():
            if version == 0:
                # Version 0 has only a flag, which allows a safe downgrade.
                update.upgrade_type = (
                    UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE
                )
            records += _update(image, update, proposed, quorum)
    except ApiException as refused:
        error = ApiError(
            refused.code,
            f"The update failed for all features since the following feature had an error: {refused.message}",
        )
        records = []
    if records and proposed.get(ELR_VERSION, 0) > 0 and ELR_VERSION in updates:
        records = [*_make_elr_safe(image, settings), *records]
    response = UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
    if not error.failed and version <= 1:
        response.results = [
            UpdateFeaturesResponse.UpdatableFeatureResult(feature=name, error_code=0, error_message=None)
            for name in updates
        ]
    return ControllerResult([] if request.validate_only else records, response)


def _update(
    image: MetadataImage,
    update: UpdateFeaturesRequest.FeatureUpdateKey,
    proposed: Mapping[str, int],
    quorum: QuorumVersion,
) -> list[FeatureLevelRecord]:
    name, level = update.feature, update.max_version_level

    def refuse(why: str) -> ApiException:
        return ApiException(
            ErrorCode.INVALID_UPDATE_VERSION, f"Invalid update version {level} for feature {name}. {why}"
        )

    if update.upgrade_type not in _UPGRADE_TYPES:
        raise refuse("The controller does not support the given upgrade type.")
    upgrade_type = UpgradeType(update.upgrade_type)
    if level < 0:
        raise refuse("A feature version cannot be less than 0.")
    reason = _why_unsupported(image, name, level)
    if reason is not None:
        raise refuse(reason)
    current = quorum.kraft_version if name == KRAFT_VERSION else image.features.get(name, 0)
    if level < current and upgrade_type is UpgradeType.UPGRADE:
        raise refuse(
            "Can't downgrade the version of this feature without setting the upgrade type to "
            "either safe or unsafe downgrade."
        )
    if level > current and upgrade_type is not UpgradeType.UPGRADE:
        raise refuse("Can't downgrade to a newer version.")
    if name == KRAFT_VERSION:
        quorum.check_kraft_version(level)
        return []
    if name == METADATA_VERSION:
        lost = [step for step in _RECORDS_CHANGED_AT if level < step <= current]
        if lost:
            raise refuse(f"Metadata that came with version {max(lost)} might be lost.")
    for needed, least in DEPENDENCIES.get((name, level), {}).items():
        if proposed.get(needed, 0) < least:
            raise refuse(f"It depends on {needed} level {least}.")
    return [FeatureLevelRecord(name=name, feature_level=level)]


def _why_unsupported(image: MetadataImage, name: str, level: int) -> str | None:
    own = SUPPORTED_FEATURES.get(name)
    if own is None:
        return "Local controller does not support this feature."
    nodes: list[tuple[str, VersionRange | None]] = [("Local controller", own)]
    nodes += [(f"Broker {broker.id}", broker.features.get(name)) for broker in image.brokers.values()]
    nodes += [
        (f"Controller {controller.id}", controller.features.get(name))
        for controller in image.controllers.values()
    ]
    for node, supported in nodes:
        low, high = supported or (0, 0)
        if level and not low <= level <= high:
            return f"{node} only supports versions {low}-{high}."
        if not level and low > 0:
            return f"{node} requires this feature."
    return None


def _make_elr_safe(image: MetadataImage, settings: Settings) -> list[ConfigRecord]:
    """ELR needs one min.insync.replicas for all brokers: set it for the cluster, remove it from single brokers."""
    records: list[ConfigRecord] = []
    broker = ConfigResourceType.BROKER
    if MIN_ISR_KEY not in image.configs.of(broker, ENTITY_DEFAULT):
        records.append(
            ConfigRecord(
                resource_type=broker,
                resource_name=ENTITY_DEFAULT,
                name=MIN_ISR_KEY,
                value=str(settings.static_min_insync_replicas),
            )
        )
    records += [
        ConfigRecord(resource_type=broker, resource_name=name, name=MIN_ISR_KEY, value=None)
        for (type_, name), values in image.configs.resources.items()
        if type_ == broker and name != ENTITY_DEFAULT and MIN_ISR_KEY in values
    ]
    return records
