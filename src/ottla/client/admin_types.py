"""What goes into the admin client: topics to make, resources to configure, offsets to look up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any


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


class ConfigResourceType(IntEnum):
    """What has a configuration."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class AlterConfigOp(IntEnum):
    """What is done to a key."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigSourceType(IntEnum):
    """Where a value in force comes from."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class ConfigType(IntEnum):
    """The type of a value."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


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
