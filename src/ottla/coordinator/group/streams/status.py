"""What a streams group's members are told of their group's condition, beside errors."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class StatusCode(IntEnum):
    """Kafka's numbers."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class Status(NamedTuple):
    """A condition and its sentence."""

    code: StatusCode
    detail: str
