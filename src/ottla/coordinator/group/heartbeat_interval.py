"""The heartbeat interval of members of consumer, share and streams groups.

A deliberate difference from Apache Kafka, which always responds with `heartbeat.interval.ms`: Ottla responds with the
longest interval that delays no member. While a group moves to a new assignment, its members heartbeat after 100 to
500 ms (the more members, the longer), since each step waits for some member's next heartbeat. In a stable group they
heartbeat after a second as long as the group stays under a budget, so that a member does not notice a rebalance 5 s
late. Beyond the budget it is the default. An interval that an operator set, for the broker or for a group, is always
answered as it is.
"""

from __future__ import annotations

from typing import Final

from ottla.coordinator.group.context import GroupContext
from ottla.coordinator.group.group import GroupType
from ottla.coordinator.group.group_config import group_setting

RECONCILING_MIN_MS: Final = 100
RECONCILING_MAX_MS: Final = 500
RECONCILING_MS_PER_MEMBER: Final = 1
STABLE_MIN_MS: Final = 1000
STABLE_MS_PER_MEMBER: Final = 20
"""Keeps a group's heartbeats at 50 per second."""

_HEARTBEATS: Final = {
    GroupType.CONSUMER: "group.consumer.heartbeat.interval.ms",
    GroupType.SHARE: "group.share.heartbeat.interval.ms",
    GroupType.STREAMS: "group.streams.heartbeat.interval.ms",
}


def heartbeat_interval_ms(
    context: GroupContext, kind: GroupType, group_id: str, members: int, settled: bool
) -> int:
    """The interval for a response to a member; see the module."""
    key = _HEARTBEATS[kind]
    configured = group_setting(context, group_id, key)
    if key.removeprefix("group.") in context.group_config(group_id) or context.config.is_set(key):
        return configured
    if not settled:
        wanted = members * RECONCILING_MS_PER_MEMBER
        return min(configured, max(RECONCILING_MIN_MS, min(wanted, RECONCILING_MAX_MS)))
    return min(configured, max(STABLE_MIN_MS, members * STABLE_MS_PER_MEMBER))
