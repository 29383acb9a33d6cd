"""MariaDB changes: the snapshot, every change in Debezium's shape, once across restarts, and what goes wrong."""

import contextlib
import tempfile
from pathlib import Path

import pymysql
import pytest

from integration.connect_changes import arrived, changes, create, events, failure, worker
from integration.connect_rest import eventually
from integration.servers import PASSWORD, USER, running_mariadb
from ottla.testing.certificates import CertificateAuthority, write_pem, write_pkcs12
from ottla.testing.running import running_broker

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker():
    with running_broker() as running:
        yield running


@pytest.fixture(scope="module")
def server():
    with running_mariadb() as running:
        yield running


@pytest.fixture(scope="module")
def sql(server):
    with contextlib.closing(
        pymysql.connect(
            host="127.0.0.1",
            port=server.port,
            user="root",
            database="shop",
            autocommit=True,
            charset="utf8mb4",
        )
    ) as connection:
        yield connection.cursor()


@pytest.fixture(scope="module")
def rest(broker):
    with worker(broker) as found:
        yield found


def config(server, name, **keys):
    given = {
        "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
        "topic.prefix": name,
        "database.hostname": "127.0.0.1",
        "database.port": str(server.port),
        "database.user": USER,
        "database.password": PASSWORD,
        "table.include.list": rf"shop\.{name}",
    }
    return given | {key.replace("_", "."): value for key, value in keys.items()}


def test_snapshot_then_every_change_in_debezium_s_shape(rest, broker, server, sql):
    sql.execute("CREATE TABLE shape (id INT PRIMARY KEY, item VARCHAR(20) NOT NULL, note TEXT)")
    sql.execute("CREATE TABLE other (id INT PRIMARY KEY)")
    sql.execute("INSERT INTO shape VALUES (1, 'pen', NULL), (2, 'true', 'x')")
    create(rest, "shape", config(server, "shape", heartbeat_interval_ms="100"))
    arrived(rest, broker, "shape", "shape.shop.shape", 2)
    sql.execute("INSERT INTO shape VALUES (3, 'nib', 'ÿ')")
    sql.execute("INSERT INTO other VALUES (3)")
    sql.execute("UPDATE shape SET note = 'z' WHERE id = 1")
    sql.execute("UPDATE shape SET id = 30 WHERE id = 3")
    sql.execute("DELETE FROM shape WHERE id = 2")
    assert arrived(rest, broker, "shape", "shape.shop.shape", 9) == [
        ("r", None, {"id": 1, "item": "pen", "note": None}),
        ("r", None, {"id": 2, "item": "true", "note": "x"}),
        ("c", None, {"id": 3, "item": "nib", "note": "ÿ"}),
        ("u", {"id": 1, "item": "pen", "note": None}, {"id": 1, "item": "pen", "note": "z"}),
        ("d", {"id": 3, "item": "nib", "note": "ÿ"}, None),
        None,
        ("c", None, {"id": 30, "item": "nib", "note": "ÿ"}),
        ("d", {"id": 2, "item": "true", "note": "x"}, None),
        None,
    ]
    key, value, _ = events(broker, "shape.shop.shape")[2]
    assert key["payload"] == {"id": 3} and key["schema"]["name"] == "shape.shop.shape.Key"
    schema = value["schema"]
    assert (schema["name"], schema["version"]) == ("shape.shop.shape.Envelope", 2)
    assert schema["fields"][2]["name"] == "io.debezium.connector.mariadb.Source"
    source = value["payload"]["source"]
    expected = {
        "connector": "mariadb",
        "name": "shape",
        "snapshot": "false",
        "db": "shop",
        "table": "shape",
        "row": 0,
    }
    assert {key: source[key] for key in expected} == expected
    assert source["gtid"].startswith("0-1-") and source["server_id"] == 1 and source["pos"] > 4
    key, beat, _ = eventually(lambda: events(broker, "__debezium-heartbeat.shape", 1))[0]
    assert key["payload"] == {"serverName": "shape"} and beat["payload"]["ts_ms"] > 0
    # A heartbeat moves the offset past what other tables wrote.
    sql.execute("INSERT INTO other VALUES (4)")
    sql.execute("SELECT @@gtid_binlog_pos")
    (gtids,) = sql.fetchone()

    def offset():
        (found,) = rest.call("GET", "/connectors/shape/offsets")[1]["offsets"]
        assert found["partition"] == {"server": "shape"} and {"file", "pos", "ts_sec"} <= set(found["offset"])
        return found["offset"]["gtids"]

    eventually(lambda: offset() == gtids)
    rest.call("DELETE", "/connectors/shape")


