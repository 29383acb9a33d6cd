"""Feature levels: those that Kafka 4.3.1 supports, and those of a new cluster of each release."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.errors import ApiException, ErrorCode
from ottla.metadata.image import VersionRange

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
TRANSACTION_VERSION: Final = "transaction.version"
GROUP_VERSION: Final = "group.version"
SHARE_VERSION: Final = "share.version"
STREAMS_VERSION: Final = "streams.version"
ELR_VERSION: Final = "eligible.leader.replicas.version"

METADATA_VERSIONS: Final[Mapping[int, str]] = {
    7: "3.3-IV3",
    8: "3.4-IV0",
    9: "3.5-IV0",
    10: "3.5-IV1",
    11: "3.5-IV2",
    12: "3.6-IV0",
    13: "3.6-IV1",
    14: "3.6-IV2",
    15: "3.7-IV0",
    16: "3.7-IV1",
    17: "3.7-IV2",
    18: "3.7-IV3",
    19: "3.7-IV4",
    20: "3.8-IV0",
    21: "3.9-IV0",
    22: "4.0-IV0",
    23: "4.0-IV1",
    24: "4.0-IV2",
    25: "4.0-IV3",
    26: "4.1-IV0",
    27: "4.1-IV1",
    28: "4.2-IV0",
    29: "4.2-IV1",
    30: "4.3-IV0",
}
"""Names of the levels of metadata.version."""

MINIMUM_METADATA_VERSION: Final = min(METADATA_VERSIONS)
LATEST_METADATA_VERSION: Final = max(METADATA_VERSIONS)

# The levels from which a record type, or a field of one, may be written.
MIGRATION_FROM: Final = 8
SCRAM_FROM: Final = 11
TRANSACTIONS_FROM: Final = 13
DELEGATION_TOKENS_FROM: Final = 14
CONTROLLER_REGISTRATION_FROM: Final = 15
DIRECTORY_ASSIGNMENT_FROM: Final = 17
ELR_RECORDS_FROM: Final = 23
CORDONED_LOG_DIRS_FROM: Final = 30

SUPPORTED_FEATURES: Final[Mapping[str, VersionRange]] = {
    GROUP_VERSION: VersionRange(0, 1),
    KRAFT_VERSION: VersionRange(0, 1),
    METADATA_VERSION: VersionRange(MINIMUM_METADATA_VERSION, LATEST_METADATA_VERSION),
    SHARE_VERSION: VersionRange(0, 1),
    STREAMS_VERSION: VersionRange(0, 1),
    TRANSACTION_VERSION: VersionRange(0, 2),
    ELR_VERSION: VersionRange(0, 1),
}
"""The levels that ApiVersions reports as supported, and that brokers and controllers register."""

_BOOTSTRAP_LEVELS: Final[tuple[tuple[str, int, int], ...]] = (
    # (feature, level, the metadata.version from which a new cluster has it)
    (ELR_VERSION, 1, 26),
    (GROUP_VERSION, 1, 22),
    (SHARE_VERSION, 1, 28),
    (STREAMS_VERSION, 1, 29),
    (TRANSACTION_VERSION, 2, 24),
)

DEPENDENCIES: Final[Mapping[tuple[str, int], Mapping[str, int]]] = {
    (ELR_VERSION, 1): {METADATA_VERSION: ELR_RECORDS_FROM},
}
"""The levels of other features that a feature level requires."""


def metadata_version_name(level: int) -> str:
    """ "4.3-IV0" for 30. Raises ApiException for a level that is not supported."""
    try:
        return METADATA_VERSIONS[level]
    except KeyError:
        raise ApiException(
            ErrorCode.UNSUPPORTED_VERSION,
            f"metadata.version {level} is not supported: levels are "
            f"{MINIMUM_METADATA_VERSION} to {LATEST_METADATA_VERSION}",
        ) from None


def metadata_version_level(name: str) -> int:
    """The level of "4.3-IV0", or the last of a release: "4.3" and "4.3.1" give 30 as well."""
    release = ".".join(name.split(".")[:2])
    for level in sorted(METADATA_VERSIONS, reverse=True):
        known = METADATA_VERSIONS[level]
        if release in (known, known.partition("-")[0]):
            return level
    supported = ", ".join(METADATA_VERSIONS.values())
    raise ApiException(
        ErrorCode.INVALID_CONFIG, f"unknown metadata.version {name!r}; supported are: {supported}"
    )


def bootstrap_levels(metadata_version: int = LATEST_METADATA_VERSION) -> dict[str, int]:
    """The feature levels of a new cluster at this metadata.version, in the order Kafka writes them."""
    levels = {METADATA_VERSION: metadata_version}
    for name, level, since in _BOOTSTRAP_LEVELS:
        if metadata_version >= since:
            levels[name] = level
    return levels
