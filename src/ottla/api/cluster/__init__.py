"""APIs about the cluster: versions, brokers, topics as clients see them, coordinators, the quorum."""

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
"""The modules of this area, each named after its API. The registry loads them."""
