"""Compiles a writer's schema, and the reader's if it differs, to a Python function that reads values.

Every length is checked against the bytes that are there. Resolution of the two schemas happens at compile time.
"""

from __future__ import annotations

import copy
import dataclasses
import struct
from typing import Final, NoReturn, Protocol, cast

from ottla.registry.avro import Defaults
from ottla.registry.avro_types import PRIMITIVES, AvroType, Field
from ottla.registry.compat.avro import compare
from ottla.schemas.avro_encode import field_default
from ottla.schemas.avro_unions import Members
from ottla.schemas.avro_values import (
    MAX_EMPTY_ITEMS,
    TOO_DEEP,
    bad_length,
    block_count,
    logical_functions,
    read_long,
)
from ottla.schemas.dataclass_schemas import Classes
from ottla.schemas.errors import IncompatibleSchema, InvalidData, SchemaError
from ottla.schemas.values import Make, Value

_IN_PLACE_INDENT: Final = 24
_NUMBERS: Final = {"int": 0, "long": 1, "float": 2, "double": 3}


class Decoder(Protocol):
    """Reads the value at a position of some bytes."""

    def __call__(self, data: bytes, pos: int = 0, /) -> Value: ...


DAMAGED: Final = (
    ValueError,
    LookupError,
    TypeError,
    struct.error,
    ArithmeticError,
    RecursionError,
)
"""What generated code raises for bytes that are not what their schema says."""


def compile_decoder(
    writer: AvroType,
    reader: AvroType | None = None,
    classes: Classes | None = None,
    *,
    checked: bool = True,
    rows: bool = False,
    texts: bool = True,
    members: Members | None = None,
) -> Decoder:
    """A function from bytes and the position of the data to a value.

    `classes` makes objects of records, by the reader's full name; other records are dicts. Bytes that are not what
    the writer's schema says raise InvalidData, or one of DAMAGED without `checked`.
    `rows` is for columns: a record is a tuple, and dates and times stay numbers. With `texts` False its own texts stay
    bytes, which Arrow checks for a whole column at once.
    With `members` a value of a union that they name is a dict of one entry, the name of its type.
    """
    reader = writer if reader is None else reader
    if reader is not writer:
        found = compare(reader, writer)
        if found:
            raise IncompatibleSchema(
                "the reader's schema cannot read the writer's: " + "; ".join(one.message for one in found)
            )
    compiler = _Compiler(classes or {}, rows=rows, texts=texts, members=members)
    try:
        decode = compiler.top(writer, reader)
    except TOO_DEEP:
        raise SchemaError(
            f"the schema of {writer.name or writer.kind} nests too deep to read values of it"
        ) from None

    if not checked:
        return decode

    def checking(data: bytes, pos: int = 0, /) -> Value:
        try:
            return decode(data, pos)
        except DAMAGED as error:
            raise InvalidData(f"the bytes do not fit the writer's schema: {reason(error)}") from None

    return checking


def reason(error: Exception) -> object:
    """Why bytes could not be read, for a sentence."""
    if isinstance(error, IndexError | struct.error):
        return "the record ends inside a value"
    return error if str(error) else type(error).__name__


