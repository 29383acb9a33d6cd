"""Python's garbage collector in the console: kept away from rounds, and from what lives as long as the process.

A round over a large cluster makes a million objects, of which nearly all are gone when it ends, without a cycle. The
collector would walk over all of them again and again: two thirds of a round's time.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Final

_THRESHOLDS: Final = (5_000, 50, 100)
"""Objects that survive live long, so the older generations are collected rarely."""


def settle() -> None:
    """Leave what the start made out of all collections."""
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """No collection until the block ends, or another thread's block does: young objects are collected then."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
