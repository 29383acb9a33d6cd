"""Compiles an Avro schema to a Python function that writes its values.

The generated code has no loop over the schema: a record of a few fields is one join of its parts.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, cast

from ottla.json_types import Json, JsonTypeError, as_list, as_number, as_object, as_text
from ottla.registry.avro import Defaults
from ottla.registry.avro_types import AvroType, Field
from ottla.registry.errors import InvalidSchema
from ottla.schemas import avro_values
from ottla.schemas.avro_unions import Branch
from ottla.schemas.avro_values import SMALL, TOO_DEEP, ZIGZAG, int_bytes, logical_functions, long_bytes
from ottla.schemas.errors import SchemaError

_MAX_DEFAULT_VALUES: Final = 10_000
_BOOLEANS: Final = {True: b"\1", False: b"\0"}

_EXACT: Final[Mapping[type, tuple[str, ...]]] = {
    int: ("int", "long"),
    float: ("double", "float"),
    bytes: ("bytes", "fixed"),
}
"""By the type of a value: the branches of a union that hold it exactly, the best first."""

Encoder = Callable[[object], bytes]


def compile_encoder(root: AvroType, *, attributes: bool = False, prefix: bytes = b"") -> Encoder:
    """A function from a value to its bytes, which begin with `prefix`.

    Records are mappings, or objects with attributes. Wrong values raise InvalidData with the path of the field.
    """
    compiler = _Compiler(attributes=attributes)
    try:
        encode = compiler.top(root, prefix)
    except TOO_DEEP:
        raise SchemaError(
            f"the schema of {root.name or root.kind} nests too deep to write values of it"
        ) from None

    def checked(value: object) -> bytes:
        try:
            return encode(value)
        except (
            TypeError,
            ValueError,
            KeyError,
            AttributeError,
            IndexError,
            struct.error,
            OverflowError,
        ) as error:
            raise avro_values.refuse(root, value, error) from None

    return checked


class _Compiler:
    def __init__(self, *, attributes: bool) -> None:
        self._attributes = attributes
        self._names: dict[int, str] = {}
        self._in_place: set[int] = set()
        """Records that are written in place. One that is used again is a function, or code would grow without bound."""
        self._lines: list[str] = []
        self._count = 0
        self.scope: dict[str, object] = {
            "Z": ZIGZAG,
            "L": long_bytes,
            "I": int_bytes,
            "B": _BOOLEANS,
            "PD": struct.Struct("<d").pack,
            "PF": struct.Struct("<f").pack,
            "J": b"".join,
        }

    def top(self, root: AvroType, prefix: bytes) -> Encoder:
        self.scope["PREFIX"] = prefix
        lines, parts = self._value(root, "v", "    ")
        start = ["PREFIX"] if prefix else []
        body = [*lines, f"    return {_joined(start + parts)}"]
        source = "\n".join([*self._lines, "def encode(v):", *body])
        exec(source, self.scope)
        return cast("Encoder", self.scope["encode"])

    def _name(self) -> str:
        self._count += 1
        return f"x{self._count}"

    def _constant(self, value: object) -> str:
        name = f"K{self._name()}"
        self.scope[name] = value
        return name

    def _function(self, one: AvroType) -> str:
        """The name of a function for a type; recursive types call themselves by it."""
        known = self._names.get(id(one))
        if known is not None:
            return known
        name = self._names[id(one)] = f"f{len(self._names)}"
        if one.kind in ("record", "error"):
            lines, parts = self._record(one, "v", "    ")
        else:
            lines, parts = self._value(one, "v", "    ", inside=True)
        self._lines += [f"def {name}(v):", *lines, f"    return {_joined(parts)}"]
        return name

    def _value(
        self, one: AvroType, var: str, pad: str, *, inside: bool = False
    ) -> tuple[list[str], list[str]]:
        """Statements, and the expressions of the parts that follow each other."""
        logical = logical_functions(one)
        lines: list[str] = []
        if logical is not None:
            converted = self._name()
            lines.append(f"{pad}{converted} = {self._constant(logical[0])}({var})")
            var = converted
        match one.kind:
            case "null":
                lines.append(f"{pad}if {var} is not None: raise TypeError")
                return lines, []
            case "boolean":
                return lines, [f"B[{var}]"]
            case "int" | "long":
                slow = "I" if one.kind == "int" else "L"
                return lines, [f"(Z[{var}] if 0 <= {var} < {SMALL} else {slow}({var}))"]
            case "float" | "double":
                return lines, [f"{'PF' if one.kind == 'float' else 'PD'}({var})"]
            case "string":
                data = self._name()
                lines += [f"{pad}{data} = {var}.encode()"]
                return lines, self._sized(data)
            case "bytes":
                return lines, self._sized(var)
            case "fixed":
                lines.append(f"{pad}if len({var}) != {one.size}: raise ValueError")
                return lines, [var]
            case "enum":
                return lines, [self._enum(one, var)]
            case "union":
                return self._union(one, var, pad)
            case "array" | "map" if not inside:
                return lines, [f"{self._function(one)}({var})"]
            case "array" | "map":
                return self._block(one, var, pad)
        if id(one) in self._names or id(one) in self._in_place or self._is_recursive(one):
            return lines, [f"{self._function(one)}({var})"]
        self._in_place.add(id(one))
        return self._record(one, var, pad)

    def _is_recursive(self, one: AvroType) -> bool:
        seen: set[int] = set()

        def reaches(each: AvroType) -> bool:
            if id(each) in seen:
                return False
            seen.add(id(each))
            parts = [field.type for field in each.fields] + list(each.branches)
            if each.items is not None:
                parts.append(each.items)
            return any(part is one or reaches(part) for part in parts)

        return reaches(one)

    @staticmethod
    def _sized(data: str) -> list[str]:
        return [f"(Z[len({data})] if len({data}) < {SMALL} else L(len({data})))", data]

    def _enum(self, one: AvroType, var: str) -> str:
        table: dict[object, bytes] = {symbol: long_bytes(at) for at, symbol in enumerate(one.symbols)}
        if self._attributes:
            return f"{self._constant(_EnumTable(table))}[{var}]"
        return f"{self._constant(table)}[{var}]"

    def _record(self, one: AvroType, var: str, pad: str) -> tuple[list[str], list[str]]:
        lines: list[str] = []
        parts: list[str] = []
        for field in one.fields:
            each = self._name()
            if self._attributes:
                lines.append(f"{pad}{each} = {var}.{field.name}")
            elif field.has_default:
                default = self._constant(field_default(field))
                lines.append(f"{pad}{each} = {var}.get({field.name!r}, {default})")
            else:
                lines.append(f"{pad}{each} = {var}[{field.name!r}]")
            more, found = self._value(field.type, each, pad)
            lines += more
            parts += found
        return lines, parts

    def _block(self, one: AvroType, var: str, pad: str) -> tuple[list[str], list[str]]:
        assert one.items is not None
        item = self._function(one.items) if one.items.kind not in ("string",) else ""
        out = self._name()
        lines = [f"{pad}if not {var}: return b'\\0'"] if one.kind else []
        if one.kind == "array":
            if not item:
                lines += [
                    f"{pad}{out} = [Z[len({var})] if len({var}) < {SMALL} else L(len({var}))]",
                    f"{pad}for i in {var}:",
                    f"{pad}    i = i.encode()",
                    f"{pad}    {out} += ((Z[len(i)] if len(i) < {SMALL} else L(len(i))), i)",
                ]
            else:
                lines += [
                    f"{pad}if type({var}) not in SEQUENCES: raise TypeError",
                    f"{pad}{out} = [Z[len({var})] if len({var}) < {SMALL} else L(len({var})),"
                    f" *map({item}, {var})]",
                ]
                self.scope["SEQUENCES"] = (list, tuple)
        else:
            call = f"{item}(i)" if item else f"{self._function(one.items)}(i)"
            lines += [
                f"{pad}{out} = [Z[len({var})] if len({var}) < {SMALL} else L(len({var}))]",
                f"{pad}for k, i in {var}.items():",
                f"{pad}    k = k.encode()",
                f"{pad}    {out} += ((Z[len(k)] if len(k) < {SMALL} else L(len(k))), k, {call})",
            ]
        lines.append(f"{pad}{out}.append(b'\\0')")
        return lines, [f"J({out})"]

    def _union(self, one: AvroType, var: str, pad: str) -> tuple[list[str], list[str]]:
        kinds = [branch.kind for branch in one.branches]
        out = self._name()
        if len(kinds) == 2 and "null" in kinds:
            other = 1 - kinds.index("null")
            lines, parts = self._value(one.branches[other], var, pad + "    ")
            tag = self._constant(long_bytes(other))
            empty = self._constant(long_bytes(kinds.index("null")))
            return [
                f"{pad}if {var} is None: {out} = {empty}",
                f"{pad}else:",
                *lines,
                f"{pad}    {out} = {_joined([tag, *parts])}",
            ], [out]
        chooser = self._constant(_Union(one, [self._function(branch) for branch in one.branches], self.scope))
        return [f"{pad}{out} = {chooser}({var})"], [out]


def _joined(parts: list[str]) -> str:
    if not parts:
        return "b''"
    if len(parts) == 1:
        return parts[0]
    return f"J(({', '.join(parts)}))"


class _EnumTable(dict[object, bytes]):
    """Symbols by name, by a member of Python's enum, or by its value."""

    def __missing__(self, key: object) -> bytes:
        if isinstance(key, Enum):
            found = self[key.name] if key.name in self else dict.__getitem__(self, key.value)
            self[key] = found
            return found
        raise KeyError(key)


