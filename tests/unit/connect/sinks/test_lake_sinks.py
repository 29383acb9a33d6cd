"""Delta and Iceberg tables: each record is a row once, whatever is repeated, and columns grow with the records."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from ottla.connect.config.connector import validate_connector
from ottla.connect.data import schema as schemas
from ottla.connect.data.record import SinkRecord
from ottla.connect.data.schema import Schema, Struct
from ottla.connect.failures import DataError, Retriable, TaskFailed
from ottla.connect.plugins import Plugins
from ottla.connect.sinks.lake import LakeWriter
from ottla.connect.spi import Place, Range, SinkCycle
from ottla.json_types import JsonObject

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

ORDER = schemas.struct([("id", schemas.INT32), ("name", schemas.optional(schemas.STRING))])
DELTA = "ottla.connect.DeltaSink"
ICEBERG = "org.apache.iceberg.connect.IcebergSinkConnector"


class Lake:
    """One kind of table in a folder."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder = kind, folder
        own = {
            "delta": {"connector.class": DELTA, "delta.table": f"{folder}/${{topic}}"},
            "iceberg": {
                "connector.class": ICEBERG,
                "iceberg.tables": "db.${topic}",
                "iceberg.tables.auto-create-enabled": "true",
                "iceberg.tables.evolve-schema-enabled": "true",
                "iceberg.catalog.type": "sql",
                "iceberg.catalog.uri": f"sqlite:///{folder}/catalog.db",
                "iceberg.catalog.warehouse": f"file://{folder}",
            },
        }
        self.config = {"name": "lake", "topics": "orders", **own[kind]}

    def writer(self, **keys: str) -> LakeWriter:
        config = {**self.config, **keys}
        assert validate_connector(Plugins(), config).errors() == []
        connector = Plugins().connector(config["connector.class"])(config)
        found = connector.writer()  # type: ignore[union-attr]
        assert isinstance(found, LakeWriter)
        return found

    def rows(self, topic: str = "orders") -> list[JsonObject]:
        if self.kind == "delta":
            from deltalake import DeltaTable

            table = DeltaTable(f"{self.folder}/{topic}").to_pyarrow_table()
        else:
            from pyiceberg.catalog import load_catalog

            keys = {
                key.removeprefix("iceberg.catalog."): one
                for key, one in self.config.items()
                if key.startswith("iceberg.catalog.")
            }
            table = load_catalog("iceberg", **keys).load_table(f"db.{topic}").scan().to_arrow()
        found: list[JsonObject] = table.to_pylist()
        return sorted(found, key=lambda row: str(row["id"]))


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(request.param, tmp_path)


def record(
    offset: int, value: JsonObject | None, schema: Schema = ORDER, topic: str = "orders"
) -> SinkRecord:
    made = Struct(schema, value) if value is not None else None
    return SinkRecord(
        topic, made, schema if made else None, offset=offset, original_topic="orders", original_partition=0
    )


def refuse(one: SinkRecord, error: Exception) -> None:
    raise error


def cycle(start: int, end: int, lineage: int = 0) -> SinkCycle:
    return SinkCycle("lake", lineage, 1, (Range("orders", 0, start, end),))


def run(writer: LakeWriter, start: int, *records: SinkRecord, lineage: int = 0) -> None:
    """A cycle of consecutive records."""
    one = cycle(start, start + len(records), lineage)
    writer.commit(one, [writer.write(one, iter(records), refuse)])


def order(number: int) -> SinkRecord:
    return record(number, {"id": number, "name": f"n{number}"})


def test_a_repeated_cycle_appends_only_what_is_missing_and_a_rewind_is_a_rewind(lake: Lake) -> None:
    writer = lake.writer()
    place = Place("orders", 0)
    assert writer.positions([place], 0) == {}
    run(writer, 0, order(0), order(1))
    assert lake.writer().positions([place], 0) == {place: 2}
    # Other borders than before the crash: only the third record is new.
    run(lake.writer(), 0, order(0), order(1), order(2))
    assert [row["id"] for row in lake.rows()] == [0, 1, 2]
    assert lake.writer().positions([place], 1) == {}
    run(lake.writer(), 0, order(0), lineage=1)
    assert [row["id"] for row in lake.rows()] == [0, 0, 1, 2]


def test_an_older_run_that_wakes_up_late_appends_nothing(lake: Lake) -> None:
    run(lake.writer(), 0, order(0))
    old, one = lake.writer(), cycle(1, 2)
    message = old.write(one, iter([order(1)]), refuse)
    run(lake.writer(), 1, order(1))
    with pytest.raises(Retriable, match="another run of connector lake"):
        old.commit(one, [message])
    assert [row["id"] for row in lake.rows()] == [0, 1]


