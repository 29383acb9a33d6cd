"""Records side by side give what the reference gives record by record: the same records, bytes and dead letters."""

import datetime
import decimal
import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.connect.converters.json_converter import JsonConverter
from ottla.connect.data import schema as schemas
from ottla.connect.data.columns import RecordColumns
from ottla.connect.data.java_text import to_json
from ottla.connect.data.record import Headers, SourceRecord
from ottla.connect.data.schema import Struct
from ottla.connect.errors.tolerance import ToleranceExceeded
from ottla.connect.run.chain import Chain, ChainSpec
from ottla.connect.run.columns import rows_batch
from ottla.pipeline.decoding import SCHEMA

STORAGE = "org.apache.kafka.connect.storage.StringConverter"
JSON = "org.apache.kafka.connect.json.JsonConverter"
PACKAGE = "org.apache.kafka.connect.transforms"
CONVERTERS = "org.apache.kafka.connect.converters"
NAMES = ("a", "b", "c", "d")

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
PLAIN = [
    (schemas.INT8, st.integers(-(2**7), 2**7 - 1)),
    (schemas.INT32, st.integers(-(2**31), 2**31 - 1)),
    (schemas.INT64, st.integers(-(2**63), 2**63 - 1)),
    (schemas.FLOAT64, st.floats()),
    (schemas.FLOAT64, st.floats(-1000, 1000, width=16)),
    (schemas.FLOAT32, st.floats(width=32)),
    (schemas.BOOLEAN, st.booleans()),
    (schemas.STRING, st.text(st.characters(exclude_categories=["Cs"]), max_size=8)),
    (schemas.STRING, st.sampled_from(['"', "\\", "\n", "", "é", "2026-01-01", "12", "-0", "true", "\x01"])),
    (schemas.BYTES, st.binary(max_size=4)),
    (
        schemas.decimal_schema(2),
        st.integers(-(10**6), 10**6).map(lambda one: decimal.Decimal(one).scaleb(-2)),
    ),
    (schemas.DATE_SCHEMA, st.dates(datetime.date(1960, 1, 1))),
    (schemas.TIME_SCHEMA, st.integers(0, 86_399).map(lambda one: datetime.time(one // 3600, one // 60 % 60))),
    (
        schemas.TIMESTAMP_SCHEMA,
        st.integers(-(10**11), 10**12).map(lambda ms: EPOCH + datetime.timedelta(milliseconds=ms)),
    ),
]


@st.composite
def typed(draw, depth=0):
    """A schema, and a strategy of its values."""
    if depth < 1 and draw(st.integers(0, 9)) == 0:
        inner, values = draw(typed(depth=1))
        return schemas.array(inner), st.lists(values, max_size=2)
    if depth < 1 and draw(st.integers(0, 9)) == 0:
        inner, values = draw(typed(depth=1))
        outer = schemas.struct([("x", inner)])
        return outer, values.map(lambda one: Struct(outer, {"x": one}))
    schema, values = draw(st.sampled_from(PLAIN))
    kind = draw(st.integers(0, 3))
    if kind == 1:
        return schemas.optional(schema), st.one_of(st.none(), values)
    if kind == 2 and not (schema.type is schemas.Type.FLOAT64 or schema.type is schemas.Type.FLOAT32):
        default = draw(values)
        return schemas.changed(schema, default=default, optional=draw(st.booleans())), values
    return schema, values


@st.composite
def structs(draw):
    fields = [(name, draw(typed())) for name in draw(st.sampled_from([NAMES[:1], NAMES[:3], NAMES]))]
    schema = schemas.struct([(name, one) for name, (one, _) in fields])
    row = st.fixed_dictionaries({name: values for name, (_, values) in fields})
    return schema, row.map(lambda one: Struct(schema, one))


KINDS = st.sampled_from(["string", "int8", "int32", "int64", "float64", "float32", "boolean"])


@st.composite
def transform(draw):
    """The keys of one transform."""
    name, other = draw(st.sampled_from(NAMES)), draw(st.sampled_from(NAMES))
    side = draw(st.sampled_from(["Value", "Value", "Value", "Key"]))
    flag = str(draw(st.booleans())).lower()
    found = draw(
        st.sampled_from(
            [
                {"type": f"InsertField${side}", "static.field": "origin", "static.value": "x"},
                {
                    "type": f"InsertField${side}",
                    "topic.field": "t",
                    "partition.field": "p?",
                    "timestamp.field": "ts",
                },
                {"type": f"InsertField${side}", "offset.field": "o!"},
                {"type": f"ReplaceField${side}", "exclude": name},
                {"type": f"ReplaceField${side}", "include": f"{name},{other}", "renames": f"{name}:z"},
                {"type": f"MaskField${side}", "fields": f"{name},{other}"},
                {"type": f"MaskField${side}", "fields": name, "replacement": "7"},
                {"type": f"Cast${side}", "spec": f"{name}:{draw(KINDS)}"},
                {"type": f"Cast${side}", "spec": draw(KINDS)},
                {"type": f"ExtractField${side}", "field": name},
                {"type": f"HoistField${side}", "field": "outer"},
                {"type": f"SetSchemaMetadata${side}", "schema.name": "n", "schema.version": "2"},
                {
                    "type": f"TimestampConverter${side}",
                    "field": name,
                    "format": "yyyy-MM-dd",
                    "target.type": draw(st.sampled_from(["string", "unix", "Date", "Time", "Timestamp"])),
                },
                {"type": f"TimestampConverter${side}", "target.type": "unix"},
                {"type": f"Flatten${side}"},
                {"type": "ValueToKey", "fields": f"{name},{other}" if name != other else name},
                {"type": "RegexRouter", "regex": "(t)(.*)", "replacement": "$1-new-$2"},
                {"type": "TimestampRouter"},
                {"type": "Filter", "predicate": "p"},
                {"type": "InsertHeader", "header": "h", "value.literal": "1"},
                {"type": "DropHeaders", "headers": "h"},
                {"type": f"HeaderFrom${side}", "fields": name, "headers": "h", "operation": "copy"},
            ]
        )
    )
    if "predicate" not in found and draw(st.integers(0, 5)) == 0:
        found["predicate"] = "p"
    if "predicate" in found:
        found["negate"] = draw(st.sampled_from(["true", "false"]))
    if not found["type"].startswith(
        ("Filter", "Regex", "Timestamp", "Insert", "Flatten", "Set", "Header", "Drop")
    ):
        found["replace.null.with.default"] = flag
    return {**found, "type": f"{PACKAGE}.{found['type']}"}


PREDICATES = [
    {"type": f"{PACKAGE}.predicates.RecordIsTombstone"},
    {"type": f"{PACKAGE}.predicates.TopicNameMatches", "pattern": "t.*"},
    {"type": f"{PACKAGE}.predicates.HasHeaderKey", "name": "h"},
]


@st.composite
def chains(draw):
    """The keys of a connector's transforms."""
    stages = draw(st.lists(transform(), max_size=3))
    config = {"transforms": ",".join(f"s{number}" for number in range(len(stages)))} if stages else {}
    for number, stage in enumerate(stages):
        config |= {f"transforms.s{number}.{key}": value for key, value in stage.items()}
    if any("predicate" in one for one in stages):
        config["predicates"] = "p"
        config |= {f"predicates.p.{key}": value for key, value in draw(st.sampled_from(PREDICATES)).items()}
    return config


def chain_of(config, value, *, is_sink, **keys):
    worker = {"key.converter": STORAGE, "value.converter": value}
    worker |= {f"value.converter.{name.replace('_', '.')}": one for name, one in keys.items()}
    config = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dead", **config}
    return Chain(ChainSpec("test", config, worker, is_sink=is_sink))


def decoded(values, keys=None, headers=None, times=None):
    """A batch as `pipeline.decoding` gives it."""
    count = len(values)
    columns = {
        "key": keys or [None] * count,
        "value": values,
        "topic": ["topic"] * count,
        "partition": [3] * count,
        "offset": list(range(100, 100 + count)),
        "timestamp": [one * 1000 for one in times or range(count)],
        "timestampType": [0] * count,
        "headers": headers or [None] * count,
    }
    arrays = [pa.array(columns[field.name], pa.int64()).view(field.type) if field.name == "timestamp" else
              pa.array(columns[field.name], field.type) for field in SCHEMA]  # fmt: skip
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def shown(record):
    """Everything of a record. Texts also tell 1 from 1.0, and equal not-a-numbers from each other."""
    return repr(record)


def same_for_a_sink(config, batch, value, **keys):
    """Compares both ways; how many records came side by side."""
    whole, reference = (chain_of(config, value, is_sink=True, **keys) for _ in range(2))
    expected = [shown(one) for one in reference.one_by_one(batch)]
    assert [shown(one) for one in whole.to_records(batch)] == expected
    assert whole.tolerance.take_failures() == reference.tolerance.take_failures()
    assert whole.tolerance.skipped == reference.tolerance.skipped
    return sum(len(one) for one in whole.to_columns(batch) if isinstance(one, RecordColumns))


def same_for_a_source(config, records, value, **keys):
    whole, reference = (chain_of(config, value, is_sink=False, **keys) for _ in range(2))
    expected = [row for row in map(reference.to_row, records) if row is not None]
    found = [row for batch in whole.to_rows(records) for row in batch.to_pylist()]
    assert found == (rows_batch(expected).to_pylist() if expected else [])
    assert whole.tolerance.take_failures() == reference.tolerance.take_failures()


@given(chains(), structs(), st.data())
def test_json_with_schemas_for_a_sink(config, made, data):
    schema, values = made
    writer = JsonConverter()
    rows = data.draw(
        st.lists(values.map(lambda one: writer.from_connect("t", schema, one)), min_size=1, max_size=8)
    )
    rows = data.draw(st.lists(st.sampled_from(rows), min_size=1, max_size=40))
    if data.draw(st.integers(0, 3)) == 0:
        one = rows[0]
        odd = [None, b"", b"{}", one[:-1], one + b" ", one + b"}", one.replace(b":", b": ")]
        rows.insert(data.draw(st.integers(0, len(rows))), data.draw(st.sampled_from(odd)))
    same_for_a_sink(config, decoded(rows), JSON)


JSON_VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)),
    max_leaves=6,
)  # fmt: skip
DAMAGED = st.sampled_from(
    [b"", b" ", b"01", b"-0", b"-0.0", b"[-0.0]", b"1e400", b"1.5e3", b'"\\ud800"', b"1 2", b'{"a":1,"a":2}', b"\xff",
     b"NaN", b"nul", b"[" * 2000, b'"\x01"', b'{"a":007}', b"9223372036854775808", b"1E5", b'"\\u0000"']
)  # fmt: skip