POINT = {"x": 1.0, "y": 2.0, "wkb": "AQEAAAAAAAAAAADwPwAAAAAAAABA", "srid": None}
COLUMNS = {
    "id": ("BIGINT UNSIGNED", "18446744073709551615", -1, None),
    "t": ("TINYINT UNSIGNED", "255", 255, None),
    "m": ("MEDIUMINT", "-8388608", -8388608, None),
    "u": ("INT UNSIGNED", "4294967295", 4294967295, None),
    "f": ("FLOAT", "0.1", 0.1, None),
    "dd": ("DOUBLE", "0.1", 0.1, None),
    "n": ("DECIMAL(6,2)", "-12.30", "+zI=", "org.apache.kafka.connect.data.Decimal"),
    "d": ("DATE", "'2026-01-02'", 20455, "io.debezium.time.Date"),
    "z": ("DATE", "'0000-00-00'", None, "io.debezium.time.Date"),
    "ti": ("TIME(6)", "'-01:00:00'", -3_600_000_000, "io.debezium.time.MicroTime"),
    "dt": ("DATETIME", "'2026-01-02 03:04:05'", 1767323045000, "io.debezium.time.Timestamp"),
    "dt6": ("DATETIME(6)", "'2026-01-02 03:04:05.000006'", 1767323045000006, "io.debezium.time.MicroTimestamp"),
    "ts": ("TIMESTAMP NULL", "'2026-01-02 03:04:05'", "2026-01-02T03:04:05Z", "io.debezium.time.ZonedTimestamp"),
    "y": ("YEAR", "2026", 2026, "io.debezium.time.Year"),
    "b1": ("BIT(1)", "b'1'", True, None),
    "b10": ("BIT(10)", "b'1000000001'", "AQI=", "io.debezium.data.Bits"),
    "e": ("ENUM('sad','o''k')", "'o''k'", "o'k", "io.debezium.data.Enum"),
    "s": ("SET('a','b','c')", "'c,a'", "a,c", "io.debezium.data.EnumSet"),
    "s0": ("SET('a')", "''", "", "io.debezium.data.EnumSet"),
    "raw": ("VARBINARY(9)", "x'00ff'", "AP8=", None),
    "fix": ("BINARY(3)", "x'01'", "AQAA", None),
    "blob1": ("BLOB", "x'00ff'", "AP8=", None),
    "l1": ("VARCHAR(9) CHARACTER SET latin1", "'ü'", "ü", None),
    "lt": ("LONGTEXT", "'ü'", "ü", None),
    "uu": (
        *("UUID", "'00000000-0000-0000-0000-000000000001'", "00000000-0000-0000-0000-000000000001"),
        "io.debezium.data.Uuid",
    ),
    "ip": ("INET6", "'::1'", "::1", None),
    "p": ("POINT", "POINT(1, 2)", POINT, "io.debezium.data.geometry.Point"),
}  # fmt: skip


def test_types_are_debezium_s_in_the_snapshot_and_in_the_log(rest, broker, server, sql):
    sql.execute("SET sql_mode = '', time_zone = '+00:00'")
    listed = ", ".join(f"{name} {kind}" for name, (kind, *_) in COLUMNS.items())
    sql.execute(f"CREATE TABLE kinds ({listed}, PRIMARY KEY (t, id)) CHARACTER SET utf8mb4")
    values = [text for _, text, *_ in COLUMNS.values()]
    sql.execute(f"INSERT INTO kinds VALUES ({', '.join(values)})")
    create(rest, "kinds", config(server, "kinds"))
    arrived(rest, broker, "kinds", "kinds.shop.kinds", 1)
    sql.execute(f"INSERT INTO kinds VALUES ({', '.join([values[0], '254', *values[2:]])})")
    read, created = arrived(rest, broker, "kinds", "kinds.shop.kinds", 2)
    assert read[2] == {name: value for name, (_, _, value, _) in COLUMNS.items()}
    assert created[2] == {**read[2], "t": 254}
    key, value, _ = events(broker, "kinds.shop.kinds")[1]
    assert list(key["payload"]) == ["t", "id"]
    names = {one["field"]: one.get("name") for one in value["schema"]["fields"][1]["fields"]}
    assert names == {name: schema for name, (*_, schema) in COLUMNS.items()}
    rest.call("DELETE", "/connectors/kinds")


