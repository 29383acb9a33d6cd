"""Transforms of headers: DropHeaders, HeaderFrom, InsertHeader; and Filter, which drops records."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.connect.converters.simple_header import parse_text
from ottla.connect.data.columns import RecordColumns
from ottla.connect.data.java_text import copied
from ottla.connect.data.record import Headers
from ottla.connect.data.schema import ConnectValue, Struct
from ottla.connect.failures import ConfigInvalid, DataError
from ottla.connect.transforms.base import Transformation
from ottla.connect.transforms.parts import OneSided, R, require_map, require_struct, struct_like


class Filter(Transformation):
    """Drops every record that it sees: give it a predicate."""

    definition = "Filter"

    def apply(self, record: R) -> R | None:
        return None

    def apply_to_columns(self, records: RecordColumns) -> RecordColumns | None:
        return None


class DropHeaders(Transformation):
    """Removes headers by name."""

    definition = "DropHeaders"

    def apply(self, record: R) -> R | None:
        names = set(self.values["headers"])
        kept = Headers(tuple(one for one in record.headers if one.key not in names))
        return record.with_changes(headers=kept)  # type: ignore[return-value]

    def apply_to_columns(self, records: RecordColumns) -> RecordColumns | None:
        return records


class InsertHeader(Transformation):
    """Adds a header with a fixed value, whose type follows from how it looks."""

    definition = "InsertHeader"

    def __init__(self, configs: Mapping[str, str]) -> None:
        super().__init__(configs)
        self._schema, self._value = parse_text(self.values["value.literal"])

    def apply(self, record: R) -> R | None:
        added = record.headers.add(self.values["header"], self._value, self._schema)
        return record.with_changes(headers=added)  # type: ignore[return-value]


class HeaderFrom(OneSided):
    """Copies or moves fields to headers."""

    definition = "HeaderFrom"

    def __init__(self, configs: Mapping[str, str]) -> None:
        super().__init__(configs)
        if len(self.values["fields"]) != len(self.values["headers"]):
            raise ConfigInvalid("'fields' config must have the same number of elements as 'headers' config.")
        self._pairs = list(zip(self.values["fields"], self.values["headers"], strict=True))
        self._move = self.values["operation"] == "move"

    def apply(self, record: R) -> R | None:
        schema, value = self.found(record)
        headers = record.headers
        purpose = f"header {'MOVE' if self._move else 'COPY'}"
        if schema is None:
            made: ConnectValue = copied(require_map(value, purpose))
            for name, header in self._pairs:
                headers = headers.add(header, value.get(name), None)
                if self._move:
                    made.pop(name, None)
            return self.changed(record, None, made).with_changes(headers=headers)  # type: ignore[return-value]
        struct = require_struct(value, purpose)
        changed, new = schema, struct
        if self._move:
            moved = set(self.values["fields"])
            fields = [(at.name, at.schema) for at in schema.fields if at.name not in moved]
            changed = self.remembered(schema) or self.remember(schema, struct_like(schema, fields))
            new = Struct(changed)
            for at in changed.fields:
                new.put(at.name, self.value_of(struct, at))
        for name, header in self._pairs:
            if not schema.has(name):
                raise DataError(f"Field does not exist: {name}")
            at = schema.field(name)
            headers = headers.add(header, self.value_of(struct, at), at.schema)
        return self.changed(record, changed, new).with_changes(headers=headers)  # type: ignore[return-value]
