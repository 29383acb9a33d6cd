"""From a record to what happens to a row: which table, which key, which columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ottla.connect.config.definitions import ConfigValues
from ottla.connect.data import schema as schemas
from ottla.connect.data.record import SinkRecord
from ottla.connect.data.schema import ConnectValue, Schema, Struct, Type
from ottla.connect.databases.dialect import TableId
from ottla.connect.failures import DataError

_KAFKA_FIELDS: Final = ("__connect_topic", "__connect_partition", "__connect_offset")
_KAFKA_SCHEMAS: Final = (schemas.STRING, schemas.INT32, schemas.INT64)


@dataclass(frozen=True, slots=True)
class RowWrite:
    """A row to write, or to delete if `others` is None. Names have schemas and values, in order."""

    record: SinkRecord
    table: TableId
    keys: Mapping[str, tuple[Schema, ConnectValue]]
    others: Mapping[str, tuple[Schema, ConnectValue]] | None

    def columns(self) -> dict[str, Schema]:
        """All columns with their schemas."""
        return {name: one[0] for name, one in {**self.keys, **(self.others or {})}.items()}


class RowMaker:
    """Makes rows by the keys of a connector."""

    def __init__(self, values: ConfigValues) -> None:
        self._mode: str = values["pk.mode"]
        self._fields: list[str] = values["pk.fields"]
        self._format: str = values["table.name.format"]
        self._only = set(values["fields.whitelist"])
        self._delete: bool = values["delete.enabled"]

    def row(self, record: SinkRecord) -> RowWrite | None:
        """The row of a record; None for a deletion that is not wanted. DataError if it cannot be one."""
        value, schema = _after(record)
        table = self._table(record.topic)
        if value is None:
            if not self._delete:
                if record.value is None:
                    raise DataError(
                        f"record {_place(record)} has a null value: set delete.enabled=true with pk.mode=record_key, "
                        "or drop tombstones with a transform"
                    )
                return None
            return RowWrite(record, table, self._keys(record, None, None), None)
        if schema is None or not isinstance(value, Struct):
            raise DataError(
                f"record {_place(record)} has no struct with a schema as its value, which a table needs: use a "
                "converter with schemas"
            )
        keys = self._keys(record, value, schema)
        others = {
            at.name: (at.schema, value.get(at.name))
            for at in schema.fields
            if at.name not in keys and (not self._only or at.name in self._only)
        }
        return RowWrite(record, table, keys, others)

    def _table(self, topic: str) -> TableId:
        """A point in the format divides schema and table; points of a topic become underscores."""
        schema, _, name = self._format.rpartition(".")
        return TableId(name.replace("${topic}", topic.replace(".", "_")), schema)

    def _keys(
        self, record: SinkRecord, value: Struct | None, schema: Schema | None
    ) -> dict[str, tuple[Schema, ConnectValue]]:
        if self._mode == "none":
            return {}
        if self._mode == "kafka":
            names = self._fields or list(_KAFKA_FIELDS)
            if len(names) != 3:
                raise DataError("pk.mode=kafka takes three names in pk.fields: topic, partition and offset")
            values = (record.original_topic, record.original_partition, record.offset)
            return {name: (kind, one) for name, kind, one in zip(names, _KAFKA_SCHEMAS, values, strict=True)}
        if self._mode == "record_value":
            assert value is not None and schema is not None
            return self._of_struct(record, value, "value")
        return self._of_key(record)

    def _of_key(self, record: SinkRecord) -> dict[str, tuple[Schema, ConnectValue]]:
        key, schema = record.key, record.key_schema
        if key is None or schema is None:
            raise DataError(f"record {_place(record)} has no key with a schema, but pk.mode is record_key")
        if isinstance(key, Struct):
            return self._of_struct(record, key, "key")
        if len(self._fields) != 1:
            raise DataError(f"record {_place(record)} has a plain key: name its one column in pk.fields")
        return {self._fields[0]: (schema, key)}

    def _of_struct(
        self, record: SinkRecord, found: Struct, what: str
    ) -> dict[str, tuple[Schema, ConnectValue]]:
        names = self._fields or [at.name for at in found.schema.fields]
        for name in names:
            if not found.schema.has(name):
                raise DataError(
                    f"record {_place(record)} has no field {name} in its {what}, which pk.fields names"
                )
        return {name: (found.schema.field(name).schema, found.get(name)) for name in names}


def _after(record: SinkRecord) -> tuple[ConnectValue, Schema | None]:
    """The row of a record: of an envelope of Debezium, its state after the change."""
    value, schema = record.value, record.value_schema
    if (
        isinstance(value, Struct)
        and schema is not None
        and schema.type is Type.STRUCT
        and (schema.name or "").endswith(".Envelope")
        and schema.has("op")
        and schema.has("after")
    ):
        return value.get("after"), schema.field("after").schema
    return value, schema


def _place(record: SinkRecord) -> str:
    return f"{record.original_topic}-{record.original_partition}@{record.offset}"
