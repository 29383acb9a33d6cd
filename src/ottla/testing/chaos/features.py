"""Feature levels that go down and up again while the cluster is under load."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Final

from ottla.errors import ErrorCode
from ottla.metadata.features import (
    ELR_VERSION,
    GROUP_VERSION,
    SHARE_VERSION,
    STREAMS_VERSION,
    SUPPORTED_FEATURES,
    TRANSACTION_VERSION,
)
from ottla.testing.cluster import Cluster
from ottla.wire import messages
from ottla.wire.enums import UpgradeType

CHANGEABLE: Final = (ELR_VERSION, GROUP_VERSION, SHARE_VERSION, STREAMS_VERSION, TRANSACTION_VERSION)
"""Features whose levels Kafka lowers on a running cluster. Records of the newest metadata.version cannot be lost."""
_PATIENCE_S: Final = 60.0


def choose(rng: random.Random) -> tuple[str, int]:
    """Return a feature, and a level below its highest."""
    feature = rng.choice(CHANGEABLE)
    return feature, rng.randrange(SUPPORTED_FEATURES[feature].max)


@contextlib.contextmanager
def lowered(cluster: Cluster, feature: str, level: int) -> Iterator[None]:
    """Lower a level while the block runs."""
    set_level(cluster, feature, level, UpgradeType.SAFE_DOWNGRADE)
    try:
        yield
    finally:
        set_level(cluster, feature, SUPPORTED_FEATURES[feature].max, UpgradeType.UPGRADE)


def set_level(cluster: Cluster, feature: str, level: int, kind: UpgradeType) -> None:
    """Change a level, and wait until all brokers have it."""
    request = messages.UpdateFeaturesRequest
    asked = request(
        timeout_ms=20_000,
        feature_updates=[
            request.FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=kind)
        ],
    )

    def accepted() -> bool:
        if cluster.ask(asked, 1, timeout_s=30).error_code == ErrorCode.NONE:
            return True
        # An update whose response was lost is refused the second time.
        return levels(cluster).get(feature, 0) == level

    cluster.wait_for(accepted, _PATIENCE_S)
    cluster.wait_for(lambda: levels(cluster).get(feature, 0) == level, _PATIENCE_S)


def levels(cluster: Cluster) -> dict[str, int]:
    """Return the levels in force, as a broker knows them."""
    answer = cluster.ask(
        messages.ApiVersionsRequest(client_software_name="chaos", client_software_version="1"), 3
    )
    return {each.name: each.max_version_level for each in answer.finalized_features}