class _Union:
    """Chooses the branch of a union by the value, then writes it."""

    def __init__(self, one: AvroType, functions: list[str], scope: dict[str, object]) -> None:
        self._branches = list(zip(one.branches, functions, strict=True))
        self._scope = scope

    def __call__(self, value: object) -> bytes:
        if type(value) is Branch:
            at, value = value.at, value.value
        else:
            at = self._choose(value)
        write = cast("Encoder", self._scope[self._branches[at][1]])
        return long_bytes(at) + write(value)

    def _choose(self, value: object) -> int:
        known: avro_values.Known = {}
        fitting = [
            at
            for at, (branch, _) in enumerate(self._branches)
            if avro_values.explain(branch, value, "", known) is None
        ]
        if not fitting:
            raise TypeError("no branch of the union fits")
        if len(fitting) > 1 and isinstance(value, Mapping):
            # Of several records the one with the most of the value's fields.
            return max(
                fitting,
                key=lambda at: len({field.name for field in self._branches[at][0].fields} & set(value)),
            )
        if len(fitting) > 1 and dataclasses.is_dataclass(value):
            named = [at for at in fitting if self._branches[at][0].simple_name == type(value).__name__]
            return named[0] if named else fitting[0]
        exact = _EXACT.get(type(value), ())
        for kind in exact:
            for at in fitting:
                if self._branches[at][0].kind == kind:
                    return at
        return fitting[0]


