"""A share group's settings for its partitions: its own configs over the broker's defaults, within its bounds."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.config.broker import BrokerConfig
from ottla.replica.share.states import ShareSettings


def share_settings(config: BrokerConfig, overrides: Mapping[str, str]) -> ShareSettings:
    """The settings in force. A group's value that has left the broker's bounds counts as the bound."""

    def number(name: str) -> int:
        text = overrides.get(f"share.{name}")
        if text is None:
            return config.int(f"group.share.{name}")
        least, most = config.int(f"group.share.min.{name}"), config.int(f"group.share.max.{name}")
        return max(least, min(most, int(text)))

    return ShareSettings(
        record_lock_ms=number("record.lock.duration.ms"),
        delivery_count_limit=number("delivery.count.limit"),
        max_in_flight=number("partition.max.record.locks"),
        renew_enabled=overrides.get("share.renew.acknowledge.enable", "true").strip().lower() == "true",
        auto_offset_reset=overrides.get("share.auto.offset.reset", "latest"),
        read_committed=overrides.get("share.isolation.level", "read_uncommitted") == "read_committed",
    )
