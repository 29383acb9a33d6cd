"""Brokers that have just left: Metadata lists them a little longer than the cluster counts on them.

librdkafka lets go of a broker that is no longer listed, and takes that broker's partitions with it: told in one answer
of a partition's new leader and of the old one's disappearance, it loses the new leader again and looks for it only a
second later. When the broker stays listed for a moment, partitions move first and the broker goes afterwards.
"""

from __future__ import annotations

from typing import Final

from ottla.clock import Clock
from ottla.metadata.image import MetadataImage

LISTED_FOR_S: Final = 5.0


class RecentlyFencedBrokers:
    """When brokers were fenced, by this node's own watch."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._left: dict[int, float] = {}

    def note(self, before: MetadataImage, after: MetadataImage) -> None:
        """Take notice of what changed between two images."""
        if before.brokers is after.brokers:
            return
        for broker_id, registration in after.brokers.items():
            known = before.brokers.get(broker_id)
            if not registration.fenced:
                self._left.pop(broker_id, None)
            elif known is not None and not known.fenced:
                self._left[broker_id] = self._clock.monotonic()

    def still_listed(self, broker_id: int) -> bool:
        """Whether a fenced broker is listed still."""
        left = self._left.get(broker_id)
        return left is not None and self._clock.monotonic() - left < LISTED_FOR_S
