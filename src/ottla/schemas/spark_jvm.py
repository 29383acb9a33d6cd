"""`from_avro` without Python workers: Spark's own Avro reader, with the writer's schema that each record names.

The plan holds the schemas that the subject has when the column is made. Each is read into the reader's type.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from ottla.json_types import as_int, as_list, as_object, as_text
from ottla.registry import avro
from ottla.registry.avro_types import AvroType
from ottla.registry.compat.avro import AmbiguousField, compare
from ottla.registry.errors import InvalidSchema
from ottla.schemas import frames
from ottla.schemas.client import RegisteredSchema, Registry
from ottla.schemas.errors import SchemaError
from ottla.schemas.rules import active_rules, check_rules

if TYPE_CHECKING:
    from pyspark.sql import Column

_MAX_WRITERS: Final = 100
"""The newest versions of a subject that a plan holds: Spark compares a record's id with one after the other."""
_TO_THE_END: Final = 2**31 - 1
_OPTIONS: Final = {"datetimeRebaseMode": "CORRECTED"}
_TIMES: Final = (
    "timestamp-millis",
    "timestamp-micros",
    "local-timestamp-millis",
    "local-timestamp-micros",
)
_LOGICAL_TYPES: Final = {"int": ("date",), "long": _TIMES, "bytes": ("decimal",), "fixed": ("decimal",)}


def read_in_jvm(
    column: Column | str, registry: Registry, subject: str | None, text: str, *, permissive: bool
) -> Column:
    """The column, read by `from_avro` of the package spark-avro."""
    from pyspark.sql import Column, functions
    from pyspark.sql.avro.functions import from_avro

    if subject is None:
        raise SchemaError(
            "engine='jvm' needs a subject, to know the writers' schemas when the query is planned"
        )
    try:
        reader = avro.parse(text)
    except InvalidSchema as error:
        raise SchemaError(f"engine='jvm' cannot read into this schema: {error}") from None
    _check(reader.root, "")
    value = column if isinstance(column, Column) else functions.col(column)
    prefix = functions.substring(value, 1, frames.PREFIX_BYTES)
    data = functions.substring(value, frames.PREFIX_BYTES + 1, _TO_THE_END)
    found = functions.when(value.isNull(), None)
    for number, writer in _writers(registry, subject, reader.root):
        if permissive:
            read = _whole_or_null(data, writer, reader.text)
        else:
            read = from_avro(data, writer, {"avroSchema": reader.text, "mode": "FAILFAST", **_OPTIONS})
        found = found.when(prefix == functions.lit(frames.prefix(number)), read)
    return found.otherwise(_unknown(value, prefix, subject, permissive=permissive))


def _whole_or_null(data: Column, writer: str, reader: str) -> Column:
    """A record, or null if it cannot be read.

    It is read as an array of one: its end shows that the whole record was read, and null that it was not. Of a record
    alone, Spark would make a row of nulls. That takes twice the time.
    """
    from pyspark.sql import functions
    from pyspark.sql.avro.functions import from_avro

    array = functions.concat(functions.lit(b"\x02"), data, functions.lit(b"\x00"))
    options = {"avroSchema": _array_of(reader), "mode": "PERMISSIVE", **_OPTIONS}
    return functions.get(from_avro(array, _array_of(writer), options), 0)


def _unknown(value: Column, prefix: Column, subject: str, *, permissive: bool) -> Column:
    """What becomes of a record with an id that the plan does not have. It may be sound, so it is never null."""
    from pyspark.sql import functions

    number = functions.conv(functions.hex(functions.substring(value, 2, 4)), 16, 10)
    later = functions.concat(
        functions.lit("the schema id "),
        number,
        functions.lit(
            f" is none that the query can read: {subject} did not have it when the query was planned, or the reader's"
            " schema does not fit it. Start the query again, or use engine='python'"
        ),
    )
    no_id = functions.lit(
        "a record has no schema id before its data, so no serializer with a registry wrote it"
    )
    has_id = (functions.length(value) >= frames.PREFIX_BYTES) & prefix.startswith(functions.lit(b"\0"))
    return functions.when(has_id, functions.raise_error(later)).otherwise(
        functions.lit(None) if permissive else functions.raise_error(no_id)
    )


def _array_of(text: str) -> str:
    return f'{{"type":"array","items":{text}}}'


def _writers(registry: Registry, subject: str, reader: AvroType) -> Iterator[tuple[int, str]]:
    """Ids and schemas of a subject that the reader's schema can read, the newest first; deleted ones too."""
    path = f"/subjects/{quote(subject, safe='')}/versions"
    versions = as_list(registry.ask("GET", f"{path}?deleted=true", about=subject), "versions")
    seen: set[int] = set()
    for version in sorted((as_int(one) for one in versions), reverse=True)[:_MAX_WRITERS]:
        held = registry.ask_object("GET", f"{path}/{version}?deleted=true&format=resolved", about=subject)
        number = as_int(held.get("id"), "id")
        if number in seen or held.get("schemaType", "AVRO") != "AVRO":
            continue
        seen.add(number)
        rules = active_rules(as_object(held.get("ruleSet") or {}, "ruleSet"))
        check_rules(RegisteredSchema(number, "", subject=subject, rules=rules), "READ")
        try:
            writer = avro.parse(as_text(held.get("schema"), "schema"))
            if not compare(reader, writer.root):
                yield number, writer.text
        except (InvalidSchema, AmbiguousField):
            # Java refuses names and defaults that Avro does not allow. Records with it are refused by their id.
            continue


def _check(one: AvroType, path: str) -> None:
    """Refuse what Spark's reader makes other values of than the way through Python, or nothing at all."""
    logical = one.props.get("logicalType")
    if logical is not None and logical not in _LOGICAL_TYPES.get(one.kind, ()):
        raise _refused(path, f"the logical type {logical}")
    if one.kind in ("null", "error") or (one.kind == "union" and len(one.branches) != 2):
        raise _refused(path, f"the type {one.kind}")
    names = [field.name.lower() for field in one.fields]
    if len(set(names)) < len(names):
        raise _refused(path, "names that differ in upper case only")
    for field in one.fields:
        _check(field.type, f"{path}/{field.name}")
    for branch in one.branches:
        if branch.kind != "null":
            _check(branch, path)
    if one.items is not None:
        _check(one.items, f"{path}/items")


def _refused(path: str, what: str) -> SchemaError:
    return SchemaError(f"engine='jvm' does not read {what} (at {path or '/'}); use engine='python'")
