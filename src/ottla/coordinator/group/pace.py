"""A group's own settings over the broker's, and how often members of a group are to heartbeat.

A deliberate difference from Apache Kafka, which answers `heartbeat.interval.ms` always: here the interval in an answer
is the longest that costs nobody time. While a group is on its way to a new assignment its members are asked
back after 100 to 500 ms (the more members, the longer), since each step waits for someone's next heartbeat. In a
stable group they are asked back after a second as long as they stay under a budget, so that a rebalance is not
noticed 5 s late; beyond the budget, or where the interval was set by someone, it is as configured.
"""

from __future__ import annotations

from typing import Final

from ottla.coordinator.group.context import GroupContext
from ottla.coordinator.group.group import GroupType

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


def group_setting(context: GroupContext, group_id: str, key: str) -> int:
    """A number of the broker's (`group.` and the group's own key), unless the group has one of its own."""
    text = context.group_config(group_id).get(key.removeprefix("group."))
    return context.config.int(key) if text is None else int(text)


def heartbeat_interval_ms(
    context: GroupContext, kind: GroupType, group_id: str, members: int, settled: bool
) -> int:
    """When a member is to come back; see the module's docstring."""
    key = _HEARTBEATS[kind]
    configured = group_setting(context, group_id, key)
    if not settled:
        wanted = members * RECONCILING_MS_PER_MEMBER
        return min(configured, max(RECONCILING_MIN_MS, min(wanted, RECONCILING_MAX_MS)))
    if key.removeprefix("group.") in context.group_config(group_id) or context.config.is_set(key):
        return configured
    return min(configured, max(STABLE_MIN_MS, members * STABLE_MS_PER_MEMBER))
