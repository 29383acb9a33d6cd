"""The JDBC source on SQLite, PostgreSQL and MariaDB: new and changed rows arrive once, in their types."""

import contextlib
import itertools
import json
import sqlite3

import psycopg2
import pymysql
import pytest

from integration.connect_rest import eventually, running_worker
from integration.servers import PASSWORD, USER, running_mariadb, running_postgres
from ottla import KafkaConsumer
from ottla.testing.running import running_broker

JSON = "org.apache.kafka.connect.json.JsonConverter"


@pytest.fixture(scope="module")
def broker():
    with running_broker() as running:
        yield running


@pytest.fixture(scope="module")
def rest(broker):
    with running_worker(
        broker.bootstrap, client_id="jdbc", value_converter=JSON, key_converter=JSON
    ) as found:
        yield found


@pytest.fixture
def database(tmp_path):
    with contextlib.closing(sqlite3.connect(tmp_path / "shop.db")) as made:
        yield made


def payloads(broker, topic, most=None):
    with KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=700,
        isolation_level="read_committed",
    ) as consumer:
        return [json.loads(record.value) for record in itertools.islice(consumer, most)]


def rows(broker, topic, most=None):
    return [one["payload"] for one in payloads(broker, topic, most)]


def source(rest, name, url, **keys):
    given = {"connector.class": "io.confluent.connect.jdbc.JdbcSourceConnector", "connection.url": url}
    given |= {"topic.prefix": f"{name}-", "poll.interval.ms": "50"}
    given |= {key.replace("_", "."): value for key, value in keys.items()}
    code, answer = rest.call("POST", "/connectors", {"name": name, "config": given})
    assert code == 201, answer


def failure(rest, name):
    rest.await_states(name, "RUNNING", "FAILED")
    return rest.call("GET", f"/connectors/{name}/tasks/0/status")[1]["trace"].splitlines()[0]


def test_new_and_changed_rows_of_sqlite_arrive_once(rest, broker, database, tmp_path):
    database.execute(
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT NOT NULL, price REAL, changed TIMESTAMP NOT NULL)"
    )
    add = "INSERT INTO orders (item, price, changed) VALUES (?, ?, ?)"
    database.execute(add, ('a "quoted" pen', 1.5, "2026-01-01 10:00:00"))
    database.execute(add, ("ink", None, "2026-01-01 10:00:00.250"))
    database.commit()
    keys = {
        "mode": "timestamp+incrementing",
        "incrementing_column_name": "id",
        "timestamp_column_name": "changed",
    }
    source(rest, "shop", f"jdbc:sqlite:{tmp_path}/shop.db", **keys)
    eventually(lambda: len(rows(broker, "shop-orders")) == 2)
    database.execute("UPDATE orders SET price = 2.5, changed = '2026-01-02 00:00:00' WHERE id = 1")
    database.execute(add, ("nib", 0.1, "2026-01-03 00:00:00"))
    database.commit()
    eventually(lambda: len(rows(broker, "shop-orders")) == 4)
    found = payloads(broker, "shop-orders")
    assert [(one["payload"]["id"], one["payload"]["item"], one["payload"]["price"]) for one in found] == [
        (1, 'a "quoted" pen', 1.5),
        (2, "ink", None),
        (1, 'a "quoted" pen', 2.5),
        (3, "nib", 0.1),
    ]
    assert found[1]["payload"]["changed"] == 1767261600250
    assert found[0]["schema"]["name"] == "orders"
    assert [(one["field"], one["type"], one["optional"]) for one in found[0]["schema"]["fields"]] == [
        ("id", "int64", False),
        ("item", "string", False),
        ("price", "double", True),
        ("changed", "int64", False),
    ]
    _, offsets = rest.call("GET", "/connectors/shop/offsets")
    assert offsets["offsets"] == [
        {
            "partition": {"protocol": "1", "table": "orders"},
            "offset": {"incrementing": 3, "timestamp": 1767398400000, "timestamp_nanos": 0},
        }
    ]
    rest.call("DELETE", "/connectors/shop")


def test_bulk_reads_the_whole_table_again_and_a_query_reads_what_it_selects(rest, broker, database, tmp_path):
    database.execute("CREATE TABLE a (n INTEGER PRIMARY KEY)")
    database.executemany("INSERT INTO a VALUES (?)", [(1,), (2,), (3,)])
    database.commit()
    url = f"jdbc:sqlite:{tmp_path}/shop.db"
    source(rest, "bulk", url, mode="bulk", table_whitelist="a")
    eventually(lambda: [one["n"] for one in rows(broker, "bulk-a", 6)] == [1, 2, 3, 1, 2, 3])
    rest.call("DELETE", "/connectors/bulk")
    query = "SELECT n, n % 2 AS odd FROM a"
    keys = {"mode": "incrementing", "incrementing_column_name": "n"}
    source(rest, "asked", url, query=query, **keys)
    eventually(lambda: rows(broker, "asked-") == [{"n": 1, "odd": 1}, {"n": 2, "odd": 0}, {"n": 3, "odd": 1}])
    rest.call("DELETE", "/connectors/asked")


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"mode": "sometimes"}, "String must be one of: bulk, timestamp, incrementing"),
        ({"mode": "timestamp"}, "mode timestamp needs the name of a column"),
        ({"mode": "bulk", "connection.url": "jdbc:oracle:thin:@x"}, "there is no driver for oracle"),
        ({"mode": "bulk", "connection.url": "jdbc:sqlite:"}, "the address of SQLite needs a file"),
        ({"mode": "bulk", "query": "SELECT 1", "table.whitelist": "a"}, "query reads no tables"),
        ({"mode": "bulk", "db.timezone": "Mars/Base"}, "there is no such time zone"),
    ],
)
def test_contradictory_keys_are_refused_by_name(rest, keys, words):
    given = {
        "connector.class": "JdbcSource",
        "connection.url": "jdbc:sqlite:/x.db",
        "topic.prefix": "p",
        **keys,
    }
    code, answer = rest.call("POST", "/connectors", {"name": "bad", "config": given})
    assert code == 400 and words in answer["message"]


