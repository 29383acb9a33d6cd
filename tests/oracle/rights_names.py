"""The names that a case about rights uses, and how a request is made of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Names:
    """The resources of a case. The topic is there, and a second one is not."""

    topic: Any
    topic_id: bytes
    missing: Any
    group: Any
    transactional_id: Any


Build = Callable[[Names], Any]
