"""Files have the same content, whether their records come side by side or one by one."""

import json

import pyarrow as pa
import pytest

from ottla.connect.converters.json_converter import JsonConverter
from ottla.connect.data import schema as schemas
from ottla.connect.data.columns import RecordColumns
from ottla.connect.data.schema import Struct
from ottla.connect.run.chain import Chain, ChainSpec
from ottla.connect.sinks.file_stream import FileStreamSink
from ottla.connect.sinks.files import FilesSink
from ottla.connect.spi import Range, SinkCycle
from ottla.pipeline.decoding import SCHEMA

STRING = "org.apache.kafka.connect.storage.StringConverter"
JSON = "org.apache.kafka.connect.json.JsonConverter"
ROW = schemas.struct(
    [
        ("id", schemas.INT64),
        ("name", schemas.changed(schemas.STRING, optional=True, default="nobody")),
        ("amount", schemas.optional(schemas.FLOAT64)),
        ("short", schemas.FLOAT32),
        ("day", schemas.optional(schemas.DATE_SCHEMA)),
    ]
)
COUNT = 200


def batch_of(values):
    count = len(values)
    columns = {
        "key": [None] * count,
        "value": values,
        "topic": ["t"] * count,
        "partition": [2] * count,
        "offset": list(range(count)),
        "timestamp": [0] * count,
        "timestampType": [0] * count,
        "headers": [None] * count,
    }
    return pa.RecordBatch.from_pydict(columns, schema=SCHEMA)


def json_rows(*, with_schema):
    writer = JsonConverter({"schemas.enable": str(with_schema).lower()})
    for number in range(COUNT):
        name = None if number % 7 == 0 else f'"{number}" é'
        row = Struct(ROW, {"id": number, "amount": number / 8 if number % 3 else None, "short": 0.5})
        yield writer.from_connect("t", ROW, row if name is None else row.put("name", name))


VALUES = {
    "string": (STRING, [f"line {number}".encode() for number in range(COUNT)]),
    "damaged text": (STRING, [b"a", b"\xff\xfe"] * COUNT),
    "tombstones": (STRING, [b"a", None] * COUNT),
    "json": (JSON, list(json_rows(with_schema=True))),
    "one that is no json": (JSON, [*json_rows(with_schema=True), b"{"]),
    "two schemas": (JSON, [*json_rows(with_schema=True), b'{"schema":{"type":"int64"},"payload":1}'] * 2),
}


def written(tmp_path, name, connector, kind, values, *, whole):
    """All files of a cycle, and what was refused."""
    config = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dead"}
    worker = {"key.converter": STRING, "value.converter": kind}
    chain = Chain(ChainSpec("test", config, worker, is_sink=True))
    folder = tmp_path / name
    folder.mkdir()
    writer = connector(folder).writer()
    writer.positions([], 0)
    cycle = SinkCycle("test", 0, 1, (Range("t", 2, 0, len(values)),))
    refused = []

    def refuse(record, error):
        refused.append((record.offset, str(error)))

    batch = batch_of(values)
    if whole:
        found = list(chain.to_columns(batch))
        message = writer.write_columns(cycle, iter(found), refuse)
    else:
        found = list(chain.one_by_one(batch))
        message = writer.write(cycle, iter(found), refuse)
    writer.commit(cycle, [message])
    files = {str(one.relative_to(folder)): one.read_bytes() for one in folder.rglob("*") if one.is_file()}
    failures = [(one.offset, one.message) for one in chain.tolerance.take_failures()]
    return files, refused, failures, [one for one in found if isinstance(one, RecordColumns)]


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("flush", ["0", "30"])
@pytest.mark.parametrize("kind", ["json", "parquet", "csv", "bytes"])
def test_files_are_the_same(tmp_path, kind, flush, values):
    def connector(folder):
        return FilesSink({"store.url": str(folder), "format.class": kind, "flush.size": flush})

    results = [
        written(tmp_path, name, connector, *VALUES[values], whole=name == "whole")
        for name in ("whole", "single")
    ]
    assert results[0][:3] == results[1][:3]
    assert results[0][0]
    if values in ("string", "json"):
        assert sum(map(len, results[0][3])) == COUNT


@pytest.mark.parametrize("values", VALUES)
def test_lines_are_the_same(tmp_path, values):
    def connector(folder):
        return FileStreamSink({"file": str(folder / "out.txt"), "topics": "t"})

    whole, single = (
        written(tmp_path, name, connector, *VALUES[values], whole=name == "whole")
        for name in ("whole", "single")
    )
    assert whole[:3] == single[:3]
    assert json.loads(whole[0]["out.txt.ottla"])["length"] == len(whole[0]["out.txt"]) > 0
