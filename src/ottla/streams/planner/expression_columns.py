"""Expressions as Spark's own columns. What Spark would do differently is not translated: it stays with Python."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ottla.streams.expressions import Expression

if TYPE_CHECKING:
    from pyspark.sql import Column

_COMPARISONS: Final = ("==", "!=", "<", "<=", ">", ">=")
_ARITHMETIC: Final = ("+", "-", "*", "/", "%")
_NUMBERS: Final = ("long", "double")


class NotNative(Exception):
    """This part of a topology has no exact counterpart among Spark's columns."""


@dataclass(slots=True)
class Typed:
    """A column and what is known of its values: string, long, double, bool, binary, variant (JSON), null, array,
    or a struct of such columns."""

    column: Any
    kind: str
    fields: dict[str, Typed] | None = None


@dataclass(slots=True)
class RecordColumns:
    key: Typed
    value: Typed
    timestamp: Column
    headers: Column


def translate(expression: Expression, record: RecordColumns) -> Typed:
    operation, arguments = expression.operation, expression.arguments
    special = _SPECIAL.get(operation)
    if special is not None:
        return special(expression, record)
    values = [translate(argument, record) for argument in arguments]
    if operation in _COMPARISONS:
        left, right = _alike(*values)
        return Typed(_compare(operation, left.column, right.column), "bool")
    if operation in _ARITHMETIC:
        return _arithmetic(operation, *values)
    return _call(operation, values)


def condition(expression: Expression, record: RecordColumns, *, negate: bool) -> Any:
    """A filter: only what is true passes, and with `negate` only what is false."""
    from pyspark.sql import functions as f

    held = as_kind(translate(expression, record), "bool").column
    return f.coalesce(~held if negate else held, f.lit(False))


def as_kind(value: Typed, kind: str) -> Typed:
    from pyspark.sql import functions as f

    if value.kind == kind:
        return value
    if value.kind == "variant" and kind in ("string", "double", "long", "bool"):
        name = {"bool": "boolean"}.get(kind, kind)
        return Typed(f.try_variant_get(value.column, "$", name), kind)
    if value.kind == "null":
        name = {"bool": "boolean", "variant": "variant"}.get(kind, kind)
        return Typed(f.lit(None).cast(name), kind)
    if (value.kind, kind) == ("long", "double"):
        return Typed(value.column.cast("double"), "double")
    raise NotNative(f"a {value.kind} is no {kind}")


def _alike(left: Typed, right: Typed) -> tuple[Typed, Typed]:
    """Both sides of an operation as one kind."""
    kinds = {left.kind, right.kind} - {"null"}
    if kinds <= {"long", "double", "variant"} and kinds & {"long", "double"}:
        kind = "long" if kinds == {"long"} else "double"
    elif kinds - {"variant"} and len(kinds - {"variant"}) == 1:
        (kind,) = kinds - {"variant"}
    else:
        raise NotNative(f"{left.kind} and {right.kind} do not tell what is compared")
    return as_kind(left, kind), as_kind(right, kind)


def _compare(operation: str, left: Any, right: Any) -> Any:
    match operation:
        case "==":
            return left == right
        case "!=":
            return left != right
        case "<":
            return left < right
        case "<=":
            return left <= right
        case ">":
            return left > right
        case _:
            return left >= right


def _arithmetic(operation: str, left: Typed, right: Typed) -> Typed:
    from pyspark.sql import functions as f

    if operation == "+" and "string" in (left.kind, right.kind):
        one, other = as_kind(left, "string"), as_kind(right, "string")
        return Typed(f.concat(one.column, other.column), "string")
    if left.kind == right.kind == "variant":
        left, right = as_kind(left, "double"), as_kind(right, "double")
    left, right = _alike(left, right)
    if left.kind not in _NUMBERS:
        raise NotNative(f"{operation} of two {left.kind}s")
    one, other = left.column, right.column
    match operation:
        case "+":
            return Typed(one + other, left.kind)
        case "-":
            return Typed(one - other, left.kind)
        case "*":
            return Typed(one * other, left.kind)
        case "/":
            return Typed(f.try_divide(one, other), "double")
        case _:
            return Typed(f.try_mod(one, other), left.kind)