def field_default(field: Field) -> object:
    """The default of a field as the value that a program would write; SchemaError where it is no value of its type."""
    try:
        return python_default(field.type, field.default)
    except (JsonTypeError, ValueError) as error:
        raise SchemaError(f"the default of the field {field.name} is no value of its type: {error}") from None
    except (_TooLarge, RecursionError, InvalidSchema):
        raise SchemaError(
            f"the default of the field {field.name}, written out, has more than {_MAX_DEFAULT_VALUES} values or"
            " is too deep"
        ) from None


def python_default(one: AvroType, value: Json) -> object:
    """A default of a schema as the value that a program would write."""
    return _WrittenOut().value(one, value)


class _TooLarge(Exception):
    """A default has too many values."""


class _WrittenOut:
    """Writes a default out, with the defaults of fields that it leaves out, up to a limit."""

    def __init__(self) -> None:
        self._count = 0
        self._defaults = Defaults()

    def value(self, one: AvroType, value: Json) -> object:
        self._count += 1
        if self._count > _MAX_DEFAULT_VALUES:
            raise _TooLarge
        if value is None:
            return None
        if one.kind == "union":
            for each in one.branches:
                if self._defaults.fits(each, value):
                    return self.value(each, value)
            return value
        if one.kind in ("bytes", "fixed"):
            raw = as_text(value).encode("latin-1")
            logical = logical_functions(one)
            return logical[1](raw) if logical else raw
        if one.items is not None:
            items = one.items
            if one.kind == "array":
                return [self.value(items, each) for each in as_list(value)]
            return {key: self.value(items, each) for key, each in as_object(value).items()}
        if one.kind in ("record", "error"):
            given = as_object(value)
            return {
                field.name: self.value(field.type, given.get(field.name, field.default))
                for field in one.fields
            }
        if one.kind in ("float", "double"):
            return float(as_number(value))
        logical = logical_functions(one)
        return logical[1](value) if logical else value
