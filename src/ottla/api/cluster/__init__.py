"""APIs about the cluster itself: versions, brokers, topics as clients see them, coordinators, the quorum."""

from __future__ import annotations

from typing import Final

APIS: Final = (
    "metadata",
    "find_coordinator",
    "api_versions",
    "describe_quorum",
    "describe_cluster",
    "describe_topic_partitions",
)
"""The files of this area, each called as its API is; the registry loads them."""
