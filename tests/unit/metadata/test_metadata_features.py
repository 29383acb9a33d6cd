"""Feature levels by name and number, as Kafka 4.3.1 has them."""

from __future__ import annotations

import pytest

from ottla.errors import ApiException
from ottla.metadata.features import (
    SUPPORTED_FEATURES,
    bootstrap_levels,
    metadata_version_level,
    metadata_version_name,
)


def test_a_fresh_cluster_has_the_levels_of_kafka_4_3_1() -> None:
    assert bootstrap_levels() == {
        "metadata.version": 30,
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "share.version": 1,
        "streams.version": 1,
        "transaction.version": 2,
    }


def test_an_older_release_has_fewer_features() -> None:
    assert bootstrap_levels(metadata_version_level("3.9")) == {"metadata.version": 21}
    assert bootstrap_levels(25) == {"metadata.version": 25, "group.version": 1, "transaction.version": 2}


@pytest.mark.parametrize(
    ("name", "level"),
    [("4.3-IV0", 30), ("4.3", 30), ("4.3.1", 30), ("4.0", 25), ("3.7-IV2", 17), ("3.7", 19)],
)
def test_names_of_releases_give_levels(name: str, level: int) -> None:
    assert metadata_version_level(name) == level


def test_unknown_names_and_levels_are_refused() -> None:
    with pytest.raises(ApiException, match=r"9\.9"):
        metadata_version_level("9.9")
    with pytest.raises(ApiException, match="31"):
        metadata_version_name(31)
    assert metadata_version_name(30) == "4.3-IV0"


def test_the_supported_ranges_are_what_kafkas_api_versions_reports() -> None:
    assert {name: tuple(r) for name, r in SUPPORTED_FEATURES.items()} == {
        "group.version": (0, 1),
        "kraft.version": (0, 1),
        "metadata.version": (7, 30),
        "share.version": (0, 1),
        "streams.version": (0, 1),
        "transaction.version": (0, 2),
        "eligible.leader.replicas.version": (0, 1),
    }
