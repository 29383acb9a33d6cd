"""The first records of a new cluster, and where they are found in a formatted directory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.metadata.features import LATEST_METADATA_VERSION, bootstrap_levels
from ottla.wire import messages


def bootstrap_records(
    metadata_version: int = LATEST_METADATA_VERSION, overrides: Mapping[str, int] | None = None
) -> list[Any]:
    """FeatureLevelRecords of a new cluster, as `kafka-storage format` writes them; level 0 leaves one out."""
    levels = bootstrap_levels(metadata_version) | dict(overrides or {})
    return [messages.FeatureLevelRecord(name=n, feature_level=v) for n, v in levels.items() if v]
