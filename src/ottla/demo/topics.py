"""The topics of the demo with their retention: the demo may run for days on a laptop."""

from __future__ import annotations

from typing import Final

from ottla.client.admin import KafkaAdminClient
from ottla.client.admin_types import NewTopic

LINES: Final = "demo-lines"
CLICKS: Final = "demo-clicks"
WORD_COUNTS: Final = "demo-word-counts"
CLICKS_PER_WINDOW: Final = "demo-clicks-per-window"
ORDERS: Final = "demo-orders"
ORDERS_PER_ITEM: Final = "demo-orders-per-item"

_DAY_MS: Final = str(24 * 60 * 60 * 1000)
_SEGMENT_BYTES: Final = str(16 << 20)
_SETTINGS: Final[dict[str, dict[str, str]]] = {
    LINES: {"retention.ms": _DAY_MS},
    CLICKS: {"retention.ms": _DAY_MS},
    ORDERS: {"retention.ms": _DAY_MS},
    WORD_COUNTS: {"cleanup.policy": "compact"},
    ORDERS_PER_ITEM: {"cleanup.policy": "compact"},
    CLICKS_PER_WINDOW: {"cleanup.policy": "compact,delete", "retention.ms": _DAY_MS},
}


def make_topics(bootstrap_servers: str) -> None:
    """Create the missing topics, with one partition each: that is enough for this rate."""
    with KafkaAdminClient(bootstrap_servers=bootstrap_servers) as admin:
        there = set(admin.list_topics())
        missing = [
            NewTopic(name, 1, 1, topic_configs={"segment.bytes": _SEGMENT_BYTES, **settings})
            for name, settings in _SETTINGS.items()
            if name not in there
        ]
        if missing:
            admin.create_topics(missing, wait_for_metadata=True)
