"""APIs about the cluster itself: versions, brokers, topics as clients see them, coordinators, the quorum."""

from __future__ import annotations

from ottla.api.base import Api
from ottla.api.cluster import (
    api_versions,
    describe_cluster,
    describe_quorum,
    describe_topic_partitions,
    find_coordinator,
    metadata,
)

APIS: tuple[Api, ...] = (
    metadata.API,
    find_coordinator.API,
    api_versions.API,
    describe_quorum.API,
    describe_cluster.API,
    describe_topic_partitions.API,
)
