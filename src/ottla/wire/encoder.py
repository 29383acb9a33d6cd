"""Compiles the encoder of one message in one version: straight-line Python from the schema.

Runs of fixed-width fields, together with the length that follows while it fits one byte, become one `pack`;
structs are inlined into the loops of their arrays; tagged fields cost one comparison each until they are set.
Values that do not fit raise Python's own errors, which `codec` translates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.wire import cost, source
from ottla.wire.schema import FIXED, Field, Message, Struct

COPY_RECORDS_BELOW: Final = 2048
"""Records up to this size are copied, which is cheaper than one more buffer to write."""

_HELPERS = {
    "long_length": source.long_length,
    "long_string": source.long_string,
    "put_tags": source.put_tags,
    "not_in_version": source.not_in_version,
    "not_a_uuid": source.not_a_uuid,
}


def compile_encoder(message: Message, version: int) -> Callable[..., bytearray]:
    """Generate and compile the encoder `(message, out, buffers) -> out` of a version that the message has."""
    return _Generator(message, version).compile()


class _Generator:
    def __init__(self, message: Message, version: int) -> None:
        from ottla.wire.classes import struct_classes

        self.message = message
        self.version = version
        self.flexible = version in message.flexible
        self.classes = struct_classes(message.name)
        self.src = source.Source()
        self.src.globals.update(_HELPERS)
        self.run: list[tuple[str, str]] = []
        self.out = "out"

    def compile(self) -> Callable[..., bytearray]:
        self.struct(self.message.root, "msg")
        self.flush()
        self.src.line("return out")
        title = f"encoder of {self.message.name} version {self.version}"
        return self.src.compile("def encode(msg, out, buffers):", title)

    # Writing runs ----------------------------------------------------------------------------------

    def flush(self, *more: tuple[str, str]) -> None:
        """Write the fixed-width values that have accumulated, and these."""
        self.write([*self.run, *more])
        self.run = []

    def write(self, run: list[tuple[str, str]]) -> None:
        if not run:
            return
        codes = "".join(code for code, _ in run)
        if codes == "x":
            self.src.line(f"{self.out}.append(0)")
        elif codes == "B":
            self.src.line(f"{self.out}.append({run[0][1]})")
        else:
            pack = self.src.constant("P_", source.packer(codes))
            values = ", ".join(value for code, value in run if code != "x")
            self.src.line(f"{self.out} += {pack}({values})")

    def length(self, n: str, *, compact: bool, string: bool) -> None:
        """Write a length or count after the accumulated values."""
        if not compact:
            self.flush(("h" if string else "i", n))
            return
        with self.src.block(f"if {n} < 128:"):
            self.write([*self.run, ("B", n)])
        with self.src.block("else:"):
            self.write(self.run)
            self.src.line(f"{self.out} += {'long_string' if string else 'long_length'}({n})")
        self.run = []

    # Structs ---------------------------------------------------------------------------------------

    def struct(self, struct: Struct, owner: str) -> None:
        """Write the struct in the variable `owner`; its last fixed-width values are written by the next `flush`."""
        tagged: list[Field] = []
        for field in struct.fields:
            if self.version not in field.versions:
                self.absent(field, struct, owner)
            elif field.is_tagged(self.version):
                tagged.append(field)
            else:
                self.field(field, f"{owner}.{field.name}")
        if self.flexible:
            self.tags(sorted(tagged, key=lambda field: field.tag), owner)
        else:
            with self.src.block(f"if {owner}.unknown_tagged_fields:"):
                what = f"{struct.name}.unknown_tagged_fields"
                self.src.line(f"not_in_version({what!r}, {self.version})")

    def absent(self, field: Field, struct: Struct, owner: str) -> None:
        """A field that this version does not have may be set only if it is ignorable."""
        if not field.ignorable:
            with self.src.block(f"if not ({self.is_default(field, f'{owner}.{field.name}')}):"):
                self.src.line(f"not_in_version({f'{struct.name}.{field.name}'!r}, {self.version})")

    def is_default(self, field: Field, value: str) -> str:
        """The condition under which Kafka leaves a tagged field out."""
        if field.default is None:
            return f"{value} is None"
        if field.is_array or field.type == "bytes":
            return f"({value} is not None and not {value})"
        if field.struct is not None:
            cls = self.classes[field.type]
            default = self.src.constant("D_", cls.DEFAULT if cls.DEFAULT is not None else cls())
            return f"({value} is {default} or {value} == {default})"
        if field.type == "bool":
            return value if field.default else f"not {value}"
        if field.type == "uuid":
            return f"{value} == {self.src.constant('D_', field.default)}"
        return f"{value} == {field.default!r}"

    def tags(self, tagged: list[Field], owner: str) -> None:
        """Write the tagged fields at a struct's end, after the accumulated values."""
        set_conditions = [f"not {self.is_default(field, f'{owner}.{field.name}')}" for field in tagged]
        any_set = " or ".join([*set_conditions, f"{owner}.unknown_tagged_fields"])
        with self.src.block(f"if {any_set}:"):
            self.write(self.run)
            self.tags_that_are_set(tagged, set_conditions, owner)
        with self.src.block("else:"):
            self.write([*self.run, ("x", "")])
        self.run = []

    def tags_that_are_set(self, tagged: list[Field], set_conditions: list[str], owner: str) -> None:
        known, data = self.src.name("known"), self.src.name("data")
        self.src.line(f"{known} = []")
        outer, self.out = self.out, data
        waiting, self.run = self.run, []
        for field, condition in zip(tagged, set_conditions, strict=True):
            with self.src.block(f"if {condition}:"):
                self.src.line(f"{data} = bytearray()")
                self.field(field, f"{owner}.{field.name}", tagged=True)
                self.flush()
                self.src.line(f"{known}.append(({field.tag}, {data}))")
        self.out, self.run = outer, waiting
        self.src.line(f"put_tags({self.out}, {known}, {owner}.unknown_tagged_fields)")

    # Fields ----------------------------------------------------------------------------------------

    def field(self, field: Field, value: str, *, tagged: bool = False) -> None:
        """Write a field whose value is the given expression."""
        nullable = self.version in field.nullable
        compact = tagged or cost.is_flexible(field, self.message, self.version)
        if field.is_array:
            self.array(field, value, compact=compact, nullable=nullable)
        elif field.struct is not None:
            self.struct_field(field.struct, value, tagged=tagged, nullable=nullable)
        elif field.type == "uuid":
            self.uuid(value)
        elif field.type in FIXED:
            self.run.append((FIXED[field.type][0], value))
        elif field.type == "records":
            self.records(value, compact=compact, nullable=nullable)
        else:
            self.blob(field.type, value, compact=compact, nullable=nullable)

    def uuid(self, value: str) -> None:
        raw = self.src.name("u")
        self.src.line(f"{raw} = {value}")
        # `pack` would pad or truncate without an error.
        with self.src.block(f"if len({raw}) != 16:"):
            self.src.line(f"not_a_uuid({raw})")
        self.run.append((FIXED["uuid"][0], raw))

    def blob(self, kind: str, value: str, *, compact: bool, nullable: bool) -> None:
        """A string or bytes."""
        src = self.src
        n, data = src.name("n"), src.name("b")
        plus = " + 1" if compact else ""
        src.line(f"{data} = {value}")
        if nullable:
            with src.block(f"if {data} is None:"):
                src.line(f"{n} = {0 if compact else -1}")
                src.line(f"{data} = b''")
            with src.block("else:"):
                if kind == "string":
                    src.line(f"{data} = {data}.encode()")
                src.line(f"{n} = len({data}){plus}")
        else:
            if kind == "string":
                src.line(f"{data} = {data}.encode()")
            src.line(f"{n} = len({data}){plus}")
        self.length(n, compact=compact, string=kind == "string")
        src.line(f"{self.out} += {data}")

    def records(self, value: str, *, compact: bool, nullable: bool) -> None:
        """Records: None, a bytes-like object, or a list of them. Large ones are not copied."""
        src = self.src
        n, data = src.name("n"), src.name("r")
        plus = " + 1" if compact else ""
        src.line(f"{data} = {value}")
        head = "if"
        if nullable:
            with src.block(f"if {data} is None:"):
                src.line(f"{n} = {0 if compact else -1}")
                src.line(f"{data} = b''")
            head = "elif"
        with src.block(f"{head} type({data}) is list:"):
            src.line(f"{n} = sum(map(len, {data})){plus}")
            with src.block(f"if {n} < {COPY_RECORDS_BELOW} or buffers is None:"):
                src.line(f"{data} = b''.join({data})")
        with src.block("else:"):
            src.line(f"{n} = len({data}){plus}")
        self.length(n, compact=compact, string=False)
        with src.block(f"if {n} < {COPY_RECORDS_BELOW} or buffers is None:"):
            src.line(f"{self.out} += {data}")
        with src.block("else:"):
            src.line(f"buffers.append({self.out})")
            with src.block(f"if type({data}) is list:"):
                src.line(f"buffers += {data}")
            with src.block("else:"):
                src.line(f"buffers.append({data})")
            src.line(f"{self.out} = bytearray()")

    def struct_field(self, struct: Struct, value: str, *, tagged: bool, nullable: bool) -> None:
        inner = self.src.name("s")
        self.src.line(f"{inner} = {value}")
        if not nullable:
            self.struct(struct, inner)
            return
        with self.src.block(f"if {inner} is None:"):
            self.write([*self.run, ("b", "0" if tagged else "-1")])
        with self.src.block("else:"):
            self.flush(("b", "1"))
            self.struct(struct, inner)
            self.flush()

    def array(self, field: Field, value: str, *, compact: bool, nullable: bool) -> None:
        src = self.src
        n, items = src.name("n"), src.name("a")
        plus = " + 1" if compact else ""
        src.line(f"{items} = {value}")
        if nullable:
            with src.block(f"if {items} is None:"):
                src.line(f"{n} = {0 if compact else -1}")
                src.line(f"{items} = ()")
            with src.block("else:"):
                src.line(f"{n} = len({items}){plus}")
        else:
            src.line(f"{n} = len({items}){plus}")
        self.length(n, compact=compact, string=False)
        if field.type in FIXED and field.type != "uuid":
            packers = src.constant("A_", source.array_structs(FIXED[field.type][0], "pack"))
            with src.block(f"if {items}:"):
                src.line(f"{self.out} += {packers}[len({items})](*{items})")
        else:
            self.elements(field, items, compact=compact)

    def elements(self, field: Field, items: str, *, compact: bool) -> None:
        element = self.src.name("x")
        with self.src.block(f"for {element} in {items}:"):
            if field.struct is not None:
                self.struct(field.struct, element)
            elif field.type == "uuid":
                self.uuid(element)
            else:
                self.blob(field.type, element, compact=compact, nullable=False)
            self.flush()
