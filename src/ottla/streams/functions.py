"""The functions that users write (of the value, of key and value, or an expression), and the one form used inside."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Generic, cast

from ottla.streams.errors import TopologyError
from ottla.streams.expressions import Expression
from ottla.streams.records import Record
from ottla.streams.type_variables import V2, K, R, V

Mapper = Callable[[K, V], R] | Callable[[V], R] | Expression
"""Makes a result of key and value, or of the value alone."""

Predicate = Callable[[K, V], object] | Callable[[V], object] | Expression
"""Holds where the result is true."""

Action = Callable[[K, V], object] | Callable[[V], object]
"""Called for its effect; the result is not used."""

JoinFunction = Callable[[K, V, V2], R] | Callable[[V, V2], R]
"""Makes one value of two: a function of both values, or of the key and both."""

Aggregator = Callable[[K, V, R], R]
"""Adds a value to a result: `aggregator(key, value, result)`."""

Reducer = Callable[[V, V], V]
"""Combines a result with a value of the same type: `reducer(result, value)`."""


def positional_arity(function: Callable[..., object]) -> int | None:
    """The number of positional arguments of a call; None where Python does not say (some builtins)."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = [one for one in signature.parameters.values() if one.kind in kinds]
    needed = [one for one in parameters if one.default is inspect.Parameter.empty]
    return len(needed) or len(parameters)


class Function(Generic[R]):
    """A user's function or expression, and the same as a function of a record."""

    __slots__ = ("given", "of_record")

    def __init__(self, given: Callable[..., R] | Expression) -> None:
        self.given = given
        self.of_record: Callable[[Record], R] = _of_record(given)

    @property
    def expression(self) -> Expression | None:
        """The expression, if it is one."""
        return self.given if isinstance(self.given, Expression) else None

    def __reduce__(self) -> tuple[object, ...]:
        return Function, (self.given,)


def _of_record(given: Callable[..., R] | Expression) -> Callable[[Record], R]:
    if isinstance(given, Expression):
        return given.evaluate
    if not callable(given):
        raise TopologyError(f"a function or an expression is expected here, not {given!r}")
    call = given
    arity = positional_arity(call)
    if arity is None or arity == 1:
        return lambda record: call(record.value)
    if arity == 2:
        return lambda record: call(record.key, record.value)
    raise TopologyError(
        f"a function of the value or of key and value is expected, but {call!r} takes {arity}"
    )


class Joiner(Generic[K, V, V2, R]):
    """A function of (left, right) or (key, left, right), as one of key, left and right."""

    __slots__ = ("given", "join")

    def __init__(self, given: JoinFunction[K, V, V2, R]) -> None:
        if not callable(given):
            raise TopologyError(f"a join needs a function of two values, not {given!r}")
        self.given = given
        self.join: Callable[[K, V, V2], R]
        if positional_arity(given) == 3:
            self.join = cast("Callable[[K, V, V2], R]", given)
        else:
            of_two = cast("Callable[[V, V2], R]", given)
            self.join = lambda _, left, right: of_two(left, right)

    def reversed(self) -> Joiner[K, V2, V, R]:
        """The same with the sides changed."""
        join = self.join
        return Joiner(lambda key, left, right: join(key, right, left))

    def __reduce__(self) -> tuple[object, ...]:
        return Joiner, (self.given,)


def initializer(given: Callable[[], R] | R) -> Callable[[], R]:
    """An aggregate's beginning as a function; a value is accepted where nothing can change it in place."""
    if callable(given):
        return given
    if isinstance(given, (list, dict, set, bytearray)):
        raise TopologyError(
            f"give a function that makes a new {given!r} for every key, for example `lambda: {given!r}`"
        )
    return lambda: given
