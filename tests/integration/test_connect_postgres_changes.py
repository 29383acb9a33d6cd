"""PostgreSQL changes: the snapshot, every change in Debezium's shape, once across restarts, and what goes wrong."""

import contextlib

import psycopg2
import pytest

from integration.connect_changes import arrived, changes, create, events, failure, worker
from integration.connect_rest import eventually
from integration.servers import USER, running_postgres
from ottla.testing.running import running_broker

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker():
    with running_broker() as running:
        yield running


@pytest.fixture(scope="module")
def server():
    with running_postgres() as running:
        yield running


@pytest.fixture(scope="module")
def sql(server):
    with contextlib.closing(
        psycopg2.connect(host="127.0.0.1", port=server.port, user=USER, dbname="shop")
    ) as connection:
        connection.autocommit = True
        yield connection.cursor()


@pytest.fixture(scope="module")
def rest(broker):
    with worker(broker) as found:
        yield found


def config(server, name, **keys):
    given = {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "topic.prefix": name,
        "database.hostname": "127.0.0.1",
        "database.port": str(server.port),
        "database.user": USER,
        "database.dbname": "shop",
        "slot.name": f"{name}_slot",
        "publication.name": f"{name}_publication",
    }
    return given | {key.replace("_", "."): value for key, value in keys.items()}


def test_snapshot_then_every_change_in_debezium_s_shape(rest, broker, server, sql):
    sql.execute("CREATE TABLE orders (id INT PRIMARY KEY, item TEXT NOT NULL, note TEXT)")
    sql.execute("INSERT INTO orders VALUES (1, 'pen', NULL), (2, 'true', 'x')")
    create(rest, "shape", config(server, "shape", table_include_list=r"public\.orders"))
    arrived(rest, broker, "shape", "shape.public.orders", 2)
    sql.execute("INSERT INTO orders VALUES (3, 'nib', 'y')")
    sql.execute("UPDATE orders SET note = 'z' WHERE id = 1")
    sql.execute("UPDATE orders SET id = 30 WHERE id = 3")
    sql.execute("DELETE FROM orders WHERE id = 2")
    assert arrived(rest, broker, "shape", "shape.public.orders", 9) == [
        ("r", None, {"id": 1, "item": "pen", "note": None}),
        ("r", None, {"id": 2, "item": "true", "note": "x"}),
        ("c", None, {"id": 3, "item": "nib", "note": "y"}),
        ("u", None, {"id": 1, "item": "pen", "note": "z"}),
        ("d", {"id": 3, "item": "", "note": None}, None),
        None,
        ("c", None, {"id": 30, "item": "nib", "note": "y"}),
        ("d", {"id": 2, "item": "", "note": None}, None),
        None,
    ]
    key, value, _ = events(broker, "shape.public.orders")[2]
    assert key["payload"] == {"id": 3} and key["schema"]["name"] == "shape.public.orders.Key"
    schema = value["schema"]
    assert (schema["name"], schema["version"]) == ("shape.public.orders.Envelope", 2)
    fields = [one["field"] for one in schema["fields"]]
    assert fields == ["before", "after", "source", "transaction", "op", "ts_ms", "ts_us", "ts_ns"]
    assert schema["fields"][1]["name"] == "shape.public.orders.Value"
    source = value["payload"]["source"]
    expected = {
        "connector": "postgresql",
        "name": "shape",
        "snapshot": "false",
        "db": "shop",
        "schema": "public",
    }
    assert {key: source[key] for key in expected} == expected
    assert source["table"] == "orders" and source["txId"] > 0 and source["lsn"] > 0
    assert "__debezium.oldkey" in events(broker, "shape.public.orders")[6][2]
    (offset,) = rest.call("GET", "/connectors/shape/offsets")[1]["offsets"]
    assert offset["partition"] == {"server": "shape"}
    assert {"lsn", "lsn_proc", "lsn_commit", "txId", "ts_usec"} <= set(offset["offset"])
    rest.call("DELETE", "/connectors/shape")


def test_types_are_debezium_s_and_full_identity_has_the_old_row(rest, broker, server, sql):
    sql.execute("CREATE TYPE mood AS ENUM ('sad', 'ok')")
    sql.execute(
        "CREATE TABLE kinds (id BIGINT PRIMARY KEY, b BOOLEAN, f REAL, n NUMERIC(6,2), v NUMERIC, d DATE, t TIME, "
        "ts TIMESTAMP, ts3 TIMESTAMP(3), tz TIMESTAMPTZ, u UUID, j JSONB, raw BYTEA, m mood, a INT[], i INTERVAL)"
    )
    sql.execute("ALTER TABLE kinds REPLICA IDENTITY FULL")
    row = (
        "(%s, true, 0.5, 12.30, 1.234, '2026-01-02', '03:04:05.000006', '2026-01-02 03:04:05.000006', "
        "'2026-01-02 03:04:05.006', '2026-01-02 03:04:05+01', '00000000-0000-0000-0000-000000000001', "
        """'{"a": 1}', '\\x00ff', 'ok', '{1,NULL,3}', '1 day 00:00:01')"""
    )
    sql.execute(f"INSERT INTO kinds VALUES {row}", (1,))
    create(rest, "kinds", config(server, "kinds", table_include_list=r"public\.kinds"))
    arrived(rest, broker, "kinds", "kinds.public.kinds", 1)
    sql.execute(f"INSERT INTO kinds VALUES {row}", (2,))
    sql.execute("UPDATE kinds SET b = false WHERE id = 2")
    read, created, updated = arrived(rest, broker, "kinds", "kinds.public.kinds", 3)
    assert created[2] == {
        "id": 2,
        "b": True,
        "f": 0.5,
        "n": "BM4=",
        "v": {"scale": 3, "value": "BNI="},
        "d": 20455,
        "t": 11045000006,
        "ts": 1767323045000006,
        "ts3": 1767323045006,
        "tz": "2026-01-02T02:04:05.000000Z",
        "u": "00000000-0000-0000-0000-000000000001",
        "j": '{"a": 1}',
        "raw": "AP8=",
        "m": "ok",
        "a": [1, None, 3],
        "i": 86401000000,
    }
    assert read[2] == {**created[2], "id": 1}
    assert updated[1] == created[2] and updated[2] == {**created[2], "b": False}
    _, value, _ = events(broker, "kinds.public.kinds")[0]
    names = {one["field"]: one.get("name") for one in value["schema"]["fields"][1]["fields"]}
    assert names["ts"] == "io.debezium.time.MicroTimestamp" and names["ts3"] == "io.debezium.time.Timestamp"
    assert names["tz"] == "io.debezium.time.ZonedTimestamp" and names["m"] == "io.debezium.data.Enum"
    rest.call("DELETE", "/connectors/kinds")