def test_two_runs_that_commit_at_once_are_told_apart(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The older one has looked at the table before the newer one commits."""
    run(lake.writer(), 0, order(0))
    old, one = lake.writer(), cycle(1, 2)
    message = old.write(one, iter([order(1)]), refuse)
    name = "opened" if lake.kind == "delta" else "_opened"
    [table] = old._ready
    stale = getattr(old, name)(table)
    monkeypatch.setattr(old, name, lambda table: stale)
    run(lake.writer(), 1, order(1))
    with pytest.raises(Retriable, match="changed by another writer"):
        old.commit(one, [message])
    assert [row["id"] for row in lake.rows()] == [0, 1]


def test_columns_are_added_and_types_kept(lake: Lake) -> None:
    wide = schemas.struct(
        [
            ("id", schemas.INT64),
            ("at", schemas.TIMESTAMP_SCHEMA),
            ("day", schemas.DATE_SCHEMA),
            ("clock", schemas.TIME_SCHEMA),
            ("tags", schemas.array(schemas.STRING)),
            ("sizes", schemas.map_of(schemas.STRING, schemas.INT16)),
        ]
    )
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    value: JsonObject = {
        "id": 2, "at": moment, "day": moment.date(), "clock": moment.time(), "tags": ["x"], "sizes": {"s": 1},
    }  # type: ignore[dict-item]  # fmt: skip
    run(lake.writer(), 0, order(1))
    run(lake.writer(), 1, record(1, value, wide))
    first, second = lake.rows()
    assert first["name"] == "n1" and first["at"] is None
    assert second["at"] == moment and second["day"] == moment.date() and second["name"] is None
    assert second["tags"] == ["x"] and dict(second["sizes"]) == {"s": 1}  # type: ignore[arg-type]


def test_a_record_that_does_not_fit_is_refused_by_itself(lake: Lake) -> None:
    run(lake.writer(), 0, order(0))
    text = schemas.struct([("id", schemas.STRING)])
    refused: list[tuple[int, str]] = []
    writer, one = lake.writer(), cycle(1, 5)
    given = [
        order(1), record(2, {"id": "word"}, text), record(3, None), record(4, {"id": "4"}, text),
    ]  # fmt: skip
    writer.commit(
        one, [writer.write(one, iter(given), lambda at, error: refused.append((at.offset, str(error))))]
    )
    assert [row["id"] for row in lake.rows()] == [0, 1, 4]
    assert [offset for offset, _ in refused] == [3, 2]
    assert "null value, which no row can be" in refused[0][1] and "orders-0@2 does not fit" in refused[1][1]
    with pytest.raises(DataError, match="no struct with a schema"):
        writer.write(one, iter([SinkRecord("orders", {"id": 1}, offset=1)]), refuse)


def test_tables_and_columns_are_made_only_where_that_is_allowed(lake: Lake) -> None:
    keys = {
        "delta": ("delta.auto.create", "delta.evolve"),
        "iceberg": ("iceberg.tables.auto-create-enabled", "iceberg.tables.evolve-schema-enabled"),
    }
    create, evolve = keys[lake.kind]
    with pytest.raises(TaskFailed, match=f"set {create}=true"):
        run(lake.writer(**{create: "false"}), 0, order(0))
    run(lake.writer(), 0, order(0))
    more = schemas.struct([("id", schemas.INT32), ("extra", schemas.STRING)])
    with pytest.raises(TaskFailed, match=f"has no column extra: add it, or set {evolve}=true"):
        run(lake.writer(**{evolve: "false"}), 1, record(1, {"id": 1, "extra": "x"}, more))


def test_records_of_one_partition_in_several_tables_lose_nothing_when_one_commit_is_missing(
    lake: Lake,
) -> None:
    keys = {"transforms": "route", "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter"}
    keys |= {"transforms.route.regex": "x", "transforms.route.replacement": "y"}
    both = [order(0), record(1, {"id": 1, "name": "n"}, topic="late")]
    writer = lake.writer(**keys)
    one = cycle(0, 2)
    writer.write(one, iter(both), refuse)
    writer._ready.popitem()  # as if the worker died between the two commits
    writer.commit(one, [])
    again = lake.writer(**keys)
    assert again.positions([Place("orders", 0)], 0) == {}
    run(again, 0, *both)
    assert [row["id"] for row in lake.rows()] == [0] and [row["id"] for row in lake.rows("late")] == [1]


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"connector.class": DELTA}, "delta.table"),
        ({"connector.class": ICEBERG}, "write the tables that records go to"),
        ({"connector.class": ICEBERG, "iceberg.tables": "orders"}, "has no namespace"),
        (
            {"connector.class": ICEBERG, "iceberg.tables": "a.b", "iceberg.catalog.type": "hadoop"},
            "no catalog",
        ),
        ({"connector.class": ICEBERG, "iceberg.tables.dynamic-enabled": "true"}, "need the field"),
        (
            {
                "connector.class": ICEBERG,
                "iceberg.tables": "a.b",
                "iceberg.tables.upsert-mode-enabled": "true",
            },
            "appended only",
        ),
    ],
)
def test_bad_keys_get_a_sentence(keys: dict[str, str], sentence: str) -> None:
    config = {"name": "lake", "topics": "t", **keys}
    assert sentence in " ".join(validate_connector(Plugins(), config).errors())
