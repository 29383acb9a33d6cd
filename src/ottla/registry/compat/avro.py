"""Avro compatibility by the rules of Apache Avro's SchemaCompatibility; each finding names the path in the reader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ottla.registry.avro_types import AvroType, Field
from ottla.registry.compat.budget import Budget
from ottla.registry.errors import InvalidSchema
from ottla.registry.limits import MAX_MESSAGES, MAX_SHOWN_CHARS

_WIDER: Final = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "bytes": ("string",),
    "string": ("bytes",),
}
"""By the reader's type: the other writer's types that it reads."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One incompatibility: its kind, its path, and a sentence."""

    kind: str
    path: str
    message: str

    def __str__(self) -> str:
        message, path = _cut(self.message), _cut(self.path)
        return f"{{errorType:'{self.kind}', description:'{message} (path {path})'}}"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_CHARS else text[:MAX_SHOWN_CHARS] + "..."


class AmbiguousField(InvalidSchema):
    """A reader's field matches several fields of the writer by its name and its aliases."""


def compare(reader: AvroType, writer: AvroType, budget: Budget | None = None) -> list[Finding]:
    """Why the reader cannot read what the writer wrote; nothing if it can."""
    comparison = _Comparison(budget or Budget())
    if comparison.pair(reader, writer, ""):
        return []
    return comparison.findings or [Finding("TYPE_MISMATCH", "/", "the schemas are incompatible")]


class _Comparison:
    def __init__(self, budget: Budget) -> None:
        budget.begin()
        self._budget = budget
        self.findings: list[Finding] = []
        self._known: dict[tuple[int, int], bool | None] = {}
        self._quiet = 0

    def pair(self, reader: AvroType, writer: AvroType, path: str) -> bool:
        """Whether the pair fits. A pair that is being looked at fits unless proven otherwise."""
        key = (id(reader), id(writer))
        if key in self._known:
            known = self._known[key]
            return True if known is None else known
        self._budget.pair()
        self._known[key] = None
        result = self._calculate(reader, writer, path)
        self._known[key] = result
        return result

    def _find(self, kind: str, path: str, message: str) -> bool:
        if not self._quiet and len(self.findings) < MAX_MESSAGES:
            self.findings.append(Finding(kind, path or "/", message))
        return False

    def _calculate(self, reader: AvroType, writer: AvroType, path: str) -> bool:
        if reader.kind == writer.kind or {reader.kind, writer.kind} == {"record", "error"}:
            return self._same_kind(reader, writer, path)
        if writer.kind == "union":
            fits = True
            for number, branch in enumerate(writer.branches):
                fits = self.pair(reader, branch, f"{path}/{number}") and fits
            return fits
        if reader.kind == "union":
            return self._union_reads(reader, writer, path)
        if writer.kind in _WIDER.get(reader.kind, ()):
            return True
        return self._find(
            "TYPE_MISMATCH",
            path,
            f"The type {_label(reader)} of the reader does not read the writer's type {_label(writer)}",
        )

    def _same_kind(self, reader: AvroType, writer: AvroType, path: str) -> bool:
        match reader.kind:
            case "array" | "map":
                assert reader.items is not None and writer.items is not None
                word = "items" if reader.kind == "array" else "values"
                return self.pair(reader.items, writer.items, f"{path}/{word}")
            case "union":
                return self._unions(reader, writer, path)
            case "fixed":
                named = self._names(reader, writer, path)
                if reader.size == writer.size:
                    return named
                text = f"The reader's {reader.name} has {reader.size} bytes, the writer's has {writer.size}"
                return self._find("FIXED_SIZE_MISMATCH", f"{path}/size", text)
            case "enum":
                return self._enums(reader, writer, path)
            case "record" | "error":
                named = self._names(reader, writer, path)
                return self._fields(reader, writer, path) and named
        return True

    def _unions(self, reader: AvroType, writer: AvroType, path: str) -> bool:
        fits = True
        for number, branch in enumerate(writer.branches):
            with_branch = self._quietly(reader, branch, f"{path}/{number}")
            if not with_branch:
                text = f"The reader's union has no branch that reads the writer's type {_label(branch)}"
                fits = self._find("MISSING_UNION_BRANCH", f"{path}/{number}", text)
        return fits

    def _union_reads(self, reader: AvroType, writer: AvroType, path: str) -> bool:
        if any(self._quietly(branch, writer, path) for branch in reader.branches):
            return True
        text = f"The reader's union has no branch that reads the writer's type {_label(writer)}"
        return self._find("MISSING_UNION_BRANCH", path, text)

    def _quietly(self, reader: AvroType, writer: AvroType, path: str) -> bool:
        self._quiet += 1
        try:
            return self.pair(reader, writer, path)
        finally:
            self._quiet -= 1

    def _names(self, reader: AvroType, writer: AvroType, path: str) -> bool:
        if reader.simple_name == writer.simple_name or writer.name in reader.aliases:
            return True
        text = f"The reader's type is called {reader.name}, the writer's is called {writer.name}"
        return self._find("NAME_MISMATCH", f"{path}/name", text)

    def _enums(self, reader: AvroType, writer: AvroType, path: str) -> bool:
        named = self._names(reader, writer, path)
        self._budget.entries(len(writer.symbols) + len(reader.symbols))
        missing = sorted(set(writer.symbols) - set(reader.symbols))
        if not missing or reader.default is not None:
            return named
        text = (
            f"The reader's enum {reader.name} lacks the symbols {', '.join(missing[:20])}, and has no default"
        )
        return self._find("MISSING_ENUM_SYMBOLS", f"{path}/symbols", text)

    def _fields(self, reader: AvroType, writer: AvroType, path: str) -> bool:
        self._budget.entries(len(writer.fields) + sum(1 + len(each.aliases) for each in reader.fields))
        written = {field.name: field for field in writer.fields}
        fits = True
        for number, field in enumerate(reader.fields):
            where = f"{path}/fields/{number}"
            found = _writer_field(written, field, writer)
            if found is not None:
                fits = self.pair(field.type, found.type, f"{where}/type") and fits
            elif field.has_default:
                continue
            elif field.type.kind == "enum" and field.type.default is not None:
                fits = self.pair(field.type, writer, f"{where}/type") and fits
            else:
                text = (
                    f"The field '{field.name}' of the reader's record {reader.name} has no default, and the"
                    " writer's record lacks it"
                )
                fits = self._find("READER_FIELD_MISSING_DEFAULT_VALUE", where, text)
        return fits


def _writer_field(written: dict[str, Field], field: Field, writer: AvroType) -> Field | None:
    found = [written[name] for name in (field.name, *field.aliases) if name in written]
    if len(found) > 1:
        raise AmbiguousField(
            f"the field {field.name} matches several fields of the writer's record {writer.name} by its aliases"
        )
    return found[0] if found else None


def _label(one: AvroType) -> str:
    return one.name or one.kind
