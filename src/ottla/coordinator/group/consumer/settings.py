"""The settings of consumer groups: the group's own where it has any, else the broker's.

`ottla.coordinator.group.heartbeat_interval` decides how often members heartbeat.
"""

from __future__ import annotations

from enum import Enum

from ottla.config.broker import BrokerConfig
from ottla.coordinator.group.consumer.assignors import ASSIGNORS
from ottla.coordinator.group.context import GroupContext
from ottla.coordinator.group.group_config import group_setting


class MigrationPolicy(Enum):
    """`group.consumer.migration.policy`: whether a group may change its protocol while it has members."""

    DISABLED = "disabled"
    DOWNGRADE = "downgrade"
    UPGRADE = "upgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def allows_upgrade(self) -> bool:
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def allows_downgrade(self) -> bool:
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


def migration_policy(config: BrokerConfig) -> MigrationPolicy:
    return MigrationPolicy(config.str("group.consumer.migration.policy").lower())


def assignor_names(config: BrokerConfig) -> list[str]:
    """The names in `group.consumer.assignors`, the default first; Kafka's class names are translated."""
    return [_plain_name(name) for name in config.list("group.consumer.assignors")]


def _plain_name(name: str) -> str:
    plain = name.rpartition(".")[2].removesuffix("Assignor").lower()
    return plain if plain in ASSIGNORS else name


def session_timeout_ms(context: GroupContext, group_id: str) -> int:
    return group_setting(context, group_id, "group.consumer.session.timeout.ms")


def assignment_interval_ms(context: GroupContext, group_id: str) -> int:
    """The least time between two target assignments, so that members that join together are assigned together."""
    return group_setting(context, group_id, "group.consumer.assignment.interval.ms")