def test_columns_change_between_two_rows(rest, broker, server, sql):
    """The log describes its tables itself, so that rows from before a change have the old columns."""
    sql.execute("CREATE TABLE alters (id INT PRIMARY KEY, a INT)")
    create(rest, "alters", config(server, "alters", snapshot_mode="no_data"))
    rest.await_states("alters", "RUNNING", "RUNNING")
    eventually(lambda: rest.call("GET", "/connectors/alters/offsets")[1]["offsets"])
    sql.execute("INSERT INTO alters VALUES (1, 1)")
    sql.execute("ALTER TABLE alters ADD COLUMN b VARCHAR(9) FIRST, DROP COLUMN a")
    sql.execute("INSERT INTO alters VALUES ('x', 2)")
    assert arrived(rest, broker, "alters", "alters.shop.alters", 2) == [
        ("c", None, {"id": 1, "a": 1}),
        ("c", None, {"b": "x", "id": 2}),
    ]
    rest.call("DELETE", "/connectors/alters")


@pytest.mark.parametrize("by_gtid", [True, False])
def test_each_change_arrives_once_across_restarts_and_cut_transactions(broker, server, sql, by_gtid):
    """Transactions are larger than a cycle, the worker ends in the middle, and logs are rotated between."""
    name = "once" if by_gtid else "placed"
    topic = f"{name}.shop.{name}"
    sql.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY, n INT NOT NULL, filler CHAR(200) DEFAULT 'x')")
    sql.execute(f"INSERT INTO {name} (id, n) SELECT seq, 1 FROM seq_1_to_500")
    given = config(server, name, column_exclude_list=rf"shop\.{name}\.filler")
    for step in (2, 3, 4):
        with worker(broker, ottla_cycle_max_records="37") as rest:
            create(rest, name, given)
            if not by_gtid and step > 2:
                change_offset(rest, name, gtids=None)
            sql.execute(f"UPDATE {name} SET n = %s", (step,))
            sql.execute("FLUSH BINARY LOGS")
            eventually(lambda step=step: len(changes(broker, topic)) >= 500 * (step - 2) + 300)
    with worker(broker, ottla_cycle_max_records="37") as rest:
        create(rest, name, given)
        sql.execute(f"DELETE FROM {name} WHERE id = 1")
        eventually(lambda: changes(broker, topic)[-1] is None)
    found = changes(broker, topic)
    versions = [(one[2]["id"], one[2]["n"]) for one in found if one is not None and one[2] is not None]
    assert len(versions) == len(set(versions)), "a row version arrived twice"
    for row in range(1, 501):
        own = [n for id, n in versions if id == row]
        assert own == list(range(own[0], 5)) and own[0] in (1, 2), f"row {row} has the versions {own}"


def change_offset(rest, name, **changes):
    """Sets the offset; without GTIDs a connector goes on by file and position."""
    rest.call("PUT", f"/connectors/{name}/stop")
    rest.await_states(name, "STOPPED")
    (stored,) = rest.call("GET", f"/connectors/{name}/offsets")[1]["offsets"]
    offset = {key: value for key, value in {**stored["offset"], **changes}.items() if value is not None}
    body = {"offsets": [{"partition": stored["partition"], "offset": offset}]}
    code, answer = rest.call("PATCH", f"/connectors/{name}/offsets", body)
    assert code == 200, answer
    rest.call("PUT", f"/connectors/{name}/resume")


def test_a_purged_log_never_becomes_a_silent_gap(rest, broker, server, sql):
    sql.execute("CREATE TABLE purged (id INT PRIMARY KEY)")
    sql.execute("INSERT INTO purged VALUES (1)")
    create(rest, "purged", config(server, "purged"))
    arrived(rest, broker, "purged", "purged.shop.purged", 1)
    rest.call("PUT", "/connectors/purged/stop")
    rest.await_states("purged", "STOPPED")
    sql.execute("INSERT INTO purged VALUES (2)")
    for _ in range(3):
        sql.execute("FLUSH BINARY LOGS")
    sql.execute("SHOW BINARY LOGS")
    last = sql.fetchall()[-1][0]
    eventually(lambda: _purge(sql, last))
    rest.call("PUT", "/connectors/purged/resume")
    assert "the server cannot give its binary log from GTIDs 0-1-" in failure(rest, "purged")
    assert len(changes(broker, "purged.shop.purged")) == 1
    rest.call("DELETE", "/connectors/purged")


def test_an_offset_that_another_kind_of_connector_wrote_is_named(rest, broker, server, sql):
    sql.execute("CREATE TABLE foreign_offset (id INT PRIMARY KEY)")
    sql.execute("INSERT INTO foreign_offset VALUES (1)")
    create(rest, "foreign_offset", config(server, "foreign_offset"))
    arrived(rest, broker, "foreign_offset", "foreign_offset.shop.foreign_offset", 1)
    change_offset(rest, "foreign_offset", gtids=None, file="", pos=4)
    assert "names no place in a binary log" in failure(rest, "foreign_offset")
    rest.call("DELETE", "/connectors/foreign_offset")


