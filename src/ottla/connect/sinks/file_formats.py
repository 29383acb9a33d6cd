"""Records as the bytes of one file: Parquet, JSON lines, CSV or Avro. Schemas become columns of Arrow."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from ottla.connect.config.definitions import ConfigValues
from ottla.connect.converters.json_converter import JsonConverter
from ottla.connect.converters.simple import java_string
from ottla.connect.data.arrow import arrow_field, arrow_value
from ottla.connect.data.columns import RecordColumns, array_of, with_default
from ottla.connect.data.record import SinkRecord
from ottla.connect.data.schema import ConnectValue, Struct, Type
from ottla.connect.failures import ConfigInvalid, DataError, TaskFailed

_JSON: Final = JsonConverter({"schemas.enable": "false"})


@dataclass(frozen=True, slots=True)
class FileFormat:
    """A kind of file."""

    extension: str
    needs_schema: bool
    encode: Callable[[Sequence[SinkRecord], ConfigValues], bytes]
    encode_columns: Callable[[Sequence[RecordColumns], ConfigValues], bytes] | None = None
    """The same file from records side by side, all with one schema. It may raise where records are needed."""


def _json(records: Sequence[SinkRecord], values: ConfigValues) -> bytes:
    lines = [_JSON.from_connect(one.topic, one.value_schema, one.value) or b"null" for one in records]
    return b"\n".join(lines) + b"\n"


def _json_of_columns(parts: Sequence[RecordColumns], values: ConfigValues) -> bytes:
    lines: list[bytes] = []
    for one in parts:
        lines += _JSON.side_to_bytes(one.topic, one.value).to_pylist()
    return b"\n".join(lines) + b"\n"


def _raw(records: Sequence[SinkRecord], values: ConfigValues) -> bytes:
    lines = [
        bytes(one.value)
        if isinstance(one.value, bytes)
        else java_string(one.value, one.value_schema).encode()
        for one in records
    ]
    return b"\n".join(lines) + b"\n"


def _table(records: Sequence[SinkRecord]) -> pa.Table:
    """The values as a table; all have the same schema."""
    schema = records[0].value_schema
    assert schema is not None
    if schema.type is Type.STRUCT:
        fields = [arrow_field(at.name, at.schema) for at in schema.fields]
        columns = [
            pa.array([arrow_value(at.schema, one.value.get(at.name)) for one in records], field.type)
            for at, field in zip(schema.fields, fields, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=pa.schema(fields))
    field = arrow_field("value", schema)
    return pa.Table.from_arrays(
        [pa.array([arrow_value(schema, one.value) for one in records], field.type)], schema=pa.schema([field])
    )


def _table_of_columns(parts: Sequence[RecordColumns]) -> pa.Table:
    """The same table from records side by side."""
    schema = parts[0].value.schema
    assert schema is not None
    if schema.type is Type.STRUCT:
        names, schemas = [at.name for at in schema.fields], [at.schema for at in schema.fields]
    else:
        names, schemas = ["value"], [schema]
    fields = [arrow_field(name, one) for name, one in zip(names, schemas, strict=True)]
    batches = []
    for part in parts:
        columns = part.value.columns
        if part.value.is_struct:
            columns = tuple(with_default(one, at) for one, at in zip(schemas, columns, strict=True))
        arrays = [array_of(one, at) for one, at in zip(schemas, columns, strict=True)]
        batches.append(pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields)))
    return pa.Table.from_batches(batches).combine_chunks()


def _parquet(table: pa.Table, values: ConfigValues) -> bytes:
    import pyarrow.parquet as pq

    out = io.BytesIO()
    pq.write_table(table, out, compression=values["parquet.codec"])
    return out.getvalue()


def _csv(table: pa.Table, values: ConfigValues) -> bytes:
    import pyarrow.csv as pc

    out = io.BytesIO()
    try:
        pc.write_csv(table, out)
    except pa.ArrowInvalid as error:
        raise DataError(f"CSV has no form for these records: {error}") from None
    return out.getvalue()


def _of_tables(
    encode: Callable[[pa.Table, ConfigValues], bytes],
) -> tuple[
    Callable[[Sequence[SinkRecord], ConfigValues], bytes],
    Callable[[Sequence[RecordColumns], ConfigValues], bytes],
]:
    """A format of tables, from records and from columns."""
    return (
        lambda records, values: encode(_table(records), values),
        lambda parts, values: encode(_table_of_columns(parts), values),
    )


def _avro(records: Sequence[SinkRecord], values: ConfigValues) -> bytes:
    try:
        import fastavro
    except ModuleNotFoundError:
        raise TaskFailed("Avro files need the library fastavro: pip install 'ottla[avro]'") from None
    from ottla.connect.converters.avro_converter import avro_of

    schema = records[0].value_schema
    assert schema is not None
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema(avro_of(schema, set())), [plain(one.value) for one in records])
    return out.getvalue()


def plain(value: ConnectValue) -> ConnectValue:
    """A Connect value as fastavro takes it."""
    if isinstance(value, Struct):
        return {at.name: plain(value.get(at.name)) for at in value.schema.fields}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    return value


FORMATS: Final[Mapping[str, FileFormat]] = {
    "json": FileFormat("json", False, _json, _json_of_columns),
    "parquet": FileFormat("parquet", True, *_of_tables(_parquet)),
    "csv": FileFormat("csv", True, *_of_tables(_csv)),
    "avro": FileFormat("avro", True, _avro),
    "bytes": FileFormat("bin", False, _raw),
}
_CLASSES: Final = {
    "JsonFormat": "json",
    "ParquetFormat": "parquet",
    "AvroFormat": "avro",
    "ByteArrayFormat": "bytes",
    "StringFormat": "bytes",
    "CsvFormat": "csv",
}


def format_of(name: str) -> FileFormat:
    """The format of a name or of Confluent's class."""
    found = FORMATS.get(_CLASSES.get(name.rpartition(".")[2], name.lower()))
    if found is None:
        raise ConfigInvalid(f"there is no format {name}: known are {', '.join(FORMATS)}")
    return found
