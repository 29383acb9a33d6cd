"""Expressions as Spark's own columns. An operation that Spark would compute differently stays with Python.

The functions of `pyspark.sql` are a parameter. With `CheckOnly` in their place, a translation is tried without Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from ottla.streams.expressions import Expression

if TYPE_CHECKING:
    from pyspark.sql import Column

_COMPARISONS: Final = ("==", "!=", "<", "<=", ">", ">=")
_ARITHMETIC: Final = ("+", "-", "*", "/", "%")
_NUMBERS: Final = ("long", "double")
_LITERALS: Final = {
    str: "string",
    bool: "bool",
    int: "long",
    float: "double",
    bytes: "binary",
    type(None): "null",
}


class NotNative(Exception):
    """This part of a topology has no exact counterpart among Spark's columns."""


class SparkFunctions(Protocol):
    """The module `pyspark.sql.functions`, or `CheckOnly`."""

    def __getattr__(self, name: str) -> Callable[..., Column]: ...


class CheckOnly:
    """Stands in for Spark's functions, columns and frames: every call and every operation returns the object itself."""

    def __getattr__(self, name: str) -> CheckOnly:
        return self

    def __call__(self, *_: object, **__: object) -> CheckOnly:
        """Accepts any arguments."""
        return self

    def __contains__(self, _: object) -> bool:
        return True

    def _same(self, _: object = None) -> CheckOnly:
        return self

    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _same  # type: ignore[assignment]
    __add__ = __sub__ = __mul__ = __and__ = __or__ = __invert__ = _same
    __hash__ = None  # type: ignore[assignment]


@dataclass(slots=True)
class Typed:
    """A column and the kind of its values: string, long, double, bool, binary, variant (JSON), null, array, or a struct
    of such columns."""

    column: Column
    kind: str
    fields: dict[str, Typed] | None = None


@dataclass(slots=True)
class RecordColumns:
    """The parts of a record as columns."""

    key: Typed
    value: Typed
    timestamp: Column
    headers: Column


