"""From a reader's records to rows for Kafka, and from fetched rows to records for a writer: converters and transforms.

A `ChainSpec` is plain data: Spark's tasks build the chain from it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from ottla.connect.config.definitions import kafka_keys
from ottla.connect.converters.base import Converter
from ottla.connect.converters.json_converter import JsonConverter
from ottla.connect.converters.simple import ByteArrayConverter, StringConverter
from ottla.connect.data.record import ConnectRecord, Headers, SinkRecord
from ottla.connect.data.schema import ConnectValue
from ottla.connect.errors.tolerance import Stage, Tolerance
from ottla.connect.plugins import Plugins, PluginSpec
from ottla.connect.run.columns import Row, records_of, rows_batch, size_of, topic_of
from ottla.connect.spi import Read
from ottla.connect.transforms.chain import build_chain

_logger = logging.getLogger(__name__)

_ROWS_TOGETHER: Final = 10_000
_BYTES_TOGETHER: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class ChainSpec:
    """What converters and transforms of a connector follow from."""

    connector: str
    config: Mapping[str, str] = field(repr=False)
    """The connector's keys, with providers' values filled in."""
    worker: Mapping[str, str] = field(repr=False)
    """The worker's keys of converters."""
    plugin_path: tuple[str, ...] = ()
    is_sink: bool = False


