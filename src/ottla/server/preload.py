"""Loads modules after the start that the first answer did not need, so that later requests do not wait for them."""

from __future__ import annotations

import gc
from importlib import import_module

from ottla.api import registry


def preload() -> None:
    """Load the APIs and the coordinators. Run it in a thread: it takes a few hundred milliseconds."""
    registry.load_all()
    import_module("ottla.broker.coordinator_factory")
    # These modules live as long as the process, too.
    gc.freeze()
