"""The first records of a new cluster."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.metadata.features import LATEST_METADATA_VERSION, bootstrap_levels
from ottla.wire import messages


def bootstrap_records(
    metadata_version: int = LATEST_METADATA_VERSION, overrides: Mapping[str, int] | None = None
) -> list[messages.FeatureLevelRecord]:
    """The FeatureLevelRecords of a new cluster, as `kafka-storage format` writes them; level 0 is left out."""
    levels = bootstrap_levels(metadata_version) | dict(overrides or {})
    return [messages.FeatureLevelRecord(name=n, feature_level=v) for n, v in levels.items() if v]