def _purge(sql, last):
    """Files that a reader has open are kept."""
    sql.execute(f"PURGE BINARY LOGS TO '{last}'")
    sql.execute("SHOW BINARY LOGS")
    return sql.fetchall()[0][0] == last


@pytest.mark.parametrize("setting", ["binlog_format", "binlog_row_image", "binlog_row_metadata"])
def test_settings_of_the_log_are_named_with_the_statement_that_mends_them(rest, server, sql, setting):
    good = "ROW" if setting == "binlog_format" else "FULL"
    bad = {"binlog_format": "MIXED", "binlog_row_image": "MINIMAL", "binlog_row_metadata": "MINIMAL"}[setting]
    sql.execute(f"SET GLOBAL {setting} = '{bad}'")
    try:
        create(rest, setting, config(server, setting))
        assert f"run SET GLOBAL {setting} = '{good}'" in failure(rest, setting)
    finally:
        sql.execute(f"SET GLOBAL {setting} = '{good}'")
        rest.call("DELETE", f"/connectors/{setting}")


def test_missing_rights_are_said(rest, server, sql):
    sql.execute("CREATE USER poor IDENTIFIED BY 'none'")
    sql.execute("GRANT SELECT ON shop.* TO poor")
    create(rest, "poor", config(server, "poor", database_user="poor", database_password="none"))
    assert "GRANT SELECT, RELOAD, SHOW DATABASES, REPLICATION SLAVE" in failure(rest, "poor")
    rest.call("DELETE", "/connectors/poor")


def test_truncate_is_a_change_unless_it_is_skipped(rest, broker, server, sql):
    sql.execute("CREATE TABLE emptied (id INT PRIMARY KEY)")
    sql.execute("INSERT INTO emptied VALUES (1)")
    create(rest, "emptied", config(server, "emptied", skipped_operations="none"))
    arrived(rest, broker, "emptied", "emptied.shop.emptied", 1)
    sql.execute("TRUNCATE TABLE `shop`.emptied")
    sql.execute("INSERT INTO emptied VALUES (2)")
    assert arrived(rest, broker, "emptied", "emptied.shop.emptied", 3)[1:] == [
        ("t", None, None),
        ("c", None, {"id": 2}),
    ]
    rest.call("DELETE", "/connectors/emptied")


@pytest.fixture
def open_folder():
    """A folder that the server's own user can read."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        path.chmod(0o755)
        yield path


def test_tls_to_the_server_is_verified(rest, broker, open_folder):
    ours, other = CertificateAuthority.create(), CertificateAuthority.create("another CA")
    identity = ours.issue("mariadb")
    certificate = write_pem(identity, open_folder / "server.pem")
    certificate.chmod(0o644)
    trusted = ours.write_truststore(open_folder / "trusted.pem")
    strange = write_pkcs12(other.issue("nobody"), open_folder / "strange.p12", "not-a-real-secret")
    with running_mariadb(f"--ssl-cert={certificate}", f"--ssl-key={certificate}") as server:
        login = {"host": "127.0.0.1", "port": server.port, "user": "root"}
        with contextlib.closing(pymysql.connect(**login, autocommit=True)) as connection:
            connection.cursor().execute(f"ALTER USER {USER} REQUIRE SSL")
            connection.cursor().execute("CREATE TABLE shop.tls (id INT PRIMARY KEY)")
            connection.cursor().execute("INSERT INTO shop.tls VALUES (1)")
            given = config(server, "tls", database_ssl_mode="verify_identity")
            create(rest, "tls", {**given, "database.ssl.truststore": str(trusted)})
            arrived(rest, broker, "tls", "tls.shop.tls", 1)
            connection.cursor().execute("INSERT INTO shop.tls VALUES (2)")
            arrived(rest, broker, "tls", "tls.shop.tls", 2)
            rest.call("DELETE", "/connectors/tls")
        store = {
            "database.ssl.truststore": str(strange),
            "database.ssl.truststore.password": "not-a-real-secret",
        }
        for name, keys, words in (
            ("plain", {"database.ssl.mode": "disabled"}, "Access denied"),
            ("strange", {"database.ssl.mode": "verify-ca", **store}, "certificate verify failed"),
            ("missing", {"database.ssl.mode": "required", "database.ssl.keystore": "/no"}, "cannot be read"),
        ):
            create(rest, name, {**config(server, "tls"), **keys})
            assert words in eventually(lambda name=name: trace(rest, name)), name
            rest.call("DELETE", f"/connectors/{name}")


def trace(rest, name):
    """The sentence of a task that failed, or that is tried again."""
    _, status = rest.call("GET", f"/connectors/{name}/status")
    return next((one["trace"].splitlines()[0] for one in status.get("tasks", []) if one.get("trace")), "")
