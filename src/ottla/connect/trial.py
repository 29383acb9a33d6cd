"""`ottla connect test`: what a source would write, shown step by step; nothing is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa

from ottla.connect.config.connector import validate_connector
from ottla.connect.converters.simple import java_string
from ottla.connect.data.record import ConnectRecord, SourceRecord
from ottla.connect.errors.tolerance import Tolerance
from ottla.connect.failures import ConnectError
from ottla.connect.plugins import Plugins
from ottla.connect.run.chain import Chain, ChainSpec
from ottla.connect.run.columns import records_of
from ottla.connect.spi import ReadLimit, SourceConnector
from ottla.connect.transforms.chain import build_chain

_JSON: Final = "org.apache.kafka.connect.json.JsonConverter"
_WORKER: Final = {"key.converter": _JSON, "value.converter": _JSON}
_TRIAL_BYTES: Final = 1 << 20


def trial(config: Mapping[str, str], count: int) -> Iterator[str]:
    """Lines that show the first records of a source and what becomes of them."""
    plugins = Plugins()
    validate_connector(plugins, dict(config)).raise_errors()
    made = plugins.connector(config["connector.class"])(config)
    if not isinstance(made, SourceConnector):
        raise ConnectError(
            "`ottla connect test` reads sources; for a sink, `ottla connect validate` checks its target"
        )
    reader = made.reader()
    try:
        start = reader.initial_offsets()
        end = reader.latest_offsets(start, ReadLimit(count, _TRIAL_BYTES))
        if end == start:
            yield "the source has nothing to read now"
            return
        shown = 0
        for split in reader.splits(start, end, 1):
            for found in reader.read(split):
                for record in records_of(found) if isinstance(found, pa.RecordBatch) else (found,):
                    yield from _steps(record, config, plugins)
                    shown += 1
                    if shown == count:
                        return
    finally:
        reader.stop()


def _steps(record: SourceRecord, config: Mapping[str, str], plugins: Plugins) -> Iterator[str]:
    yield f"read       {_line(record)}"
    current: ConnectRecord | None = record
    for stage in build_chain(config, plugins).stages:
        assert current is not None
        current = stage.apply(current)
        if current is None:
            yield f"dropped    by {stage.class_name.rpartition('.')[2]}"
            return
        yield f"{stage.class_name.rpartition('.')[2]:<10} {_line(current)}"
    chain = Chain(ChainSpec("test", config, _WORKER))
    chain.tolerance = Tolerance("test")
    row = chain.to_row(record)
    if row is not None:
        yield f"written    topic={row[0]} key={row[2]!r} value={row[3]!r}"


def _line(record: ConnectRecord) -> str:
    key = "" if record.key is None else f" key={java_string(record.key, record.key_schema)}"
    return f"topic={record.topic}{key} value={java_string(record.value, record.value_schema)}"