class _Compiler:
    def __init__(self, classes: Classes, *, rows: bool, texts: bool, members: Members | None) -> None:
        self._classes = classes
        self._members = members
        self._rows = rows
        self._texts = texts
        self._names: dict[tuple[int, int], str] = {}
        self._kept: list[AvroType] = []
        self._lines: list[str] = []
        self._count = 0
        self.scope: dict[str, object] = {
            "RL": read_long,
            "BC": block_count,
            "BAD": bad_length,
            "ZZ": tuple((raw >> 1) ^ -(raw & 1) for raw in range(128)),
            "UD": struct.Struct("<d").unpack_from,
            "UF": struct.Struct("<f").unpack_from,
        }

    def top(self, writer: AvroType, reader: AvroType) -> Decoder:
        if self._is_record(writer, reader):
            lines, value = self._record(writer, reader, "    ", top=True)
        else:
            lines, value = self._value(writer, reader, "    ")
        # Positions only grow, so one check at the end finds every length that leads beyond it. Slices there are short.
        body = [*lines, f"    out = {value}", "    if p > end: raise BAD()", "    return out"]
        source = "\n".join([*self._lines, "def decode(d, p=0):", "    end = len(d)", *body])
        exec(source, self.scope)
        return cast("Decoder", self.scope["decode"])

    @staticmethod
    def _is_record(writer: AvroType, reader: AvroType) -> bool:
        return writer.kind in ("record", "error") and reader.kind in ("record", "error")

    def _name(self) -> str:
        self._count += 1
        return f"x{self._count}"

    def _constant(self, value: object) -> str:
        name = f"K{self._name()}"
        self.scope[name] = value
        return name

    def _function(self, writer: AvroType, reader: AvroType) -> str:
        """The name of a function (d, p) -> (value, p) for a pair of types."""
        key = (id(writer), id(reader))
        known = self._names.get(key)
        if known is not None:
            return known
        name = self._names[key] = f"f{len(self._names)}"
        self._kept += [writer, reader]
        if self._is_record(writer, reader):
            lines, value = self._record(writer, reader, "    ")
        else:
            lines, value = self._value(writer, reader, "    ", inside=True)
        self._lines += [f"def {name}(d, p):", "    end = len(d)", *lines, f"    return {value}, p"]
        return name

    def _value(
        self, writer: AvroType, reader: AvroType, pad: str, *, inside: bool = False, raw: bool = False
    ) -> tuple[list[str], str]:
        """Statements that read a value, and the expression of it; texts stay bytes if it is `raw`."""
        if writer.kind == "union":
            return self._writer_union(writer, reader, pad, raw=raw)
        if reader.kind == "union":
            branch = branch_for(reader, writer)
            name = self._member(reader, branch)
            if name is not None:
                lines, value = self._value(writer, branch, pad)
                return lines, f"{{{name!r}: {value}}}"
            reader = branch
        if writer.kind in ("array", "map", "record", "error") and not inside:
            if self._in_place(writer, pad):
                return self._block(writer, reader, pad)
            out = self._name()
            return [f"{pad}{out}, p = {self._function(writer, reader)}(d, p)"], out
        if writer.kind in ("array", "map"):
            return self._block(writer, reader, pad)
        lines, value = self._plain(writer, pad, raw=raw)
        if raw and writer.kind in ("string", "bytes"):
            return lines, value
        return self._converted(writer, reader, lines, value, pad)

    def _member(self, union: AvroType, branch: AvroType) -> str | None:
        """The name of a type in a union that is a struct; None in others, and for null."""
        names = None if self._members is None else self._members(union)
        if names is None:
            return None
        return next(name for name, one in zip(names, union.branches, strict=True) if one is branch)

    def _in_place(self, one: AvroType, pad: str) -> bool:
        """Whether an array or a map of plain items is read without a call. Python nests twenty blocks at most."""
        plain = one.items is not None and (
            one.items.kind in PRIMITIVES or one.items.kind in ("enum", "fixed")
        )
        return one.kind in ("array", "map") and plain and len(pad) <= _IN_PLACE_INDENT

    def _number(self, out: str, pad: str) -> list[str]:
        # Numbers of up to three bytes are read in place: a call costs as much as the rest of a field.
        return [
            f"{pad}{out} = d[p]",
            f"{pad}if {out} < 128:",
            f"{pad}    p += 1",
            f"{pad}    {out} = ZZ[{out}]",
            f"{pad}elif (y := d[p + 1]) < 128:",
            f"{pad}    p += 2",
            f"{pad}    {out} = ({out} & 127 | y << 7) >> 1 ^ -({out} & 1)",
            f"{pad}elif (z := d[p + 2]) < 128:",
            f"{pad}    p += 3",
            f"{pad}    {out} = ({out} & 127 | (y & 127) << 7 | z << 14) >> 1 ^ -({out} & 1)",
            f"{pad}else: {out}, p = RL(d, p)",
        ]

    def _plain(self, writer: AvroType, pad: str, *, raw: bool = False) -> tuple[list[str], str]:
        out = self._name()
        match writer.kind:
            case "null":
                return [], "None"
            case "boolean":
                lines = [f"{pad}{out} = d[p] != 0", f"{pad}p += 1"]
            case "int" | "long" | "enum":
                lines = self._number(out, pad)
            case "float":
                lines = [f"{pad}{out} = UF(d, p)[0]", f"{pad}p += 4"]
            case "double":
                lines = [f"{pad}{out} = UD(d, p)[0]", f"{pad}p += 8"]
            case "fixed":
                lines = [
                    f"{pad}{out} = d[p:p + {writer.size}]",
                    f"{pad}p += {writer.size}",
                ]
            case _:
                shown = "d[p:e].decode()" if writer.kind == "string" and not raw else "d[p:e]"
                lines = [
                    f"{pad}{out} = d[p]",
                    f"{pad}if {out} < 128 and not {out} & 1:",
                    f"{pad}    p += 1",
                    f"{pad}    e = p + ({out} >> 1)",
                    f"{pad}else:",
                    f"{pad}    {out}, p = RL(d, p)",
                    f"{pad}    e = p + {out}",
                    f"{pad}    if e < p or e > end: raise BAD()",
                    f"{pad}{out} = {shown}",
                    f"{pad}p = e",
                ]
        return lines, out

    def _converted(
        self, writer: AvroType, reader: AvroType, lines: list[str], value: str, pad: str
    ) -> tuple[list[str], str]:
        if writer.kind == "enum":
            return lines, f"{self._constant(self._symbols(writer, reader))}[{value}]"
        if writer.kind in _NUMBERS and reader.kind in ("float", "double") and writer.kind in ("int", "long"):
            return lines, f"float({value})"
        if writer.kind == "string" and reader.kind == "bytes":
            return lines, f"{value}.encode()"
        if writer.kind == "bytes" and reader.kind == "string":
            return lines, f"str({value}, 'utf-8')"
        logical = logical_functions(reader)
        if self._rows and reader.props.get("logicalType") != "decimal":
            logical = None
        if logical is not None and reader.kind == writer.kind:
            return lines, f"{self._constant(logical[1])}({value})"
        return lines, value

    def _symbols(self, writer: AvroType, reader: AvroType) -> _Symbols:
        make = self._classes.get(reader.name)
        known = symbols_read(writer, reader)
        if make is None:
            return _Symbols(dict(known), reader.name)
        return _Symbols({at: _member(make, symbol) for at, symbol in known.items()}, reader.name)

    def _record(
        self, writer: AvroType, reader: AvroType, pad: str, *, top: bool = False
    ) -> tuple[list[str], str]:
        wanted = field_sources(writer, reader)
        lines: list[str] = []
        values: dict[str, str] = {}
        for field in writer.fields:
            target = wanted.get(field.name)
            kind = field.type if target is None else target.type
            raw = top and self._rows and not self._texts and is_text(kind)
            more, value = self._value(field.type, kind, pad, raw=raw)
            lines += more
            if target is not None:
                if not value.isidentifier() and value != "None":
                    kept = self._name()
                    lines.append(f"{pad}{kept} = {value}")
                    value = kept
                values[target.name] = value
        for field in reader.fields:
            if field.name not in values:
                values[field.name] = self._default(field)
        if top and self._rows:
            return lines, f"({''.join(f'{values[field.name]}, ' for field in reader.fields)})"
        make = self._classes.get(reader.name)
        if make is not None:
            _check_names(reader)
            plain = _takes_in_order(make, reader)
            shown = ", ".join(
                values[field.name] if plain else f"{field.name}={values[field.name]}"
                for field in reader.fields
            )
            return lines, f"{self._constant(make)}({shown})"
        shown = ", ".join(f"{field.name!r}: {values[field.name]}" for field in reader.fields)
        return lines, f"{{{shown}}}"

    def _default(self, field: Field) -> str:
        value = default_of(field, rows=self._rows)
        if field.type.kind == "union" and value is not None:
            # A default is a value of the first type, in newer versions of Avro of any.
            name = self._member(field.type, default_branch(field))
            value = value if name is None else {name: value}
        if isinstance(value, list | dict):
            return f"{self._constant(_Copies(value))}()"
        return self._constant(value)

    def _block(self, writer: AvroType, reader: AvroType, pad: str) -> tuple[list[str], str]:
        assert writer.items is not None and reader.items is not None
        out, count = self._name(), self._name()
        inner = pad + "        "
        lines, value = self._value(writer.items, reader.items, inner)
        is_map = writer.kind == "map"
        least = least_bytes(writer.items) + (1 if is_map else 0)
        head = [
            f"{pad}{out} = {'{}' if is_map else '[]'}",
            f"{pad}while {count} := d[p]:",
            f"{pad}    if {count} < 128 and not {count} & 1 and ({count} >> 1) * {least or 1} <= end - p:",
            f"{pad}        p += 1",
            f"{pad}        {count} >>= 1",
            f"{pad}    else:",
            f"{pad}        {count}, p = BC(d, p, {least})",
            f"{pad}        if not {count}:",
            f"{pad}            p -= 1",
            f"{pad}            break",
            f"{pad}    for _ in range({count}):",
        ]
        if not least:
            # Items without bytes could be repeated in many blocks.
            head.insert(-1, f"{pad}    if len({out}) + {count} > {MAX_EMPTY_ITEMS}: raise BAD()")
        if is_map:
            keys, key = self._plain(AvroType("string"), inner)
            body = [*keys, *lines, f"{inner}{out}[{key}] = {value}"]
        else:
            body = [*lines, f"{inner}{out}.append({value})"]
        return [*head, *body, f"{pad}p += 1"], out

    def _writer_union(
        self, writer: AvroType, reader: AvroType, pad: str, *, raw: bool = False
    ) -> tuple[list[str], str]:
        out, at = self._name(), self._name()
        # The byte of a branch is twice its number.
        lines = [f"{pad}{at} = d[p]", f"{pad}p += 1"]
        lines += [f"{pad}if {at} > 127:", f"{pad}    {at}, p = RL(d, p - 1)", f"{pad}    {at} <<= 1"]
        word = "if"
        for number, branch in enumerate(writer.branches):
            lines.append(f"{pad}{word} {at} == {number * 2}:")
            word = "elif"
            more, value = self._value(branch, reader, pad + "    ", raw=raw)
            lines += [*more, f"{pad}    {out} = {value}"]
        lines.append(f"{pad}else: raise ValueError('a union has no branch of this number')")
        return lines, out


