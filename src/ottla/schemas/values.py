"""Users' values, and the functions that write and read them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

Value: TypeAlias = Any
"""What a program writes or reads: a dict, a dataclass, a message. Its schema knows the type, the checker does not."""
Make: TypeAlias = Callable[..., Value]
"""A class of users' values, or a function in its place."""
Encode: TypeAlias = Callable[[Value], bytes]


class Decode(Protocol):
    """Reads the value at a position of some bytes."""

    def __call__(self, data: bytes, start: int, /) -> Value: ...