def test_a_nullable_column_a_missing_column_and_a_dropped_table_fail_with_a_sentence(
    rest, database, tmp_path
):
    database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, at TIMESTAMP)")
    database.commit()
    url = f"jdbc:sqlite:{tmp_path}/shop.db"
    source(rest, "nullable", url, mode="timestamp", timestamp_column_name="at")
    assert "column at of t can be null" in failure(rest, "nullable")
    source(rest, "absent", url, mode="incrementing", incrementing_column_name="no")
    assert "table t has no column no: its columns are id, at" in failure(rest, "absent")
    source(rest, "dropped", url, mode="incrementing")
    rest.await_states("dropped", "RUNNING", "RUNNING")
    database.execute("DROP TABLE t")
    database.commit()
    assert "no such table: t" in failure(rest, "dropped")
    for name in ("nullable", "absent", "dropped"):
        rest.call("DELETE", f"/connectors/{name}")


_TYPES = """CREATE TABLE things (id SERIAL PRIMARY KEY, small SMALLINT, big BIGINT, real4 REAL, real8 DOUBLE PRECISION,
 flag BOOLEAN, name VARCHAR(20), fee NUMERIC(10,2), bytes BYTEA, day DATE, clock TIME, at TIMESTAMP, doc JSONB,
 u UUID)"""


@pytest.mark.slow
def test_types_of_postgres_and_a_server_that_is_away(rest, broker):
    with running_postgres() as server:
        url = server.jdbc("postgresql", "shop")
        with contextlib.closing(
            psycopg2.connect(host="127.0.0.1", port=server.port, user=USER, dbname="shop")
        ) as made:
            made.autocommit = True
            cursor = made.cursor()
            cursor.execute(_TYPES)
            cursor.execute(
                "INSERT INTO things VALUES (1, 2, 3, 0.5, 0.25, true, 'né', 12.30, '\\x0001', '2026-01-02', '10:00', "
                "'2026-01-02 03:04:05.006', '{\"a\": 1}', '00000000-0000-0000-0000-000000000001')"
            )
            cursor.execute("INSERT INTO things (id) VALUES (2)")
            source(
                rest, "pg", url, mode="incrementing", connection_user=USER, table_include_list=r"public\.th.*"
            )
            eventually(lambda: len(rows(broker, "pg-things")) == 2)
            first, second = payloads(broker, "pg-things")
            assert first["payload"] == {
                "id": 1,
                "small": 2,
                "big": 3,
                "real4": 0.5,
                "real8": 0.25,
                "flag": True,
                "name": "né",
                "fee": "BM4=",
                "bytes": "AAE=",
                "day": 20455,
                "clock": 36000000,
                "at": 1767323045006,
                "doc": '{"a": 1}',
                "u": "00000000-0000-0000-0000-000000000001",
            }
            assert set(second["payload"].values()) == {2, None}
            types = {one["field"]: one["type"] for one in first["schema"]["fields"]}
            assert (types["small"], types["id"], types["real4"], types["fee"]) == (
                "int16",
                "int32",
                "float",
                "bytes",
            )
            cursor.execute("INSERT INTO things (id) SELECT generate_series(3, 60000)")
            eventually(
                lambda: (
                    rest.call("GET", "/connectors/pg/offsets")[1]["offsets"][0]["offset"]
                    == {"incrementing": 60000}
                )
            )
        found = rows(broker, "pg-things")
        assert [one["id"] for one in found] == list(range(1, 60001))
    rest.await_states("pg", "RUNNING", "RESTARTING")
    trace = rest.call("GET", "/connectors/pg/tasks/0/status")[1]["trace"]
    assert "things" in trace.splitlines()[0] or f"127.0.0.1:{server.port}/shop" in trace.splitlines()[0]
    rest.call("DELETE", "/connectors/pg")


@pytest.mark.slow
def test_rows_of_mariadb_and_a_wrong_password_that_is_not_shown(rest, broker):
    with running_mariadb() as server:
        with contextlib.closing(
            pymysql.connect(host="127.0.0.1", port=server.port, user="root", database="shop", autocommit=True)
        ) as made:
            made.cursor().execute(
                "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, n TINYINT, d DECIMAL(5,1), "
                "at DATETIME(3) NOT NULL, b BLOB)"
            )
            made.cursor().execute("INSERT INTO t VALUES (1, 7, 1.5, '2026-01-02 03:04:05.006', x'00ff')")
        keys = {"mode": "timestamp+incrementing", "timestamp_column_name": "at", "connection_user": USER}
        url = server.jdbc("mariadb", "shop")
        source(rest, "maria", url, connection_password=PASSWORD, **keys)
        eventually(
            lambda: (
                rows(broker, "maria-t") == [{"id": 1, "n": 7, "d": "Dw==", "at": 1767323045006, "b": "AP8="}]
            )
        )
        source(rest, "denied", url, connection_password="wrong-secret", **keys)
        sentence = failure(rest, "denied")
        assert "Access denied" in sentence
        assert "wrong-secret" not in json.dumps(rest.call("GET", "/connectors/denied/status")[1])
        for name in ("maria", "denied"):
            rest.call("DELETE", f"/connectors/{name}")