def field_sources(writer: AvroType, reader: AvroType) -> dict[str, Field]:
    """The reader's fields by the names of the writer's fields that they come from."""
    written = {field.name for field in writer.fields}
    found: dict[str, Field] = {}
    for field in reader.fields:
        for name in (field.name, *field.aliases):
            if name in written:
                found[name] = field
                break
    return found


def symbols_read(writer: AvroType, reader: AvroType) -> dict[int, str]:
    """The reader's symbols by the numbers of the writer's. One that the reader has no place for is not there."""
    found: dict[int, str] = {}
    for at, symbol in enumerate(writer.symbols):
        known = symbol if symbol in reader.symbols else reader.default
        if known is not None:
            found[at] = known
    return found


def default_of(field: Field, *, rows: bool) -> object:
    """What a field of the reader's is if the writer has none; in `rows`, dates and times stay numbers."""
    if not field.has_default:
        return field.type.default
    value: object = field_default(field)
    if rows and not isinstance(value, list | dict) and field.type.kind in ("int", "long"):
        return field.default
    return value


def default_branch(field: Field) -> AvroType:
    """The type of a union that a field's default is a value of."""
    defaults = Defaults()
    return next(
        (one for one in field.type.branches if defaults.fits(one, field.default)), field.type.branches[0]
    )


