"""What goes into the admin client: topics to make, resources to configure, offsets to look up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.wire.enums import ConfigResourceType


@dataclass(slots=True)
class NewTopic:
    """A topic to be created; -1 leaves the number to the broker."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    replica_assignments: Mapping[int, list[int]] | None = None
    topic_configs: Mapping[str, str] | None = None


@dataclass(slots=True)
class NewPartitions:
    """The number of partitions that a topic is to have, and where the new ones go."""

    total_count: int
    new_assignments: list[list[int]] | None = None


@dataclass(slots=True)
class ConfigResource:
    """A resource and its keys: names to look up, or values to set."""

    resource_type: ConfigResourceType
    name: str
    configs: Mapping[str, Any] | Iterable[str] | None = field(default=None)

    def __post_init__(self) -> None:
        if not isinstance(self.resource_type, ConfigResourceType):
            self.resource_type = ConfigResourceType[str(self.resource_type).upper()]
        self.name = str(self.name)
