"""A share group's settings for its partitions: its own configs over the broker's defaults, within its limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.config.broker import BrokerConfig
from ottla.replica.share.states import ShareSettings

_LOCK: Final = (
    "group.share.record.lock.duration.ms",
    "group.share.min.record.lock.duration.ms",
    "group.share.max.record.lock.duration.ms",
)
_DELIVERIES: Final = (
    "group.share.delivery.count.limit",
    "group.share.min.delivery.count.limit",
    "group.share.max.delivery.count.limit",
)
_IN_FLIGHT: Final = (
    "group.share.partition.max.record.locks",
    "group.share.min.partition.max.record.locks",
    "group.share.max.partition.max.record.locks",
)
"""The broker's default for a group, and the limits for a group's own value."""


def share_settings(config: BrokerConfig, overrides: Mapping[str, str]) -> ShareSettings:
    """The effective settings. A group's value outside the broker's limits counts as the limit."""

    def number(keys: tuple[str, str, str]) -> int:
        default, least, most = keys
        text = overrides.get(default.removeprefix("group."))
        if text is None:
            return config.int(default)
        return max(config.int(least), min(config.int(most), int(text)))

    return ShareSettings(
        record_lock_ms=number(_LOCK),
        delivery_count_limit=number(_DELIVERIES),
        max_in_flight=number(_IN_FLIGHT),
        renew_enabled=overrides.get("share.renew.acknowledge.enable", "true").strip().lower() == "true",
        auto_offset_reset=overrides.get("share.auto.offset.reset", "latest"),
        read_committed=overrides.get("share.isolation.level", "read_uncommitted") == "read_committed",
    )
