"""The type variables of the public API: K and V for keys and values, R for results.

They have defaults: `KStream` without parameters is a stream of unknown types, and a topic without serdes holds text.
Python 3.11 knows no defaults at run time, so only type checkers and editors see them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from typing_extensions import TypeVar
else:
    import typing

    def TypeVar(name, *, default):  # noqa: N802
        """A type variable without the default that this Python does not know."""
        return typing.TypeVar(name)


Unknown: TypeAlias = Any
"""A type that nothing says anything about: the user's own values where they are not annotated."""

K = TypeVar("K", default=Unknown)
V = TypeVar("V", default=Unknown)
K2 = TypeVar("K2", default=Unknown)
V2 = TypeVar("V2", default=Unknown)
R = TypeVar("R", default=Unknown)
TextKey = TypeVar("TextKey", default=str)
TextValue = TypeVar("TextValue", default=str)
