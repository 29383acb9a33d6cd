"""Expressions instead of lambdas: `col("value.amount") > 10`. Python evaluates them, and so can Spark itself.

Nulls behave as in SQL: an operation on a null is null, and a filter keeps only what is true.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Final, TypeAlias, cast

from ottla.streams.errors import TopologyError
from ottla.streams.records import Record
from ottla.streams.type_variables import Unknown

Operation: TypeAlias = Callable[..., Unknown]

_BINARY: Final[dict[str, Operation]] = {
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

_CALLS: Final[dict[str, Operation]] = {
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


def _remainder(left: float, right: float) -> float:
    """The sign follows the left side, as in Java and SQL."""
    left_over = abs(left) % abs(right)
    return -left_over if left < 0 else left_over


class Expression:
    """A tree of operations on a record's parts; made with `col`, `lit` and Python's operators.

    >>> expensive = (col("value.amount") > 10) & (col("value.country") == "cz")
    >>> expensive
    ((col('value.amount') > 10) and (col('value.country') == 'cz'))
    >>> expensive.evaluate(Record("order-1", {"amount": 25, "country": "cz"}, timestamp=0))
    True
    """

    __slots__ = ("arguments", "operation", "parts")

    def __init__(self, operation: str, *arguments: object) -> None:
        self.operation = operation
        self.arguments = arguments
        self.parts = cast("tuple[Expression, ...]", arguments)
        """The same, for operations whose arguments are expressions."""

    def __reduce__(self) -> tuple[object, ...]:
        return Expression, (self.operation, *self.arguments)

    @property
    def path(self) -> str:
        """The path of a column.

        >>> col("value.amount").path
        'value.amount'
        """
        return str(self.arguments[0])

    def evaluate(self, record: Record) -> Unknown:
        """The value of this expression for one record.

        >>> (col("value") + "!").evaluate(Record(None, "hello", timestamp=0))
        'hello!'
        """
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

    def __lt__(self, other: object) -> Expression:
        return Expression("<", self, as_expression(other))

    def __le__(self, other: object) -> Expression:
        return Expression("<=", self, as_expression(other))

    def __gt__(self, other: object) -> Expression:
        return Expression(">", self, as_expression(other))

    def __ge__(self, other: object) -> Expression:
        return Expression(">=", self, as_expression(other))

    def __add__(self, other: object) -> Expression:
        return Expression("+", self, as_expression(other))

    def __radd__(self, other: object) -> Expression:
        return Expression("+", as_expression(other), self)

    def __sub__(self, other: object) -> Expression:
        return Expression("-", self, as_expression(other))

    def __rsub__(self, other: object) -> Expression:
        return Expression("-", as_expression(other), self)

    def __mul__(self, other: object) -> Expression:
        return Expression("*", self, as_expression(other))

    def __rmul__(self, other: object) -> Expression:
        return Expression("*", as_expression(other), self)

    def __truediv__(self, other: object) -> Expression:
        return Expression("/", self, as_expression(other))

    def __mod__(self, other: object) -> Expression:
        return Expression("%", self, as_expression(other))

    def __and__(self, other: object) -> Expression:
        return Expression("and", self, as_expression(other))

    def __or__(self, other: object) -> Expression:
        return Expression("or", self, as_expression(other))

    def __invert__(self) -> Expression:
        return Expression("not", self)

    def __bool__(self) -> bool:
        raise TopologyError(
            "an expression has no truth value without a record: combine with &, | and ~ instead of and, or, not"
        )

    def is_null(self) -> Expression:
        """True where the value is missing.

        >>> col("value").is_null().evaluate(Record(None, None, timestamp=0))
        True
        """
        return Expression("is null", self)

    def is_not_null(self) -> Expression:
        """True where there is a value.

        >>> col("value").is_not_null().evaluate(Record(None, None, timestamp=0))
        False
        """
        return ~self.is_null()

    def isin(self, *choices: object) -> Expression:
        """True where the value is one of the choices.

        >>> col("value").isin("cz", "de").evaluate(Record(None, "de", timestamp=0))
        True
        """
        return Expression("in", self, *map(as_expression, choices))

    def otherwise(self, default: object) -> Expression:
        """This value, or another where this one is null.

        >>> col("value").otherwise("none").evaluate(Record(None, None, timestamp=0))
        'none'
        """
        return Expression("otherwise", self, as_expression(default))

    def lower(self) -> Expression:
        """The text in lower case.

        >>> col("value").lower().evaluate(Record(None, "Hello", timestamp=0))
        'hello'
        """
        return Expression("lower", self)

    def upper(self) -> Expression:
        """The text in upper case.

        >>> col("value").upper().evaluate(Record(None, "Hello", timestamp=0))
        'HELLO'
        """
        return Expression("upper", self)

    def trim(self) -> Expression:
        """The text without spaces at both ends.

        >>> col("value").trim().evaluate(Record(None, " hello ", timestamp=0))
        'hello'
        """
        return Expression("trim", self)

    def length(self) -> Expression:
        """The number of characters.

        >>> col("value").length().evaluate(Record(None, "hello", timestamp=0))
        5
        """
        return Expression("length", self)

    def contains(self, part: object) -> Expression:
        """True where the text has a part in it.

        >>> col("value").contains("ell").evaluate(Record(None, "hello", timestamp=0))
        True
        """
        return Expression("contains", self, as_expression(part))

    def startswith(self, start: object) -> Expression:
        """True where the text begins with another.

        >>> col("value").startswith("he").evaluate(Record(None, "hello", timestamp=0))
        True
        """
        return Expression("startswith", self, as_expression(start))

    def endswith(self, end: object) -> Expression:
        """True where the text ends with another.

        >>> col("value").endswith("lo").evaluate(Record(None, "hello", timestamp=0))
        True
        """
        return Expression("endswith", self, as_expression(end))

    def split(self, separator: str) -> Expression:
        """The parts of the text between separators.

        >>> col("value").split(",").evaluate(Record(None, "a,b", timestamp=0))
        ['a', 'b']
        """
        return Expression("split", self, as_expression(separator))

    def cast(self, kind: type) -> Expression:
        """The value as another type: int, float or str.

        >>> col("value").cast(int).evaluate(Record(None, "7", timestamp=0))
        7
        """
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
    """A part of a record: `key`, `value`, `value.amount`, `key.user`, `timestamp`, `headers.trace`.

    >>> from ottla.streams import StreamsBuilder, TopologyTestDriver
    >>> builder = StreamsBuilder()
    >>> builder.stream("orders", value_serde="json").filter(col("value.amount") > 10).to("large")
    >>> with TopologyTestDriver(builder) as driver:
    ...     driver.pipe_input("orders", {"amount": 5})
    ...     driver.pipe_input("orders", {"amount": 25})
    ...     [record.value for record in driver.read_all("large")]
    [{'amount': 25}]
    """
    root = path.split(".", 1)[0]
    if root not in ("key", "value", "timestamp", "headers"):
        raise TopologyError(f"a column begins with key, value, timestamp or headers, not {path!r}")
    return Expression("column", path)


def lit(value: object) -> Expression:
    """A constant as an expression; operators make one of a plain value by themselves.

    >>> lit(3).evaluate(Record(None, None, timestamp=0))
    3
    """
    return Expression("literal", value)


def struct(**fields: object) -> Expression:
    """A new value of several fields, a dictionary.

    >>> struct(name=col("key"), size=col("value").length()).evaluate(Record("a", "hello", timestamp=0))
    {'name': 'a', 'size': 5}
    """
    pairs = [part for name, value in fields.items() for part in (lit(name), as_expression(value))]
    return Expression("struct", *pairs)


def concat(*parts: object) -> Expression:
    """Several texts as one.

    >>> concat(col("key"), "=", col("value")).evaluate(Record("a", "1", timestamp=0))
    'a=1'
    """
    return Expression("concat", *map(as_expression, parts))


def as_expression(value: object) -> Expression:
    """An expression as it is, and any other value as a constant."""
    return value if isinstance(value, Expression) else lit(value)


def _column(expression: Expression, record: Record) -> object:
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


def _and(expression: Expression, record: Record) -> object:
    left = expression.parts[0].evaluate(record)
    if left is not None and not left:
        return False
    right = expression.parts[1].evaluate(record)
    if right is not None and not right:
        return False
    return None if left is None or right is None else True


def _or(expression: Expression, record: Record) -> object:
    left = expression.parts[0].evaluate(record)
    if left:
        return True
    right = expression.parts[1].evaluate(record)
    if right:
        return True
    return None if left is None or right is None else False


def _not(expression: Expression, record: Record) -> object:
    value = expression.parts[0].evaluate(record)
    return None if value is None else not value


def _in(expression: Expression, record: Record) -> object:
    value, *choices = (argument.evaluate(record) for argument in expression.parts)
    if value is None:
        return None
    if value in choices:
        return True
    return None if None in choices else False


def _otherwise(expression: Expression, record: Record) -> object:
    value = expression.parts[0].evaluate(record)
    return expression.parts[1].evaluate(record) if value is None else value


def _struct(expression: Expression, record: Record) -> dict[str, object]:
    values = [argument.evaluate(record) for argument in expression.parts]
    return dict(zip(values[::2], values[1::2], strict=True))


_EVALUATE: Final[dict[str, Callable[[Expression, Record], object]]] = {
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
