"""Compiles the decoder of one message in one version: straight-line Python from the schema.

Runs of fixed-width fields, together with the first byte of the varint that follows, become one
`unpack_from`; structs are inlined into the loops of their arrays. Generated code checks every length and count
against the bytes at hand; running off the end raises `struct.error` or `IndexError`, which `codec` translates.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import getsizeof
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.limits import MAX_UNKNOWN_TAG_BYTES, MAX_UNKNOWN_TAGS
from ottla.wire import cost, source
from ottla.wire.primitives import Buffer
from ottla.wire.schema import FIXED, NEW, Field, Message, Struct

if TYPE_CHECKING:
    from ottla.wire.classes import WireStruct

_HELPERS = {
    "more": source.more,
    "more_string": source.more_string,
    "read_tag": source.read_tag,
    "short": source.short,
    "null": source.null,
    "misfit": source.misfit,
    "over_budget": source.over_budget,
    "many_tags": source.many_tags,
    "long_tags": source.long_tags,
    "getsizeof": getsizeof,
}


Decode = Callable[..., tuple[Any, int]]
"""A compiled decoder; the caller knows the class of its message."""


class Decoder(NamedTuple):
    """A compiled decoder and its twin that keeps a memory budget."""

    fast: Decode
    """`(buf, pos, end) -> (message, pos)`"""
    unchecked_size: int
    """Buffers larger than this go through `bounded`."""
    has_records: bool
    """The message has memory views into the buffer, so that it must not be copied first."""
    bounded: Decode
    """`(buf, pos, end, budget) -> (message, pos)`"""


def compile_decoder(message: Message, version: int) -> Decoder:
    """Generate and compile the decoder of a version that the message has."""
    fast = _Generator(message, version, bounded=False)
    function = fast.compile()
    bounded: list[Decode] = []

    def with_budget(buf: Buffer, pos: int, end: int, budget: int) -> tuple[Any, int]:
        # Compiled when the first large frame arrives: most messages never have one.
        if not bounded:
            bounded.append(_Generator(message, version, bounded=True).compile())
        return bounded[0](buf, pos, end, budget)

    return Decoder(function, cost.unchecked_size(message, version), fast.has_records, with_budget)


class _Generator:
    def __init__(self, message: Message, version: int, *, bounded: bool) -> None:
        from ottla.wire.classes import message_class, struct_classes

        self.message = message
        self.version = version
        self.bounded = bounded
        self.flexible = version in message.flexible
        self.has_records = False
        self.classes: dict[str, type[WireStruct]] = {**struct_classes(message.name)}
        self.classes[message.name] = message_class(message.name)
        self.src = source.Source()
        self.src.globals.update(_HELPERS)
        self.run: list[tuple[str, str]] = []

    def compile(self) -> Decode:
        built = self.struct(self.message.root)
        self.flush()
        self.src.line(f"return {built}, pos")
        if self.has_records:
            self.src.lines.insert(0, "    view = buf if type(buf) is memoryview else memoryview(buf)")
        head = f"def decode(buf, pos, end{', budget' if self.bounded else ''}):"
        kind = "bounded decoder" if self.bounded else "decoder"
        return self.src.compile(head, f"{kind} of {self.message.name} version {self.version}")

    # Reading runs ----------------------------------------------------------------------------------

    def flush(self) -> None:
        """Read the fixed-width values that have accumulated."""
        if not self.run:
            return
        codes = "".join(code for code, _ in self.run)
        if codes == "B":
            self.src.line(f"{self.run[0][1]} = buf[pos]")
        else:
            unpack = self.src.constant("U_", source.unpacker(codes))
            targets = ", ".join(target for _, target in self.run)
            self.src.line(f"({targets},) = {unpack}(buf, pos)")
        self.src.line(f"pos += {sum(_WIDTHS[code] for code, _ in self.run)}")
        self.run = []

    def length(self, what: str, *, compact: bool, string: bool, nullable: bool) -> str:
        """Read a length or count into a variable: plus one if compact, as on the wire.

        Refuses a null in a field that is not nullable. An allowed null is 0 if compact, else negative.
        """
        n = self.src.name("n")
        if compact:
            self.run.append(("B", n))
            self.flush()
            with self.src.block(f"if {n} > 127:"):
                self.src.line(f"{n}, pos = {'more_string' if string else 'more'}(buf, pos)")
        else:
            self.run.append(("h" if string else "i", n))
            self.flush()
        if not nullable:
            with self.src.block(f"if {n} == 0:" if compact else f"if {n} < 0:"):
                self.src.line(f"null({what!r})")
        return n

    def charge(self, amount: str, what: str) -> None:
        if self.bounded:
            self.src.line(f"budget -= {amount}")
            with self.src.block("if budget < 0:"):
                self.src.line(f"over_budget({what!r})")

    # Structs ---------------------------------------------------------------------------------------

    def struct(self, struct: Struct) -> str:
        """Read a struct's fields; returns the expression that builds it."""
        values: dict[str, str] = {}
        tagged: list[Field] = []
        for field in struct.fields:
            if self.version not in field.versions:
                values[field.name] = self.default(field)
            elif field.is_tagged(self.version):
                tagged.append(field)
            else:
                values[field.name] = self.field(field, f"{struct.name}.{field.name}")
        unknown = "()"
        if self.flexible:
            unknown = self.tags(struct, tagged, values)
        arguments = [values[field.name] for field in struct.fields] + [unknown]
        cls = self.src.constant("C_", self.classes[struct.name])
        return f"{cls}({', '.join(arguments)})"

    def default(self, field: Field) -> str:
        if field.default is NEW:
            if field.is_array:
                return "[]"
            shared = self.classes[field.type].DEFAULT
            if shared is None:
                return f"{self.src.constant('C_', self.classes[field.type])}()"
            return self.src.constant("D_", shared)
        if field.type == "uuid":
            return self.src.constant("D_", field.default)
        return repr(field.default)

    def tags(self, struct: Struct, tagged: list[Field], values: dict[str, str]) -> str:
        """Read the tagged fields at a struct's end; returns the variable of the unknown ones."""
        count = self.src.name("t")
        self.run.append(("B", count))
        self.flush()
        unknown = self.src.name("u")
        self.src.line(f"{unknown} = ()")
        for field in tagged:
            values[field.name] = self.src.name("v")
            self.src.line(f"{values[field.name]} = {self.default(field)}")
        tag, stop, left = self.src.name("tag"), self.src.name("stop"), self.src.name("left")
        with self.src.block(f"if {count}:"):
            with self.src.block(f"if {count} > 127:"):
                self.src.line(f"{count}, pos = more(buf, pos)")
            with self.src.block(f"if {count} > (end - pos) // 2:"):
                self.src.line(f"short({struct.name + ' tags'!r}, {count}, end - pos)")
            most = len(tagged) + MAX_UNKNOWN_TAGS
            with self.src.block(f"if {count} > {most}:"):
                self.src.line(f"many_tags({struct.name!r}, {count}, {most})")
            self.src.line(f"{left} = {MAX_UNKNOWN_TAG_BYTES}")
            with self.src.block(f"for _ in range({count}):"):
                self.src.line(f"{tag}, pos, {stop} = read_tag(buf, pos, end)")
                head = "if"
                for field in tagged:
                    with self.src.block(f"{head} {tag} == {field.tag}:"):
                        self.tagged_field(field, struct, values[field.name], stop)
                    head = "elif"
                with self.src.block("else:" if tagged else "if True:"):
                    what = f"{struct.name} tags"
                    self.src.line(f"{left} -= {stop} - pos")
                    with self.src.block(f"if {left} < 0:"):
                        self.src.line(f"long_tags({struct.name!r}, {MAX_UNKNOWN_TAG_BYTES})")
                    self.charge(f"{cost.UNKNOWN_TAG} + {stop} - pos", what)
                    with self.src.block(f"if not {unknown}:"):
                        self.src.line(f"{unknown} = []")
                    self.src.line(f"{unknown}.append(({tag}, bytes(buf[pos:{stop}])))")
                    self.src.line(f"pos = {stop}")
        return unknown

    def tagged_field(self, field: Field, struct: Struct, target: str, stop: str) -> None:
        what = f"{struct.name}.{field.name}"
        self.charge(str(cost.tagged_cost(field, self.version)), what)
        value = self.field(field, what, tagged=True)
        self.flush()
        self.src.line(f"{target} = {value}")
        with self.src.block(f"if pos != {stop}:"):
            self.src.line(f"misfit({what!r})")

    # Fields ----------------------------------------------------------------------------------------

    def field(self, field: Field, what: str, *, tagged: bool = False) -> str:
        """Read a field; returns the expression of its value, which is valid after the next `flush`."""
        nullable = self.version in field.nullable
        compact = tagged or cost.is_flexible(field, self.message, self.version)
        if field.is_array:
            return self.array(field, what, compact=compact, nullable=nullable)
        if field.struct is not None:
            return self.struct_field(field, what, tagged=tagged, nullable=nullable)
        if field.type in FIXED:
            target = self.src.name("v")
            self.run.append((FIXED[field.type][0], target))
            return target
        return self.blob(field.type, what, compact=compact, nullable=nullable)

    def blob(self, kind: str, what: str, *, compact: bool, nullable: bool) -> str:
        """A string, bytes or records."""
        n = self.length(what, compact=compact, string=kind == "string", nullable=nullable)
        target, stop = self.src.name("v"), self.src.name("e")
        with self.src.block(f"if {n} > {1 if compact else 0}:"):
            self.src.line(f"{stop} = pos + {n}{' - 1' if compact else ''}")
            with self.src.block(f"if {stop} > end:"):
                self.src.line(f"short({what!r}, {n}, end - pos)")
            if kind == "string":
                self.src.line(f"{target} = str(buf[pos:{stop}], 'utf-8')")
                self.charge(f"getsizeof({target})", what)
            elif kind == "bytes":
                self.charge(f"40 + {n}", what)
                self.src.line(f"{target} = bytes(buf[pos:{stop}])")
            else:
                self.has_records = True
                self.src.line(f"{target} = view[pos:{stop}]")
            self.src.line(f"pos = {stop}")
        empty = {"string": "''", "bytes": "b''", "records": "view[pos:pos]"}[kind]
        if nullable:
            with self.src.block(f"elif {n} == {1 if compact else 0}:"):
                self.src.line(f"{target} = {empty}")
            with self.src.block("else:"):
                self.src.line(f"{target} = None")
        else:
            with self.src.block("else:"):
                self.src.line(f"{target} = {empty}")
        return target

    def struct_field(self, field: Field, what: str, *, tagged: bool, nullable: bool) -> str:
        assert field.struct is not None
        if not nullable:
            return self.struct(field.struct)
        there, target = self.src.name("p"), self.src.name("v")
        self.run.append(("B" if tagged else "b", there))
        self.flush()
        with self.src.block(f"if {there} {'!= 0' if tagged else '>= 0'}:"):
            value = self.struct(field.struct)
            self.flush()
            self.src.line(f"{target} = {value}")
        with self.src.block("else:"):
            self.src.line(f"{target} = None")
        return target

    def array(self, field: Field, what: str, *, compact: bool, nullable: bool) -> str:
        n = self.length(what, compact=compact, string=False, nullable=nullable)
        target = self.src.name("v")
        if not nullable:
            self.elements(field, what, n, target, compact=compact)
            return target
        with self.src.block(f"if {n} {'> 0' if compact else '>= 0'}:"):
            self.elements(field, what, n, target, compact=compact)
        with self.src.block("else:"):
            self.src.line(f"{target} = None")
        return target

    def elements(self, field: Field, what: str, n: str, target: str, *, compact: bool) -> None:
        src = self.src
        if compact:
            src.line(f"{n} -= 1")
        size = cost.min_element_size(field, self.message, self.version)
        with src.block(f"if {n} * {size} > end - pos:" if size > 1 else f"if {n} > end - pos:"):
            src.line(f"short({what!r}, {n}, end - pos)")
        self.charge(f"{n} * {cost.element_cost(field, self.version)}", what)
        if field.type in FIXED and field.type != "uuid":
            unpackers = source.array_structs(FIXED[field.type][0], "unpack_from")
            src.line(f"{target} = list({src.constant('A_', unpackers)}[{n}](buf, pos))")
            src.line(f"pos += {n} * {size}")
            return
        src.line(f"{target} = []")
        with src.block(f"for _ in range({n}):"):
            if field.struct is not None:
                value = self.struct(field.struct)
            elif field.type == "uuid":
                value = src.name("v")
                self.run.append((FIXED["uuid"][0], value))
            else:
                value = self.blob(field.type, what, compact=compact, nullable=False)
            self.flush()
            src.line(f"{target}.append({value})")


_WIDTHS = {**dict(FIXED.values()), "B": 1}
