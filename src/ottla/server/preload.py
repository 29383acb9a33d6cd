"""Loading ahead: what a node did not need for its first answer, and what the next requests should not wait for."""

from __future__ import annotations

import gc
from importlib import import_module

from ottla.api import registry


def preload() -> None:
    """Load the APIs and the coordinators. For a thread: it takes a few hundred milliseconds."""
    registry.load_all()
    import_module("ottla.broker.coordinator_factory")
    # These stay, too.
    gc.freeze()