JSON_TEXTS = st.one_of(JSON_VALUES.map(lambda one: json.dumps(one).encode()), DAMAGED)


@given(st.lists(JSON_TEXTS, min_size=1, max_size=20))
def test_json_without_schemas_for_a_sink(rows):
    same_for_a_sink({}, decoded(rows), JSON, schemas_enable="false")


@given(
    structs(),
    st.lists(st.dictionaries(st.sampled_from(NAMES), JSON_VALUES, max_size=4), min_size=1, max_size=6),
)
def test_json_that_does_not_fit_its_schema(made, payloads):
    head = to_json(JsonConverter().schema_json(made[0])).encode()
    rows = [b'{"schema":' + head + b',"payload":' + json.dumps(one).encode() + b"}" for one in payloads]
    same_for_a_sink({}, decoded(rows), JSON)


@given(chains(), st.lists(st.one_of(st.none(), st.binary(max_size=6)), min_size=1, max_size=30))
def test_strings_and_bytes_for_a_sink(config, rows):
    for converter in (STORAGE, f"{CONVERTERS}.ByteArrayConverter", f"{CONVERTERS}.LongConverter"):
        same_for_a_sink(config, decoded(rows, keys=rows[::-1]), converter)
    same_for_a_sink(config, decoded(rows), STORAGE, converter_encoding="ISO-8859-1")


