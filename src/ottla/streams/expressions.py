"""Expressions instead of lambdas: `col("value.amount") > 10`. Plain Python evaluates them, and so can Spark itself.

Nulls behave as in SQL: an operation on a null is null, and a filter keeps only what is true.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final, cast

from ottla.streams.errors import TopologyError
from ottla.streams.records import Record

_BINARY: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda left, right: None if right == 0 else left / right,
    "%": lambda left, right: None if right == 0 else _remainder(left, right),
}

_CALLS: Final[dict[str, Callable[..., Any]]] = {
    "lower": str.lower,
    "upper": str.upper,
    "trim": lambda text: text.strip(" "),
    "length": len,
    "contains": lambda text, part: part in text,
    "startswith": str.startswith,
    "endswith": str.endswith,
    "concat": lambda *parts: "".join(parts),
    "split": lambda text, separator: text.split(separator),
    "abs": abs,
    "int": int,
    "float": float,
    "str": str,
}


def _remainder(left: Any, right: Any) -> Any:
    """The sign follows the left side, as in Java and SQL."""
    left_over = abs(left) % abs(right)
    return -left_over if left < 0 else left_over


class Expression:
    """A tree of operations on a record's parts."""

    __slots__ = ("arguments", "operation", "parts")

    def __init__(self, operation: str, *arguments: object) -> None:
        self.operation = operation
        self.arguments = arguments
        self.parts = cast("tuple[Expression, ...]", arguments)
        """The same, for operations whose arguments are expressions."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Expression, (self.operation, *self.arguments)

    @property
    def path(self) -> str:
        """The path of a column."""
        return str(self.arguments[0])

    def evaluate(self, record: Record) -> Any:
        """The value of this expression for one record."""
        evaluate = _EVALUATE.get(self.operation)
        if evaluate is not None:
            return evaluate(self, record)
        values = [argument.evaluate(record) for argument in self.parts]
        if any(value is None for value in values):
            return None
        return (_BINARY.get(self.operation) or _CALLS[self.operation])(*values)

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]
        return Expression("==", self, as_expression(other))

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]
        return Expression("!=", self, as_expression(other))

    __hash__ = None  # type: ignore[assignment]

    def __lt__(self, other: Any) -> Expression:
        return Expression("<", self, as_expression(other))

    def __le__(self, other: Any) -> Expression:
        return Expression("<=", self, as_expression(other))

    def __gt__(self, other: Any) -> Expression:
        return Expression(">", self, as_expression(other))

    def __ge__(self, other: Any) -> Expression:
        return Expression(">=", self, as_expression(other))

    def __add__(self, other: Any) -> Expression:
        return Expression("+", self, as_expression(other))

    def __radd__(self, other: Any) -> Expression:
        return Expression("+", as_expression(other), self)

    def __sub__(self, other: Any) -> Expression:
        return Expression("-", self, as_expression(other))

    def __rsub__(self, other: Any) -> Expression:
        return Expression("-", as_expression(other), self)

    def __mul__(self, other: Any) -> Expression:
        return Expression("*", self, as_expression(other))

    def __rmul__(self, other: Any) -> Expression:
        return Expression("*", as_expression(other), self)

    def __truediv__(self, other: Any) -> Expression:
        return Expression("/", self, as_expression(other))

    def __mod__(self, other: Any) -> Expression:
        return Expression("%", self, as_expression(other))

    def __and__(self, other: Any) -> Expression:
        return Expression("and", self, as_expression(other))

    def __or__(self, other: Any) -> Expression:
        return Expression("or", self, as_expression(other))

    def __invert__(self) -> Expression:
        return Expression("not", self)

    def __bool__(self) -> bool:
        raise TopologyError(
            "an expression has no truth of its own: combine with &, | and ~ instead of and, or, not"
        )

    def is_null(self) -> Expression:
        return Expression("is null", self)

    def is_not_null(self) -> Expression:
        return ~self.is_null()

    def isin(self, *choices: Any) -> Expression:
        return Expression("in", self, *map(as_expression, choices))

    def otherwise(self, default: Any) -> Expression:
        """This value, or another where this one is null."""
        return Expression("otherwise", self, as_expression(default))

    def lower(self) -> Expression:
        return Expression("lower", self)

    def upper(self) -> Expression:
        return Expression("upper", self)

    def trim(self) -> Expression:
        return Expression("trim", self)

    def length(self) -> Expression:
        return Expression("length", self)

    def contains(self, part: Any) -> Expression:
        return Expression("contains", self, as_expression(part))

    def startswith(self, start: Any) -> Expression:
        return Expression("startswith", self, as_expression(start))

    def endswith(self, end: Any) -> Expression:
        return Expression("endswith", self, as_expression(end))

    def split(self, separator: str) -> Expression:
        return Expression("split", self, as_expression(separator))

    def cast(self, kind: type) -> Expression:
        if kind not in (int, float, str):
            raise TopologyError(f"a value can be cast to int, float or str, not to {kind.__name__}")
        return Expression(kind.__name__, self)

    def __repr__(self) -> str:
        if self.operation == "column":
            return f"col({self.arguments[0]!r})"
        if self.operation == "literal":
            return repr(self.arguments[0])
        if self.operation in _BINARY or self.operation in ("and", "or"):
            return f"({self.arguments[0]!r} {self.operation} {self.arguments[1]!r})"
        return f"{self.operation}({', '.join(map(repr, self.arguments))})"


def col(path: str) -> Expression:
    """A part of a record: `key`, `value`, `value.amount`, `key.user`, `timestamp`, `headers.trace`."""
    root = path.split(".", 1)[0]
    if root not in ("key", "value", "timestamp", "headers"):
        raise TopologyError(f"a column begins with key, value, timestamp or headers, not {path!r}")
    return Expression("column", path)


def lit(value: Any) -> Expression:
    return Expression("literal", value)


def struct(**fields: Any) -> Expression:
    """A new value of several fields."""
    pairs = [part for name, value in fields.items() for part in (lit(name), as_expression(value))]
    return Expression("struct", *pairs)


def concat(*parts: Any) -> Expression:
    return Expression("concat", *map(as_expression, parts))


def as_expression(value: Any) -> Expression:
    return value if isinstance(value, Expression) else lit(value)


def _column(expression: Expression, record: Record) -> Any:
    root, *path = expression.path.split(".")
    if root == "headers":
        wanted = ".".join(path)
        found = [value for name, value in record.headers if name == wanted]
        return found[-1] if found else None
    value = getattr(record, root)
    for name in path:
        if value is None:
            return None
        value = value.get(name) if isinstance(value, dict) else getattr(value, name, None)
    return value


def _and(expression: Expression, record: Record) -> Any:
    left = expression.parts[0].evaluate(record)
    if left is not None and not left:
        return False
    right = expression.parts[1].evaluate(record)
    if right is not None and not right:
        return False
    return None if left is None or right is None else True


def _or(expression: Expression, record: Record) -> Any:
    left = expression.parts[0].evaluate(record)
    if left:
        return True
    right = expression.parts[1].evaluate(record)
    if right:
        return True
    return None if left is None or right is None else False


def _not(expression: Expression, record: Record) -> Any:
    value = expression.parts[0].evaluate(record)
    return None if value is None else not value


def _in(expression: Expression, record: Record) -> Any:
    value, *choices = (argument.evaluate(record) for argument in expression.parts)
    if value is None:
        return None
    if value in choices:
        return True
    return None if None in choices else False


def _otherwise(expression: Expression, record: Record) -> Any:
    value = expression.parts[0].evaluate(record)
    return expression.parts[1].evaluate(record) if value is None else value


def _struct(expression: Expression, record: Record) -> dict[str, Any]:
    values = [argument.evaluate(record) for argument in expression.parts]
    return dict(zip(values[::2], values[1::2], strict=True))


_EVALUATE: Final[dict[str, Callable[[Expression, Record], Any]]] = {
    "column": _column,
    "literal": lambda expression, _: expression.arguments[0],
    "and": _and,
    "or": _or,
    "not": _not,
    "in": _in,
    "is null": lambda expression, record: expression.parts[0].evaluate(record) is None,
    "otherwise": _otherwise,
    "struct": _struct,
}