class ColumnTranslator:
    """Translates the expressions of one record's columns; raises NotNative for what is left to Python."""

    def __init__(self, functions: SparkFunctions, record: RecordColumns) -> None:
        self._f = functions
        self._record = record

    def translate(self, expression: Expression) -> Typed:
        """The column of an expression."""
        operation = expression.operation
        special = _SPECIAL.get(operation)
        if special is not None:
            return special(self, expression)
        values = [self.translate(argument) for argument in expression.parts]
        if operation in _COMPARISONS:
            left, right = self._alike(*values)
            return Typed(_compare(operation, left.column, right.column), "bool")
        if operation in _ARITHMETIC:
            return self._arithmetic(operation, *values)
        return self._call(operation, values)

    def condition(self, expression: Expression, *, negate: bool) -> Column:
        """A filter: only what is true passes, and with `negate` only what is false."""
        held = self._as_kind(self.translate(expression), "bool").column
        return self._f.coalesce(~held if negate else held, self._f.lit(False))

    def _as_kind(self, value: Typed, kind: str) -> Typed:
        f = self._f
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
        raise NotNative(f"a {value.kind} is not a {kind}")

    def _alike(self, left: Typed, right: Typed) -> tuple[Typed, Typed]:
        """Both sides of an operation as one kind."""
        kinds = {left.kind, right.kind} - {"null"}
        if kinds <= {"long", "double", "variant"} and kinds & {"long", "double"}:
            kind = "long" if kinds == {"long"} else "double"
        elif kinds - {"variant"} and len(kinds - {"variant"}) == 1:
            (kind,) = kinds - {"variant"}
        else:
            raise NotNative(f"{left.kind} and {right.kind} have no common kind")
        return self._as_kind(left, kind), self._as_kind(right, kind)

    def _arithmetic(self, operation: str, left: Typed, right: Typed) -> Typed:
        f = self._f
        if operation == "+" and "string" in (left.kind, right.kind):
            one, other = self._as_kind(left, "string"), self._as_kind(right, "string")
            return Typed(f.concat(one.column, other.column), "string")
        if left.kind == right.kind == "variant":
            left, right = self._as_kind(left, "double"), self._as_kind(right, "double")
        left, right = self._alike(left, right)
        if left.kind not in _NUMBERS:
            raise NotNative(f"{operation} of two {left.kind}s")
        match operation:
            case "+":
                return Typed(left.column + right.column, left.kind)
            case "-":
                return Typed(left.column - right.column, left.kind)
            case "*":
                return Typed(left.column * right.column, left.kind)
            case "/":
                return Typed(f.try_divide(left.column, right.column), "double")
            case _:
                return Typed(f.try_mod(left.column, right.column), left.kind)

    def _call(self, operation: str, values: list[Typed]) -> Typed:
        if operation == "abs":
            kind = values[0].kind if values[0].kind in _NUMBERS else "double"
            return Typed(self._f.abs(self._as_kind(values[0], kind).column), kind)
        if operation not in _TEXT_CALLS:
            raise NotNative(f"{operation} is left to Python")
        texts = [self._as_kind(value, "string").column for value in values]
        return _TEXT_CALLS[operation](self._f, *texts)

    def _column(self, expression: Expression) -> Typed:
        f = self._f
        root, *path = expression.path.split(".")
        if root == "timestamp":
            return Typed(self._record.timestamp, "long")
        if root == "headers":
            named = f.filter(self._record.headers, lambda header: header["key"] == ".".join(path))
            values = f.transform(named, lambda header: header["value"])
            return Typed(f.try_element_at(values, f.lit(-1)), "binary")
        found = self._record.key if root == "key" else self._record.value
        for name in path:
            if found.fields is not None:
                found = found.fields.get(name) or Typed(f.lit(None), "null")
            elif found.kind == "variant":
                if not name.isidentifier():
                    raise NotNative(f"{name} is not a plain name")
                found = Typed(f.try_variant_get(found.column, f"$.{name}", "variant"), "variant")
            else:
                raise NotNative(f"a {found.kind} has no field {name}")
        return found

    def _literal(self, expression: Expression) -> Typed:
        value = expression.arguments[0]
        kind = _LITERALS.get(type(value))
        if kind is None:
            raise NotNative(f"{value!r} is left to Python")
        column = self._f.lit(value)
        return Typed(column.cast("long") if kind == "long" else column, kind)

    def _logic(self, expression: Expression) -> Typed:
        values = [self._as_kind(self.translate(argument), "bool").column for argument in expression.parts]
        match expression.operation:
            case "and":
                return Typed(values[0] & values[1], "bool")
            case "or":
                return Typed(values[0] | values[1], "bool")
            case _:
                return Typed(~values[0], "bool")

    def _is_null(self, expression: Expression) -> Typed:
        f = self._f
        value = self.translate(expression.parts[0])
        missing = value.column.isNull()
        if value.kind == "variant":
            # Spark keeps JSON's null as a value; here it counts as missing.
            missing = missing | f.coalesce(f.is_variant_null(value.column), f.lit(False))
        return Typed(missing, "bool")

    def _in(self, expression: Expression) -> Typed:
        value, *choices = (self.translate(argument) for argument in expression.parts)
        pairs = [self._alike(value, choice) for choice in choices]
        held = pairs[0][0].column
        return Typed(held.isin(*[choice.column for _, choice in pairs]), "bool")

    def _otherwise(self, expression: Expression) -> Typed:
        value, default = self._alike(*(self.translate(argument) for argument in expression.parts))
        return Typed(self._f.coalesce(value.column, default.column), value.kind)

    def _struct(self, expression: Expression) -> Typed:
        parts = expression.parts
        fields = {
            str(name.arguments[0]): self.translate(value)
            for name, value in zip(parts[::2], parts[1::2], strict=True)
        }
        column = self._f.struct(*[field.column.alias(name) for name, field in fields.items()])
        return Typed(column, "struct", fields)


_SPECIAL: Final[dict[str, Callable[[ColumnTranslator, Expression], Typed]]] = {
    "column": ColumnTranslator._column,
    "literal": ColumnTranslator._literal,
    "and": ColumnTranslator._logic,
    "or": ColumnTranslator._logic,
    "not": ColumnTranslator._logic,
    "in": ColumnTranslator._in,
    "is null": ColumnTranslator._is_null,
    "otherwise": ColumnTranslator._otherwise,
    "struct": ColumnTranslator._struct,
}

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


def _compare(operation: str, left: Column, right: Column) -> Column:
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