def is_text(one: AvroType) -> bool:
    """Whether a column of a type holds texts, or texts and nulls."""
    kinds = {branch.kind for branch in one.branches} - {"null"} if one.kind == "union" else {one.kind}
    return kinds == {"string"}


def _takes_in_order(make: Make, one: AvroType) -> bool:
    """Whether a dataclass takes the fields of a record as positional arguments, which is faster."""
    if not dataclasses.is_dataclass(make):
        return False
    names = [field.name for field in dataclasses.fields(make) if field.init and not field.kw_only]
    return names == [field.name for field in one.fields] and "__init__" in vars(make)


def _check_names(one: AvroType) -> None:
    """Names of fields become words of the decoder's own code only if they are words."""
    for field in one.fields:
        if not field.name.isidentifier():
            raise SchemaError(f"{field.name!r} of {one.name} cannot be an attribute of a dataclass")


class _Copies:
    """A default that every record gets a copy of."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __call__(self) -> object:
        return copy.deepcopy(self._value)


class _Symbols(dict[int, object]):
    """The symbols of a writer's enum by number. One that the reader has no place for is not there."""

    def __init__(self, symbols: dict[int, object], name: str) -> None:
        super().__init__(symbols)
        self._name = name

    def __missing__(self, at: int) -> NoReturn:
        raise ValueError(f"the enum {self._name} has no symbol {at}")


def _member(make: Make, symbol: str) -> object:
    members = getattr(make, "__members__", {})
    return members[symbol] if symbol in members else make(symbol)


def branch_for(reader: AvroType, writer: AvroType) -> AvroType:
    """The branch of a reader's union that a writer's type is read with: of the same kind first."""
    same = [one for one in reader.branches if one.kind == writer.kind and not compare(one, writer)]
    if same:
        return same[0]
    return next(one for one in reader.branches if not compare(one, writer))


def least_bytes(one: AvroType) -> int:
    """The fewest bytes that a value of a type can have. A record counts none of the bytes of itself inside it."""
    return _least_bytes(one, {})


def _least_bytes(one: AvroType, known: dict[int, int]) -> int:
    match one.kind:
        case "null":
            return 0
        case "float":
            return 4
        case "double":
            return 8
        case "fixed":
            return one.size
        case "record" | "error":
            if id(one) not in known:
                known[id(one)] = 0
                known[id(one)] = sum(_least_bytes(field.type, known) for field in one.fields)
            return known[id(one)]
    return 1
