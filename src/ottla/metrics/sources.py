"""What a node's metrics are read from, as `ottla.server` hands it over."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from ottla.broker.services import Broker, Node
    from ottla.metadata.publisher import MetadataLoader
    from ottla.net.watchdog import LoopWatchdog


class Sources(msgspec.Struct, frozen=True):
    """The parts of a running node."""

    node: Node
    broker: Callable[[], Broker | None]
    """None until the logs are loaded."""
    loader: MetadataLoader
    watchdog: LoopWatchdog | None
    preallocated_bytes: Callable[[], int]
    recovery_s: Callable[[], float]
