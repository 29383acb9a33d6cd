"""A condition on records, as people write it: `value.total > 100 and key.startswith("de-")`.

It is read with Python's grammar into a tree, and the few kinds of nodes that are allowed become functions of a
record; nothing of it is ever run as Python.
"""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Sequence, Sized
from typing import Any, Final, Protocol, cast

import re2  # type: ignore[import-untyped]

from ottla.errors import ApiException, ErrorCode

MAX_LENGTH: Final = 2_000
_MAX_DEPTH: Final = 50


class FilteredRecord(Protocol):
    """What a condition may ask of a record: librdkafka's messages have it."""

    def topic(self) -> str | None: ...
    def partition(self) -> int | None: ...
    def offset(self) -> int | None: ...
    def key(self) -> bytes | str | None: ...
    def value(self) -> bytes | str | None: ...
    def timestamp(self) -> tuple[int, int]: ...
    def headers(self) -> Sequence[tuple[str, bytes | str | None]] | None: ...


class FilterError(ApiException):
    """A condition that cannot be read; the sentence says what is wrong with it."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, message)


Read = Callable[["Fields"], object]
"""A part of a condition: what it is for a record."""


class Fields:
    """A record as conditions see it: texts, and the value's JSON when it is asked for."""

    def __init__(self, record: FilteredRecord) -> None:
        self._record = record
        self._json: dict[str, object] = {}

    def text(self, name: str) -> object:
        record = self._record
        if name in ("key", "value"):
            return _decoded(getattr(record, name)())
        if name == "timestamp":
            return record.timestamp()[1]
        if name == "headers":
            return {key: _decoded(value) for key, value in record.headers() or []}
        return getattr(record, name)()

    def structure(self, name: str) -> object:
        """The JSON of a key or a value; None for other bytes."""
        if name not in ("key", "value"):
            return self.text(name)
        if name not in self._json:
            import json

            try:
                self._json[name] = json.loads(getattr(self._record, name)() or b"null")
            except (ValueError, RecursionError):
                self._json[name] = None
        return self._json[name]


def _decoded(data: bytes | str | None) -> str | None:
    return data.decode(errors="replace") if isinstance(data, bytes) else data


_NAMES: Final = ("key", "value", "headers", "topic", "partition", "offset", "timestamp")
_CONSTANTS: Final = {"true": True, "false": False, "null": None, "none": None}


