"""The JDBC sink: rows are inserted, changed and deleted once, tables are made and widened, bad rows set aside."""

import contextlib
import json
import pickle
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import psycopg2
import pymysql
import pytest

from integration.connect_rest import eventually, running_worker
from integration.servers import PASSWORD, USER, running_mariadb, running_postgres
from ottla import KafkaConsumer, KafkaProducer
from ottla.connect.data.record import SinkRecord
from ottla.connect.data.schema import INT32, Struct, struct
from ottla.connect.failures import Retriable
from ottla.connect.plugins import Plugins
from ottla.connect.spi import Place, Range, SinkCycle
from ottla.testing.running import running_broker

JSON = "org.apache.kafka.connect.json.JsonConverter"
FIELDS = [
    {"field": "id", "type": "int32", "optional": False},
    {"field": "name", "type": "string", "optional": True},
    {
        "field": "at",
        "type": "int64",
        "optional": True,
        "name": "org.apache.kafka.connect.data.Timestamp",
        "version": 1,
    },
    {
        "field": "fee",
        "type": "bytes",
        "optional": True,
        "name": "org.apache.kafka.connect.data.Decimal",
        "version": 1,
        "parameters": {"scale": "2"},
    },
]
KEY = {"type": "struct", "optional": False, "fields": FIELDS[:1]}


@pytest.fixture(scope="module")
def broker():
    with running_broker() as running:
        yield running


@pytest.fixture(scope="module")
def rest(broker):
    with running_worker(
        broker.bootstrap, client_id="jdbc-sink", value_converter=JSON, key_converter=JSON
    ) as found:
        yield found


def send(broker, topic, *rows, fields=FIELDS):
    """Rows with schemas; a row that is a number is a tombstone of that key."""
    schema = {"type": "struct", "optional": False, "fields": fields}
    with KafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
        for row in rows:
            number = row if isinstance(row, int) else row["id"]
            key = json.dumps({"schema": KEY, "payload": {"id": number}}).encode()
            value = None if isinstance(row, int) else json.dumps({"schema": schema, "payload": row}).encode()
            producer.send(topic, value, key=key)


def create(rest, name, url, **keys):
    given = {
        "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
        "connection.url": url,
        "topics": name,
    }
    given |= {"insert.mode": "upsert", "pk.mode": "record_key", "auto.create": "true", "auto.evolve": "true"}
    given |= {key.replace("_", "."): value for key, value in keys.items()}
    code, answer = rest.call("POST", "/connectors", {"name": name, "config": given})
    assert code == 201, answer


def becomes(rest, name, read, expected):
    """Waits for the rows of a table, unless the connector fails."""

    def same():
        _, status = rest.call("GET", f"/connectors/{name}/status")
        assert all(one["state"] != "FAILED" for one in status.get("tasks", [])), status
        with contextlib.suppress(Exception):
            return read() == expected
        return False

    eventually(same)


def story(rest, broker, name, url, query, **keys):
    """Upserts, deletes and a new column, on any database."""
    send(
        broker,
        name,
        {"id": 1, "name": "a", "at": 0, "fee": "BM4="},
        {"id": 2, "name": "it's", "at": None, "fee": None},
    )
    send(broker, name, {"id": 1, "name": "b", "at": 1767323045006, "fee": "BM4="})
    create(rest, name, url, delete_enabled="true", **keys)
    becomes(rest, name, lambda: query("SELECT id, name FROM {}"), [(1, "b"), (2, "it's")])
    wider = [*FIELDS, {"field": "more", "type": "double", "optional": True}]
    send(broker, name, {"id": 3, "name": "c", "at": None, "fee": None, "more": 0.5}, 2, fields=wider)
    becomes(rest, name, lambda: query("SELECT id, name, more FROM {}"), [(1, "b", None), (3, "c", 0.5)])
    offsets = query("SELECT topic, next_offset FROM ottla_connect_offsets WHERE 1 = 1 OR '{}' = ''")
    assert offsets == [(name, 5)]
    rest.call("DELETE", f"/connectors/{name}")


def test_rows_of_sqlite_are_upserted_deleted_and_widened(rest, broker, tmp_path):
    path = tmp_path / "out.db"

    def query(sql):
        with contextlib.closing(sqlite3.connect(path)) as database:
            return database.execute(sql.format("lite") + " ORDER BY 1").fetchall()

    story(rest, broker, "lite", f"jdbc:sqlite:{path}", query)
    assert query("SELECT id, at, fee FROM {}")[0] == (1, "2026-01-02 03:04:05.006", 12.3)


@pytest.mark.slow
def test_rows_of_postgres_are_upserted_deleted_and_widened(rest, broker):
    with running_postgres() as server:

        def query(sql):
            with contextlib.closing(
                psycopg2.connect(host="127.0.0.1", port=server.port, user=USER, dbname="shop")
            ) as database:
                cursor = database.cursor()
                cursor.execute(sql.format("pgrows") + " ORDER BY 1")
                return cursor.fetchall()

        story(rest, broker, "pgrows", server.jdbc("postgresql", "shop"), query, connection_user=USER)


@pytest.mark.slow
def test_rows_of_mariadb_are_upserted_deleted_and_widened(rest, broker):
    with running_mariadb() as server:

        def query(sql):
            with contextlib.closing(
                pymysql.connect(host="127.0.0.1", port=server.port, user="root", database="shop")
            ) as database:
                cursor = database.cursor()
                cursor.execute(sql.format("mrows") + " ORDER BY 1")
                return list(cursor.fetchall())

        keys = {"connection_user": USER, "connection_password": PASSWORD}
        story(rest, broker, "mrows", server.jdbc("mysql", "shop"), query, **keys)