def test_each_change_arrives_once_across_restarts_and_cut_transactions(broker, server, sql):
    """Transactions are larger than a cycle, the worker ends in the middle, and the snapshot overlaps the stream."""
    sql.execute("CREATE TABLE counts (id INT PRIMARY KEY, n INT NOT NULL)")
    sql.execute("INSERT INTO counts SELECT g, 0 FROM generate_series(1, 500) g")
    sql.execute("CREATE PUBLICATION once_publication FOR TABLE counts")
    sql.execute("SELECT pg_create_logical_replication_slot('once_slot', 'pgoutput')")
    sql.execute("UPDATE counts SET n = 1")  # in the slot and in the snapshot
    given = config(
        server, "once", table_include_list=r"public\.counts", publication_autocreate_mode="disabled"
    )
    for step in (2, 3, 4):
        with worker(broker, ottla_cycle_max_records="37") as rest:
            create(rest, "once", given)
            sql.execute("UPDATE counts SET n = %s", (step,))
            eventually(lambda step=step: len(changes(broker, "once.public.counts")) >= 500 * (step - 2) + 300)
    with worker(broker, ottla_cycle_max_records="37") as rest:
        create(rest, "once", given)
        sql.execute("DELETE FROM counts WHERE id = 1")
        eventually(lambda: changes(broker, "once.public.counts")[-1] is None)
    found = changes(broker, "once.public.counts")
    versions = [(one[2]["id"], one[2]["n"]) for one in found if one is not None and one[2] is not None]
    assert len(versions) == len(set(versions)), "a row version arrived twice"
    for row in range(1, 501):
        own = [n for id, n in versions if id == row]
        assert own == list(range(own[0], 5)) and own[0] in (1, 2), f"row {row} has the versions {own}"


def test_a_missing_slot_never_becomes_a_silent_new_snapshot(rest, broker, server, sql):
    sql.execute("CREATE TABLE gone (id INT PRIMARY KEY)")
    sql.execute("INSERT INTO gone VALUES (1)")
    create(
        rest, "gone", config(server, "gone", table_include_list=r"public\.gone", heartbeat_interval_ms="100")
    )
    arrived(rest, broker, "gone", "gone.public.gone", 1)
    key, value, _ = eventually(lambda: events(broker, "__debezium-heartbeat.gone", 1))[0]
    assert key["payload"] == {"serverName": "gone"} and value["payload"]["ts_ms"] > 0
    sql.execute("SELECT active FROM pg_replication_slots WHERE slot_name = 'gone_slot'")
    assert sql.fetchone() == (True,)
    rest.call("PUT", "/connectors/gone/stop")
    rest.await_states("gone", "STOPPED")
    eventually(lambda: not _active(sql, "gone_slot"))
    sql.execute("SELECT pg_drop_replication_slot('gone_slot')")
    rest.call("PUT", "/connectors/gone/resume")
    assert "slot gone_slot is gone: the changes since" in failure(rest, "gone")
    assert len(changes(broker, "gone.public.gone")) == 1
    rest.call("DELETE", "/connectors/gone")


def _active(sql, slot):
    sql.execute("SELECT active FROM pg_replication_slots WHERE slot_name = %s", (slot,))
    return sql.fetchone()[0]


def test_a_slot_in_use_and_missing_rights_are_said(rest, server, sql):
    sql.execute("CREATE ROLE poor LOGIN")
    create(rest, "poor", config(server, "poor", database_user="poor"))
    assert "ALTER ROLE poor REPLICATION" in failure(rest, "poor")
    sql.execute("SELECT pg_create_logical_replication_slot('other_slot', 'test_decoding')")
    create(rest, "other", config(server, "other"))
    assert "slot other_slot is one of test_decoding" in failure(rest, "other")
    create(rest, "nopub", config(server, "nopub", publication_autocreate_mode="disabled"))
    assert "run CREATE PUBLICATION" in failure(rest, "nopub")
    given = config(server, "UPPER")
    code, answer = rest.call("POST", "/connectors", {"name": "upper", "config": given})
    assert code == 400 and "the name of a slot has up to 63 small letters" in answer["message"]
    for name in ("poor", "other", "nopub"):
        rest.call("DELETE", f"/connectors/{name}")
