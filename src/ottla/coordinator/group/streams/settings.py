"""What applies to one streams group: its own configs, else the broker's."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.coordinator.group.context import GroupContext
from ottla.coordinator.group.group_config import group_setting


@dataclass(frozen=True, slots=True)
class StreamsSettings:
    """Read per operation: configs change at any time."""

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
        """What the target depends on: a change of it makes a new one. Kept in the group's record."""
        return {"num.standby.replicas": str(self.standby_replicas)}