def test_refused_rows_are_dead_letters_and_the_rest_is_written(rest, broker, tmp_path):
    path = tmp_path / "strict.db"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE strict (id INTEGER PRIMARY KEY, name TEXT CHECK (name <> 'bad'))")
    rows = [{"id": one, "name": "bad" if one in (3, 8) else "good"} for one in range(10)]
    send(broker, "strict", *rows, fields=FIELDS[:2])
    letters = {"errors_tolerance": "all", "errors_deadletterqueue_topic_name": "letters"}
    factor = {"errors_deadletterqueue_topic_replication_factor": "1"}
    create(rest, "strict", f"jdbc:sqlite:{path}", **letters, **factor)

    def ids():
        with contextlib.closing(sqlite3.connect(path)) as database:
            return [one for (one,) in database.execute("SELECT id FROM strict ORDER BY id")]

    becomes(rest, "strict", ids, [0, 1, 2, 4, 5, 6, 7, 9])
    with KafkaConsumer(
        "letters", bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=1000
    ) as consumer:
        assert [json.loads(one.value)["payload"]["id"] for one in consumer] == [3, 8]
    rest.call("DELETE", "/connectors/strict")


def test_a_missing_table_a_null_value_and_no_schema_fail_with_a_sentence(rest, broker, tmp_path):
    url = f"jdbc:sqlite:{tmp_path}/none.db"
    send(broker, "absent", {"id": 1, "name": "a"}, fields=FIELDS[:2])
    create(rest, "absent", url, auto_create="false")
    send(broker, "tombs", 1)
    create(rest, "tombs", url)
    with KafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send("plain", b'{"schema":null,"payload":{"id":1}}')
    create(rest, "plain", url)
    for name, words in (
        ("absent", "there is no table absent: create it, or set auto.create=true"),
        ("tombs", "record tombs-0@0 has a null value: set delete.enabled=true"),
        ("plain", "record plain-0@0 has no struct with a schema as its value"),
    ):
        rest.await_states(name, "RUNNING", "FAILED")
        assert words in rest.call("GET", f"/connectors/{name}/tasks/0/status")[1]["trace"]
        rest.call("DELETE", f"/connectors/{name}")


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"delete.enabled": "true"}, "deletions need pk.mode=record_key"),
        ({"insert.mode": "upsert"}, "insert.mode=upsert needs a primary key"),
        ({"pk.mode": "some"}, "String must be one of: none, kafka, record_key, record_value"),
    ],
)
def test_contradictory_keys_are_refused(rest, keys, words):
    given = {"connector.class": "JdbcSink", "connection.url": "jdbc:sqlite:/x.db", "topics": "t", **keys}
    code, answer = rest.call("POST", "/connectors", {"name": "bad", "config": given})
    assert code == 400 and words in answer["message"]


def ranges_story(kind, server):
    """Tasks of a job write side by side, each twice: one table, each row once, and an old run is refused."""
    connection = {
        "connection.url": server.jdbc(kind, "shop"),
        "connection.user": USER,
        "connection.password": PASSWORD,
    }
    given = {
        "name": "ranges",
        "topics": "r",
        "table.name.format": "ranged",
        "auto.create": "true",
        **connection,
    }
    sink = Plugins().connector("io.confluent.connect.jdbc.JdbcSinkConnector")(given)
    fields = struct([("part", INT32), ("id", INT32)])
    parts = tuple(Range("r", part, 0, 50) for part in range(3))
    cycle = SinkCycle("ranges", 0, 1, parts)

    def records(part):
        for offset in range(part.start, part.end):
            row = Struct(fields, {"part": part.partition, "id": offset})
            yield SinkRecord("r", row, fields, partition=part.partition, offset=offset)

    def refuse(record, error):
        raise error

    def task(part):
        writer = pickle.loads(pickle.dumps(sink.writer()))
        for _ in range(2):
            assert writer.write_range(cycle, part, records(part), refuse) == "written"

    main = sink.writer()
    assert main.parallel
    assert main.positions([Place("r", 0)], 0) == {}
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(task, parts))
    main.commit(cycle, ["written"] * 3)
    assert main.positions([Place("r", part) for part in range(3)], 0) == {
        Place("r", part): 50 for part in range(3)
    }
    later = Range("r", 0, 20, 80)
    with pytest.raises(Retriable, match="is at offset 50 of r-0, but this run is at 20"):
        sink.writer().write_range(SinkCycle("ranges", 0, 2, (later,)), later, records(later), refuse)
    rewound = Range("r", 0, 0, 10)
    sink.writer().write_range(SinkCycle("ranges", 1, 1, (rewound,)), rewound, records(rewound), refuse)
    assert main.positions([Place("r", 0)], 1) == {Place("r", 0): 10}
    with pytest.raises(Retriable, match="another run of connector ranges"):
        next_one = Range("r", 0, 50, 60)
        sink.writer().write_range(SinkCycle("ranges", 0, 2, (next_one,)), next_one, records(next_one), refuse)
    main.stop()


def counted(connect):
    with contextlib.closing(connect()) as database:
        cursor = database.cursor()
        cursor.execute("SELECT part, count(*), count(DISTINCT id) FROM ranged GROUP BY part ORDER BY part")
        return [tuple(row) for row in cursor.fetchall()]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["postgresql", "mysql"])
def test_tasks_write_ranges_side_by_side_and_once(kind):
    with running_postgres() if kind == "postgresql" else running_mariadb() as server:
        ranges_story(kind, server)
        login = {"host": "127.0.0.1", "port": server.port}
        if kind == "postgresql":
            found = counted(lambda: psycopg2.connect(**login, user=USER, dbname="shop"))
        else:
            found = counted(lambda: pymysql.connect(**login, user="root", database="shop"))
    assert found == [(0, 60, 50), (1, 50, 50), (2, 50, 50)]
