"""Functions as users write them (a lambda of the value, or of key and value, or an expression) in one shape inside."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ottla.streams.errors import TopologyError
from ottla.streams.expressions import Expression
from ottla.streams.records import Record

OfRecord = Callable[[Record], Any]


def positional_arity(function: Callable[..., Any]) -> int | None:
    """How many positional arguments a call must give; None where Python cannot tell (some builtins)."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = [one for one in signature.parameters.values() if one.kind in kinds]
    needed = [one for one in parameters if one.default is inspect.Parameter.empty]
    return len(needed) or len(parameters)


class Function:
    """What the user gave, and the same as a function of a record."""

    __slots__ = ("given", "of_record")

    def __init__(self, given: Any) -> None:
        self.given = given
        self.of_record = _of_record(given)

    @property
    def expression(self) -> Expression | None:
        return self.given if isinstance(self.given, Expression) else None

    def __reduce__(self) -> tuple[type[Function], tuple[Any]]:
        return Function, (self.given,)


def _of_record(given: Any) -> OfRecord:
    if isinstance(given, Expression):
        return given.evaluate
    if not callable(given):
        raise TopologyError(f"a function or an expression is expected here, not {given!r}")
    call: Callable[..., Any] = given
    arity = positional_arity(call)
    if arity is None or arity == 1:
        return lambda record: call(record.value)
    if arity == 2:
        return lambda record: call(record.key, record.value)
    raise TopologyError(
        f"a function of the value or of key and value is expected, but {call!r} takes {arity}"
    )


class Joiner:
    """A function of (left, right) or (key, left, right) as one of key, left and right."""

    __slots__ = ("given", "join")

    def __init__(self, given: Callable[..., Any]) -> None:
        if not callable(given):
            raise TopologyError(f"a join needs a function of two values, not {given!r}")
        self.given = given
        self.join: Callable[[Any, Any, Any], Any]
        if positional_arity(given) == 3:
            self.join = given
        else:
            self.join = lambda _, left, right: given(left, right)

    def reversed(self) -> Joiner:
        join = self.join
        return Joiner(lambda key, left, right: join(key, right, left))

    def __reduce__(self) -> tuple[type[Joiner], tuple[Any]]:
        return Joiner, (self.given,)


def initializer(given: Any) -> Callable[[], Any]:
    """An aggregate's beginning: a function of nothing, or a value that nobody can change."""
    if callable(given):
        begin: Callable[[], Any] = given
        return begin
    if isinstance(given, (list, dict, set, bytearray)):
        raise TopologyError(f"give a function that makes {given!r} anew for every key, such as a lambda")
    return lambda: given