class Chain:
    """The converters and transforms of one connector, ready to use."""

    def __init__(self, spec: ChainSpec) -> None:
        self.spec = spec
        plugins = Plugins(spec.plugin_path)
        keys = kafka_keys("connector") | kafka_keys("sink" if spec.is_sink else "source")
        values = {name: one.value for name, one in keys.validate(spec.config).items()}
        self.tolerance = Tolerance.of(spec.connector, values)
        if not spec.is_sink:
            self.tolerance.keep_failures = bool(spec.config.get("errors.deadletterqueue.topic.name"))
        self._key, self._key_class = self._converter(plugins, "key.converter", "converter")
        self._value, self._value_class = self._converter(plugins, "value.converter", "converter")
        self._header, self._header_class = self._converter(plugins, "header.converter", "header_converter")
        self._transforms = build_chain(spec.config, plugins)

    def _converter(self, plugins: Plugins, key: str, kind: str) -> tuple[Converter, str]:
        """The connector's own converter with its own settings, else the worker's with the worker's."""
        config = self.spec.config if self.spec.config.get(key) else self.spec.worker
        name = config.get(key) or "org.apache.kafka.connect.storage.SimpleHeaderConverter"
        prefix = f"{key}."
        own = {one[len(prefix) :]: value for one, value in config.items() if one.startswith(prefix)}
        spec: PluginSpec = plugins.find(name, kind)
        made: Converter = spec.load()(own, is_key=key.startswith("key"))
        return made, spec.name

    # -- sources

    def to_rows(self, found: Iterable[Read]) -> Iterator[pa.RecordBatch]:
        """Rows for Kafka. Batches go through as columns where that gives the same bytes."""
        waiting: list[Row] = []
        size = 0
        for one in found:
            if isinstance(one, pa.RecordBatch):
                columns = self._as_columns(one)
                if columns is not None:
                    if waiting:
                        yield rows_batch(waiting)
                        waiting, size = [], 0
                    yield columns
                    continue
            for record in records_of(one) if isinstance(one, pa.RecordBatch) else (one,):
                row = self.to_row(record)
                if row is None:
                    continue
                waiting.append(row)
                size += size_of(record, row[2], row[3])
                if len(waiting) >= _ROWS_TOGETHER or size >= _BYTES_TOGETHER:
                    yield rows_batch(waiting)
                    waiting, size = [], 0
        if waiting:
            yield rows_batch(waiting)

    def _as_columns(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """The batch as columns for Kafka: text or bytes as they are, JSON by columns; None if there are transforms."""
        if self._transforms.stages:
            return None
        arrays, fields = [], []
        for name in batch.schema.names:
            column, kind = batch.column(name), batch.schema.field(name).type
            if name in ("key", "value"):
                converter = self._key if name == "key" else self._value
                if _passes(converter, kind):
                    column = column.cast(pa.binary())
                elif isinstance(converter, JsonConverter):
                    column = converter.from_column(batch.schema.field(name), column)
                else:
                    column = None
                if column is None:
                    return None
            arrays.append(column)
            fields.append(pa.field(name, column.type))
        if "topic" not in batch.schema.names:
            topic = pa.DictionaryArray.from_arrays(
                pa.array([0] * batch.num_rows, pa.int32()), pa.array([topic_of(batch)])
            )
            arrays.append(topic.cast(pa.string()))
            fields.append(pa.field("topic", pa.string()))
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def to_row(self, record: ConnectRecord) -> Row | None:
        """The row of a record; None if it is dropped or skipped."""
        one = self._transforms.apply(record, self.tolerance) if self._transforms.stages else record
        if one is None:
            return None
        if not one.headers.entries:
            try:
                return self._plain_row(one)
            except Exception as error:  # noqa: BLE001 - the way below says what it was
                _logger.debug("a record is converted again, step by step: %r", error)
        call = self.tolerance.call
        headers: list[tuple[str, bytes | None]] | None = None
        if one.headers.entries:
            good, headers = call(
                Stage.HEADER_CONVERTER, self._header_class, one, lambda: self._header_bytes(one)
            )
            if not good:
                return None
        good, key = call(
            Stage.KEY_CONVERTER,
            self._key_class,
            one,
            lambda: self._key.from_connect(one.topic, one.key_schema, one.key),
        )
        if not good:
            return None
        good, value = call(
            Stage.VALUE_CONVERTER,
            self._value_class,
            one,
            lambda: self._value.from_connect(one.topic, one.value_schema, one.value),
        )
        if not good:
            return None
        return one.topic, one.partition, key, value, one.timestamp, headers or []

    def _plain_row(self, one: ConnectRecord) -> Row:
        """The row of a record that is in order, which nearly all are."""
        key = self._key.from_connect(one.topic, one.key_schema, one.key)
        value = self._value.from_connect(one.topic, one.value_schema, one.value)
        return one.topic, one.partition, key, value, one.timestamp, []

    def _header_bytes(self, record: ConnectRecord) -> list[tuple[str, bytes | None]]:
        return [
            (one.key, self._header.from_header(record.topic, one.key, one.schema, one.value))
            for one in record.headers
        ]

    # -- sinks

    def to_records(self, batch: pa.RecordBatch) -> Iterator[SinkRecord]:
        """The records of a decoded batch (`pipeline.decoding`), converted and transformed."""
        times = batch.column("timestamp").cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
        columns = zip(
            *(batch.column(name).to_pylist() for name in ("topic", "partition", "offset", "key", "value")),
            times.to_pylist(),
            *(batch.column(name).to_pylist() for name in ("timestampType", "headers")),
            strict=True,
        )
        for topic, partition, offset, key, value, time_ms, kind, headers in columns:
            raw = SinkRecord(
                topic,
                partition=partition,
                timestamp=time_ms,
                offset=offset,
                timestamp_type="LogAppendTime" if kind else "CreateTime",
                original_topic=topic,
                original_partition=partition,
                original_key=key,
                original_value=value,
                original_headers=tuple((one["key"], one["value"]) for one in headers or ()),
            )
            converted = self._converted(raw)
            if converted is not None:
                changed = self._transforms.apply(converted, self.tolerance)
                if changed is not None:
                    yield changed

    def _converted(self, raw: SinkRecord) -> SinkRecord | None:
        topic = raw.topic
        found: list[ConnectValue] = []
        steps: tuple[tuple[Stage, str, Callable[[], ConnectValue]], ...] = (
            (Stage.KEY_CONVERTER, self._key_class, lambda: self._key.to_connect(topic, raw.original_key)),
            (
                Stage.VALUE_CONVERTER,
                self._value_class,
                lambda: self._value.to_connect(topic, raw.original_value),
            ),
            (Stage.HEADER_CONVERTER, self._header_class, lambda: self._headers(topic, raw.original_headers)),
        )
        for stage, class_name, step in steps:
            good, result = self.tolerance.call(stage, class_name, raw, step)
            if not good:
                return None
            found.append(result)
        (key_schema, key), (value_schema, value), headers = found
        changed: SinkRecord = raw.with_changes(  # type: ignore[assignment]
            key=key, key_schema=key_schema, value=value, value_schema=value_schema, headers=headers
        )
        return changed

    def _headers(self, topic: str, given: Iterable[tuple[str, bytes | None]]) -> Headers:
        headers = Headers()
        for name, data in given:
            schema, value = self._header.to_header(topic, name, data)
            headers = headers.add(name, value, schema)
        return headers


def _passes(converter: Converter, kind: pa.DataType) -> bool:
    """Whether a converter leaves the bytes of a column as they are."""
    if isinstance(converter, StringConverter):
        return kind == pa.string() and converter.encoding.upper().replace("_", "-") in ("UTF-8", "UTF8")
    return isinstance(converter, ByteArrayConverter) and kind == pa.binary()