@given(chains(), st.lists(st.tuples(structs(), st.integers(1, 40)), min_size=1, max_size=2), st.data())
def test_records_of_a_source(config, parts, data):
    records = []
    for (schema, values), count in parts:
        few = data.draw(st.lists(values, min_size=1, max_size=5))
        topic = data.draw(st.sampled_from(["t", "u"]))
        for number in range(count):
            headers = (
                Headers().add("h", "1", schemas.STRING) if data.draw(st.integers(0, 60)) == 0 else Headers()
            )
            value = few[number % len(few)]
            time = data.draw(st.sampled_from([None, 0, 1_700_000_000_000]))
            records.append(
                SourceRecord(topic, value, schema, f"k{number}", schemas.STRING, None, time, headers)
            )
    for enabled in ("true", "false"):
        same_for_a_source(config, records, JSON, schemas_enable=enabled)
    same_for_a_source(config, records, STORAGE)


def test_records_without_trouble_come_side_by_side():
    schema = schemas.struct([("a", schemas.INT64), ("b", schemas.OPTIONAL_STRING)])
    writer = JsonConverter()
    rows = [
        writer.from_connect("t", schema, Struct(schema, {"a": one, "b": str(one)})) for one in range(2000)
    ]
    transforms = {
        "transforms": "x,y,z",
        "transforms.x.type": f"{PACKAGE}.InsertField$Value",
        "transforms.x.offset.field": "o",
        "transforms.y.type": f"{PACKAGE}.Cast$Value",
        "transforms.y.spec": "a:string",
        "transforms.z.type": f"{PACKAGE}.ValueToKey",
        "transforms.z.fields": "a",
    }
    assert same_for_a_sink(transforms, decoded(rows), JSON) == 2000
    rows[1000] = b"not json"
    assert same_for_a_sink(transforms, decoded(rows), JSON) > 1800


def test_a_record_that_is_not_tolerated_stops_at_its_place():
    rows = [b"1"] * 50 + [b"x"] + [b"2"] * 50
    chain = chain_of({"errors.tolerance": "none"}, JSON, is_sink=True, schemas_enable="false")
    found = []
    with pytest.raises(ToleranceExceeded, match="topic-3 offset 150"):
        found.extend(one.offset for one in chain.to_records(decoded(rows)))


def test_headers_are_converted_record_by_record():
    headers = [None] * 20 + [[{"key": "h", "value": b"1"}]] + [None] * 20
    assert same_for_a_sink({}, decoded([b"x"] * 41, headers=headers), STORAGE) == 0
