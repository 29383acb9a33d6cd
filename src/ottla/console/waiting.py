"""What waits between the two steps of a change, so that what was seen is what is done: offsets, salted passwords."""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

T = TypeVar("T")

HANDLE: Final = "handle"
"""The field of a form that carries the handle to the second step."""
_KEPT: Final = 100
_KEPT_S: Final = 600.0


@dataclass(slots=True)
class Waiting(Generic[T]):
    """Few values, for ten minutes, each found by a random handle and for one purpose only."""

    found: OrderedDict[str, tuple[float, str, T]] = field(default_factory=OrderedDict, repr=False)

    def put(self, value: T, purpose: str = "") -> str:
        """Keep a value; the handle to it."""
        handle = secrets.token_hex(16)
        self.found[handle] = time.monotonic() + _KEPT_S, purpose, value
        while len(self.found) > _KEPT:
            self.found.popitem(last=False)
        return handle

    def get(self, handle: str, purpose: str = "") -> T | None:
        """The value, unless it is too old, gone, or was kept for another purpose."""
        kept = self.found.get(handle)
        if kept is None or kept[0] <= time.monotonic() or kept[1] != purpose:
            return None
        return kept[2]

    def forget(self, handle: str) -> None:
        """A value that was used."""
        self.found.pop(handle, None)
