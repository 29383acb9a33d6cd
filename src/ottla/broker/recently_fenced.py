"""Brokers that were fenced a moment ago: Metadata responses list them for a few seconds longer.

librdkafka drops a broker that is no longer listed, together with that broker's partitions. If one response contains a
partition's new leader and lacks the old one, librdkafka loses the new leader again and looks for it only a second
later. While the old broker stays listed, the partitions move first and the broker disappears afterwards.
"""

from __future__ import annotations

from typing import Final

from ottla.clock import Clock
from ottla.metadata.image import MetadataImage

LISTED_FOR_S: Final = 5.0


class RecentlyFencedBrokers:
    """When brokers were fenced, as this node has seen it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._left: dict[int, float] = {}

    def note(self, before: MetadataImage, after: MetadataImage) -> None:
        """Record the brokers that were fenced or unfenced between two images."""
        if before.brokers is after.brokers:
            return
        for broker_id, registration in after.brokers.items():
            known = before.brokers.get(broker_id)
            if not registration.fenced:
                self._left.pop(broker_id, None)
            elif known is not None and not known.fenced:
                self._left[broker_id] = self._clock.monotonic()

    def still_listed(self, broker_id: int) -> bool:
        """Whether Metadata responses still list a fenced broker."""
        left = self._left.get(broker_id)
        return left is not None and self._clock.monotonic() - left < LISTED_FOR_S