def _call(operation: str, values: list[Typed]) -> Typed:
    from pyspark.sql import functions as f

    if operation == "abs":
        kind = values[0].kind if values[0].kind in _NUMBERS else "double"
        return Typed(f.abs(as_kind(values[0], kind).column), kind)
    if operation not in _TEXT_CALLS:
        raise NotNative(f"{operation} is left to Python")
    texts = [as_kind(value, "string").column for value in values]
    return _TEXT_CALLS[operation](f, *texts)


_TEXT_CALLS: Final[dict[str, Callable[..., Typed]]] = {
    "lower": lambda f, text: Typed(f.lower(text), "string"),
    "upper": lambda f, text: Typed(f.upper(text), "string"),
    "trim": lambda f, text: Typed(f.trim(text), "string"),
    "length": lambda f, text: Typed(f.length(text).cast("long"), "long"),
    "contains": lambda f, text, part: Typed(f.contains(text, part), "bool"),
    "startswith": lambda f, text, start: Typed(f.startswith(text, start), "bool"),
    "endswith": lambda f, text, end: Typed(f.endswith(text, end), "bool"),
    "concat": lambda f, *parts: Typed(f.concat(*parts), "string"),
}


def _column(expression: Expression, record: RecordColumns) -> Typed:
    from pyspark.sql import functions as f

    root, *path = expression.arguments[0].split(".")
    if root == "timestamp":
        return Typed(record.timestamp, "long")
    if root == "headers":
        named = f.filter(record.headers, lambda header: header["key"] == ".".join(path))
        return Typed(
            f.try_element_at(f.transform(named, lambda header: header["value"]), f.lit(-1)), "binary"
        )
    found = record.key if root == "key" else record.value
    for name in path:
        if found.fields is not None:
            found = found.fields.get(name) or Typed(f.lit(None), "null")
        elif found.kind == "variant":
            if not name.isidentifier():
                raise NotNative(f"{name} is no plain name")
            found = Typed(f.try_variant_get(found.column, f"$.{name}", "variant"), "variant")
        else:
            raise NotNative(f"a {found.kind} has no {name}")
    return found


def _literal(expression: Expression, _: RecordColumns) -> Typed:
    from pyspark.sql import functions as f

    value = expression.arguments[0]
    kinds = {str: "string", bool: "bool", int: "long", float: "double", bytes: "binary", type(None): "null"}
    kind = kinds.get(type(value))
    if kind is None:
        raise NotNative(f"{value!r} is left to Python")
    return Typed(f.lit(value).cast("long") if kind == "long" else f.lit(value), kind)


def _logic(expression: Expression, record: RecordColumns) -> Typed:
    values = [as_kind(translate(argument, record), "bool").column for argument in expression.arguments]
    match expression.operation:
        case "and":
            return Typed(values[0] & values[1], "bool")
        case "or":
            return Typed(values[0] | values[1], "bool")
        case _:
            return Typed(~values[0], "bool")


def _is_null(expression: Expression, record: RecordColumns) -> Typed:
    from pyspark.sql import functions as f

    value = translate(expression.arguments[0], record)
    if value.kind == "variant":
        # JSON's null is a value of its own for Spark, and none for us.
        return Typed(
            value.column.isNull() | f.coalesce(f.is_variant_null(value.column), f.lit(False)), "bool"
        )
    return Typed(value.column.isNull(), "bool")


def _in(expression: Expression, record: RecordColumns) -> Typed:
    value, *choices = (translate(argument, record) for argument in expression.arguments)
    pairs = [_alike(value, choice) for choice in choices]
    held = pairs[0][0].column
    return Typed(held.isin(*[choice.column for _, choice in pairs]), "bool")


def _otherwise(expression: Expression, record: RecordColumns) -> Typed:
    from pyspark.sql import functions as f

    value, default = _alike(*(translate(argument, record) for argument in expression.arguments))
    return Typed(f.coalesce(value.column, default.column), value.kind)


def _struct(expression: Expression, record: RecordColumns) -> Typed:
    from pyspark.sql import functions as f

    parts = expression.arguments
    fields = {
        name.arguments[0]: translate(value, record)
        for name, value in zip(parts[::2], parts[1::2], strict=True)
    }
    column = f.struct(*[field.column.alias(name) for name, field in fields.items()])
    return Typed(column, "struct", fields)


_SPECIAL: Final[dict[str, Callable[[Expression, RecordColumns], Typed]]] = {
    "column": _column,
    "literal": _literal,
    "and": _logic,
    "or": _logic,
    "not": _logic,
    "in": _in,
    "is null": _is_null,
    "otherwise": _otherwise,
    "struct": _struct,
}
