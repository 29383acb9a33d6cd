"""The settings of one streams group: its own configs, else the broker's."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.coordinator.group.context import GroupContext
from ottla.coordinator.group.group_config import group_setting


@dataclass(frozen=True, slots=True)
class StreamsSettings:
    """Read these for each operation, since configs change at any time."""

    session_timeout_ms: int
    standby_replicas: int
    initial_rebalance_delay_ms: int
    assignment_interval_ms: int
    max_size: int

    @classmethod
    def of(cls, context: GroupContext, group_id: str) -> StreamsSettings:
        return cls(
            group_setting(context, group_id, "group.streams.session.timeout.ms"),
            group_setting(context, group_id, "group.streams.num.standby.replicas"),
            group_setting(context, group_id, "group.streams.initial.rebalance.delay.ms"),
            group_setting(context, group_id, "group.streams.assignment.interval.ms"),
            context.config.int("group.streams.max.size"),
        )

    @property
    def assignment_configs(self) -> dict[str, str]:
        """The configs on which the target depends, as the group's record keeps them. A change starts a new epoch."""
        return {"num.standby.replicas": str(self.standby_replicas)}