@functools.lru_cache(maxsize=64)
def _pattern(text: str) -> Any:
    """A compiled pattern. RE2 takes linear time, whatever the pattern is: it may come from a browser."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = 1 << 20
    return re2.compile(text, options)


def _contains(container: Any, item: object) -> bool:
    return container is not None and item in container


_COMPARISONS: Final[dict[type[ast.cmpop], Callable[[Any, Any], bool]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, container: _contains(container, item),
    ast.NotIn: lambda item, container: not _contains(container, item),
    ast.Is: operator.eq,
    ast.IsNot: operator.ne,
}
_METHODS: Final[dict[str, tuple[int, Callable[..., object]]]] = {
    "startswith": (1, lambda text, other: str(text).startswith(str(other))),
    "endswith": (1, lambda text, other: str(text).endswith(str(other))),
    "lower": (0, lambda text: str(text).lower()),
    "upper": (0, lambda text: str(text).upper()),
    "matches": (1, lambda text, pattern: _pattern(str(pattern)).search(str(text)) is not None),
}
"""The methods of texts, and their numbers of arguments."""


def parse_filter(text: str) -> Callable[[FilteredRecord], bool]:
    """A function that says whether a record fits; FilterError for an invalid condition."""
    if len(text) > MAX_LENGTH:
        raise FilterError(f"--filter is longer than {MAX_LENGTH} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _wrong(text, "it cannot be read") from None
    read = _Reader(text).read(tree.body, 0)

    def fits(record: FilteredRecord) -> bool:
        try:
            return bool(read(Fields(record)))
        except (TypeError, re2.error):
            # Of different kinds, as in `value.total > 100` where the total is a text: then it does not fit.
            return False

    return fits


def _wrong(text: str, why: str) -> FilterError:
    return FilterError(
        f'--filter {text}: {why}; expected a condition like value.total > 100 and key == "a" on'
        f" {', '.join(_NAMES)}"
    )


class _Reader:
    """Turns the nodes that are allowed into functions."""

    def __init__(self, text: str) -> None:
        self._text = text

    def read(self, node: ast.expr, depth: int) -> Read:
        if depth > _MAX_DEPTH:
            raise _wrong(self._text, "it goes too deep")
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            raise _wrong(self._text, f"'{ast.unparse(node)}' is not allowed")
        found: Read = method(node, depth + 1)
        return found

    def _constant(self, node: ast.Constant, depth: int) -> Read:
        if not isinstance(node.value, str | int | float | bool | None):
            raise _wrong(self._text, f"'{ast.unparse(node)}' is not allowed")
        value = node.value
        return lambda _: value

    def _list(self, node: ast.List | ast.Tuple, depth: int) -> Read:
        parts = [self.read(each, depth) for each in node.elts]
        return lambda fields: [part(fields) for part in parts]

    _tuple = _list

    def _name(self, node: ast.Name, depth: int) -> Read:
        name = node.id
        if name.lower() in _CONSTANTS:
            value = _CONSTANTS[name.lower()]
            return lambda _: value
        if name not in _NAMES:
            raise _wrong(self._text, f"there is no '{name}'")
        return lambda fields: fields.text(name)

    def _inside(self, node: ast.expr, depth: int) -> Read:
        """What a field is looked up in: a key or a value counts as JSON there."""
        if isinstance(node, ast.Name) and node.id in _NAMES:
            name = node.id
            return lambda fields: fields.structure(name)
        return self.read(node, depth)

    def _attribute(self, node: ast.Attribute, depth: int) -> Read:
        return self._lookup(self._inside(node.value, depth), lambda _: node.attr)

    def _subscript(self, node: ast.Subscript, depth: int) -> Read:
        if isinstance(node.slice, ast.Slice):
            raise _wrong(self._text, f"'{ast.unparse(node)}' is not allowed")
        return self._lookup(self._inside(node.value, depth), self.read(node.slice, depth))

    @staticmethod
    def _lookup(inside: Read, key: Read) -> Read:
        def look(fields: Fields) -> object:
            container, wanted = inside(fields), key(fields)
            if isinstance(container, dict):
                return container.get(wanted)
            if (
                isinstance(container, list)
                and isinstance(wanted, int)
                and -len(container) <= wanted < len(container)
            ):
                return container[wanted]
            return None

        return look

    def _boolop(self, node: ast.BoolOp, depth: int) -> Read:
        parts = [self.read(each, depth) for each in node.values]
        decide = all if isinstance(node.op, ast.And) else any
        return lambda fields: decide(part(fields) for part in parts)

    def _unaryop(self, node: ast.UnaryOp, depth: int) -> Read:
        inner = self.read(node.operand, depth)
        if isinstance(node.op, ast.Not):
            return lambda fields: not inner(fields)
        if isinstance(node.op, ast.USub):
            return lambda fields: -cast("float", inner(fields))
        raise _wrong(self._text, f"'{ast.unparse(node)}' is not allowed")

    def _compare(self, node: ast.Compare, depth: int) -> Read:
        parts = [self.read(each, depth) for each in (node.left, *node.comparators)]
        tests = [_COMPARISONS[type(each)] for each in node.ops]

        def compare(fields: Fields) -> bool:
            values = [part(fields) for part in parts]
            return all(test(values[index], values[index + 1]) for index, test in enumerate(tests))

        return compare

    def _call(self, node: ast.Call, depth: int) -> Read:
        if node.keywords:
            raise _wrong(self._text, f"'{ast.unparse(node)}' is not allowed")
        arguments = [self.read(each, depth) for each in node.args]
        if isinstance(node.func, ast.Name) and node.func.id == "len" and len(arguments) == 1:
            return lambda fields: len(cast("Sized", arguments[0](fields) or ()))
        if not isinstance(node.func, ast.Attribute) or node.func.attr not in _METHODS:
            raise _wrong(self._text, f"there is no '{ast.unparse(node.func)}()'")
        count, method = _METHODS[node.func.attr]
        if len(arguments) != count:
            raise _wrong(self._text, f"{node.func.attr}() takes {count} arguments")
        subject = self.read(node.func.value, depth)

        def call(fields: Fields) -> object:
            value = subject(fields)
            return None if value is None else method(value, *(each(fields) for each in arguments))

        return call
