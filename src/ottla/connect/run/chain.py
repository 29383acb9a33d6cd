"""From a reader's records to rows for Kafka, and from fetched rows to records for a writer: converters and transforms.

A `ChainSpec` is plain data: Spark's tasks build the chain from it.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import pyarrow as pa

from ottla.connect.config.definitions import kafka_keys
from ottla.connect.converters.base import Converter
from ottla.connect.data.columns import FALLS_BACK, NotByColumns, RecordColumns, Side, all_null, side_of
from ottla.connect.data.record import ConnectRecord, Headers, SinkRecord, SourceRecord
from ottla.connect.data.schema import ConnectValue, Type
from ottla.connect.errors.tolerance import Stage, Tolerance
from ottla.connect.plugins import Plugins, PluginSpec
from ottla.connect.run.columns import (
    Row,
    about,
    by_topic,
    columns_batch,
    columns_of,
    columns_of_batch,
    joined,
    records_of,
    rows_batch,
    runs_of,
)
from ottla.connect.spi import Read
from ottla.connect.transforms.chain import build_chain, by_columns

_logger = logging.getLogger(__name__)

_ROWS_TOGETHER: Final = 10_000
_BYTES_TOGETHER: Final = 4 << 20
_RECORDS_TOGETHER: Final = 1000
"""Records of a source that are transformed together."""
_BATCHES_TOGETHER: Final = 10
_SLICE: Final = 8192
"""Rows of a sink that are converted together; a part of them if one of them cannot be."""
_PARTS: Final = 16
_LEAST_SLICE: Final = 32

F = TypeVar("F")


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
        """Rows for Kafka. Records go through as columns where that gives the same bytes."""
        gather = self._gathered if self._transforms.stages else self._converted_at_once
        reads = iter(found)
        for one in reads:
            if isinstance(one, pa.RecordBatch):
                for part in by_topic(one):
                    yield from self._rows_of_batch(part)
                continue
            # Gives back the batch that ended the run of single records.
            batch = yield from gather(itertools.chain((one,), reads))
            for part in by_topic(batch) if batch is not None else ():
                yield from self._rows_of_batch(part)

    def _converted_at_once(
        self, found: Iterable[Read]
    ) -> Generator[pa.RecordBatch, None, pa.RecordBatch | None]:
        """The rows of records up to the next batch, without transforms: side by side they would gain nothing."""
        rows: list[Row] = []
        size = 0
        for one in found:
            if isinstance(one, pa.RecordBatch):
                if rows:
                    yield rows_batch(rows)
                return one
            row = self.to_row(one)
            if row is None:
                continue
            rows.append(row)
            size += len(row[2] or b"") + len(row[3] or b"")
            if len(rows) >= _ROWS_TOGETHER or size >= _BYTES_TOGETHER:
                yield rows_batch(rows)
                rows, size = [], 0
        if rows:
            yield rows_batch(rows)
        return None

    def _gathered(self, found: Iterable[Read]) -> Generator[pa.RecordBatch, None, pa.RecordBatch | None]:
        """The rows of records up to the next batch; runs of similar ones are transformed side by side."""
        waiting: list[pa.RecordBatch] = []
        records: list[SourceRecord] = []
        size = 0
        batch: pa.RecordBatch | None = None
        for one in found:
            if isinstance(one, pa.RecordBatch):
                batch = one
                break
            records.append(one)
            size += about(one)
            if len(records) >= _RECORDS_TOGETHER or size >= _BYTES_TOGETHER:
                waiting += self._rows_of(records)
                records = []
                if len(waiting) >= _BATCHES_TOGETHER or size >= _BYTES_TOGETHER:
                    yield joined(waiting)
                    waiting, size = [], 0
        waiting += self._rows_of(records)
        if waiting:
            yield joined(waiting)
        return batch

    def _rows_of(self, records: Sequence[SourceRecord]) -> Iterator[pa.RecordBatch]:
        for same in runs_of(records):
            rows = self._rows_by_columns(columns_of, same)
            if rows is None:
                made = [row for row in map(self.to_row, same) if row is not None]
                rows = rows_batch(made) if made else None
            if rows is not None and rows.num_rows:
                yield rows

    def _rows_of_batch(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        rows = self._rows_by_columns(columns_of_batch, batch)
        if rows is not None:
            if rows.num_rows:
                yield rows
            return
        for start in range(0, batch.num_rows, _ROWS_TOGETHER):
            made = [
                row
                for row in map(self.to_row, records_of(batch.slice(start, _ROWS_TOGETHER)))
                if row is not None
            ]
            if made:
                yield rows_batch(made)

    def _rows_by_columns(self, make: Callable[[F], RecordColumns], found: F) -> pa.RecordBatch | None:
        """The rows of records side by side; none at all if all are dropped, None if they must be taken one by one."""
        try:
            columns, done = self._transforms.apply_to_columns(make(found))
            if columns is None:
                return rows_batch([])
            if done < len(self._transforms.stages):
                return None
            key = self._bytes(self._key, columns.topic, columns.key)
            value = self._bytes(self._value, columns.topic, columns.value)
        except FALLS_BACK:
            return None
        return columns_batch(columns, key, value)

    def _bytes(self, converter: Converter, topic: str, side: Side) -> pa.Array:
        if side.schema is None and all_null(side.column):
            one = converter.from_connect(topic, None, None)
            return pa.array([one] * len(side.column), pa.binary())
        if not by_columns(converter, "from_connect", "side_to_bytes"):
            raise NotByColumns
        return converter.side_to_bytes(topic, side)

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
        for one in self.to_columns(batch):
            if isinstance(one, SinkRecord):
                yield one
            else:
                yield from one.records()

    def to_columns(self, batch: pa.RecordBatch) -> Iterator[SinkRecord | RecordColumns]:
        """The same records, side by side where all of a slice can be taken as a whole."""
        for start in range(0, batch.num_rows, _SLICE):
            yield from self._slice(batch.slice(start, _SLICE), _SLICE)

    def _slice(self, rows: pa.RecordBatch, size: int) -> Iterator[SinkRecord | RecordColumns]:
        try:
            columns = self._sink_columns(rows)
        except FALLS_BACK:
            # One record that is different should not cost the others their speed.
            smaller = min(size, rows.num_rows) // _PARTS
            if smaller < _LEAST_SLICE:
                yield from self.one_by_one(rows)
                return
            for start in range(0, rows.num_rows, smaller):
                yield from self._slice(rows.slice(start, smaller), smaller)
            return
        changed, done = self._transforms.apply_to_columns(columns)
        if changed is None:
            return
        if done == len(self._transforms.stages):
            yield changed
            return
        for record in changed.records():
            one = self._transforms.apply(record, self.tolerance, done)
            if one is not None:
                yield one

    def _sink_columns(self, rows: pa.RecordBatch) -> RecordColumns:
        """The converted records of a slice, which has one topic and partition."""
        headers = rows.column("headers")
        if headers.null_count != len(headers):
            raise NotByColumns
        topic = rows.column("topic")[0].as_py()
        times = rows.column("timestamp").cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
        return RecordColumns(
            topic,
            self._side(self._key, topic, rows.column("key")),
            self._side(self._value, topic, rows.column("value")),
            rows.column("partition"),
            times,
            rows,
        )

    def _side(self, converter: Converter, topic: str, data: pa.Array) -> Side:
        if data.null_count == len(data):
            schema, value = converter.to_connect(topic, None)
            if schema is not None and schema.type is Type.STRUCT:
                raise NotByColumns
            return side_of(schema, [value] * len(data))
        if not by_columns(converter, "to_connect", "bytes_to_side"):
            raise NotByColumns
        return converter.bytes_to_side(topic, data)

    def one_by_one(self, batch: pa.RecordBatch) -> Iterator[SinkRecord]:
        """The reference: each record converted and transformed by itself."""
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
