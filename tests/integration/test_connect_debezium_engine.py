"""Debezium's engine in a process of its own. PostgreSQL stands in for the databases that cannot run here: Ottla's own
connector reads the same tables, and both write the same events."""

import contextlib
import os
import signal

import psycopg2
import pytest

from integration.connect_changes import JSON, arrived, create, failure
from integration.connect_rest import eventually, running_worker
from integration.servers import PASSWORD, USER, running_postgres
from oracle import change_statements as statements
from oracle.debezium import compared, records
from oracle.kafka_tools import needs_java
from ottla.connect.config.connector import validate_connector
from ottla.connect.failures import Retriable, TaskFailed
from ottla.connect.plugins import Plugins
from ottla.connect.sources.debezium import program
from ottla.connect.sources.debezium.host import failure as failure_of
from ottla.pipeline.failures import JavaMissing
from ottla.testing.running import running_broker

ENGINE = "ottla.connect.DebeziumSource"
POSTGRES = "io.debezium.connector.postgresql.PostgresConnector"


@pytest.fixture(scope="module")
def broker():
    with running_broker() as running:
        yield running


@pytest.fixture(scope="module")
def server():
    """PostgreSQL, and the jars of its connector: they are fetched once, which may take a minute."""
    program.command(program.PRODUCTS[-3], [], [])
    with running_postgres() as running:
        yield running


@pytest.fixture(scope="module")
def cursor(server):
    login = {"host": "127.0.0.1", "port": server.port, "user": USER, "dbname": "shop"}
    with contextlib.closing(psycopg2.connect(**login)) as connection:
        connection.autocommit = True
        yield connection.cursor()


@pytest.fixture(scope="module")
def rest(broker):
    json = {"key_converter": JSON, "value_converter": JSON, "header_converter": JSON}
    with running_worker(
        broker.bootstrap, client_id="engine", ottla_restart_backoff_ms="100", **json
    ) as found:
        yield found


def keys(server, prefix, **more):
    given = {
        "database.hostname": "127.0.0.1",
        "database.port": str(server.port),
        "database.user": USER,
        "database.password": PASSWORD,
        "database.dbname": "shop",
        "plugin.name": "pgoutput",
        "topic.prefix": prefix,
        "slot.name": f"{prefix}_slot",
        "publication.name": f"{prefix}_publication",
    }
    return given | {name.replace("_", "."): value for name, value in more.items()}


def engine(server, prefix, **more):
    return keys(server, prefix, **more) | {"connector.class": ENGINE, "ottla.debezium.class": POSTGRES}


def engines():
    """The processes of engines that this process started."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{entry}/stat") as file:
            parent = int(file.read().rsplit(")", 1)[1].split()[1])
            with open(f"/proc/{entry}/cmdline", "rb") as words:
                if parent == os.getpid() and b"EngineHost" in words.read():
                    found.append(int(entry))
    return found


@pytest.mark.java
@pytest.mark.slow
@needs_java
def test_the_engine_s_events_are_those_of_ottla_s_connector(rest, broker, server, cursor):
    for line in statements.POSTGRES_BEFORE:
        cursor.execute(line)
    style = {
        "skipped_operations": "none",
        "extended_headers_enabled": "true",
        "schema_include_list": "public",
    }
    create(rest, "judge", engine(server, "judge", **style))
    create(rest, "ours", keys(server, "ours", **style) | {"connector.class": POSTGRES})
    for prefix in ("judge", "ours"):
        records(broker.bootstrap, f"{prefix}.public.weird", 1)

    def streaming():
        cursor.execute("SELECT count(*) FROM pg_replication_slots WHERE active AND NOT temporary")
        return cursor.fetchone()[0] == 2

    eventually(streaming)
    for line in statements.POSTGRES_AFTER:
        cursor.execute(line)
    found = []
    for table, count in statements.POSTGRES_COUNTS.items():
        if table == "ddl":
            count = 1
        java, ours = (records(broker.bootstrap, f"{one}.public.{table}", count) for one in ("judge", "ours"))
        found += [f"{table}: {line}" for line in compared(java, ours)]
    assert found == []
    for name in ("judge", "ours"):
        rest.call("DELETE", f"/connectors/{name}")


@pytest.mark.java
@pytest.mark.slow
@needs_java
def test_a_killed_engine_goes_on_and_a_stopped_one_where_it_was(rest, broker, server, cursor):
    cursor.execute("CREATE TABLE counts (id INT PRIMARY KEY, n FLOAT8)")
    cursor.execute("INSERT INTO counts VALUES (1, 'NaN'), (2, '-Infinity')")
    create(rest, "counts", engine(server, "counts", table_include_list="public.counts"))
    first = arrived(rest, broker, "counts", "counts.public.counts", 2)
    assert [(one[0], one[2]["n"]) for one in first] == [("r", "NaN"), ("r", "-Infinity")]
    for pid in engines():
        os.kill(pid, signal.SIGKILL)
    cursor.execute("UPDATE counts SET n = 1")
    assert arrived(rest, broker, "counts", "counts.public.counts", 4)[:2] == first
    rest.call("PUT", "/connectors/counts/stop")
    rest.await_states("counts", "STOPPED")
    eventually(lambda: not engines())
    (offset,) = rest.call("GET", "/connectors/counts/offsets")[1]["offsets"]
    assert offset["partition"] == {"server": "counts"}
    assert offset["offset"]["lsn"] > 0
    cursor.execute("DELETE FROM counts WHERE id = 1")
    rest.call("PUT", "/connectors/counts/resume")
    assert arrived(rest, broker, "counts", "counts.public.counts", 6)[4][0] == "d"
    rest.call("DELETE", "/connectors/counts")


@pytest.mark.java
@pytest.mark.slow
@needs_java
def test_debezium_checks_its_configurations_itself(rest, server):
    connector = Plugins().connector(ENGINE)
    good = connector(engine(server, "checked") | {"name": "checked"})
    (found,) = good.check()
    assert found.good
    assert found.text == f"Debezium 3.6.3.Final finds {POSTGRES} in order"
    (found,) = connector(engine(server, "checked") | {"name": "c", "database.port": "1"}).check()
    assert not found.good
    assert "refused" in found.text
    create(rest, "wrong", engine(server, "wrong", snapshot_mode="sometimes"))
    assert "snapshot.mode" in failure(rest, "wrong")
    rest.call("DELETE", "/connectors/wrong")


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"ottla.debezium.class": ""}, "name a class of Debezium"),
        ({"ottla.debezium.class": "org.example.Own"}, "name the jars of org.example.Own"),
        ({"ottla.debezium.jars": "ojdbc11"}, "is neither group:artifact:version nor a file"),
        ({"ottla.debezium.java.options": "'"}, "no words of a command line"),
        ({"topic.prefix": None}, "topic.prefix"),
    ],
)
def test_bad_keys_get_a_sentence(keys, sentence):
    given = {"name": "e", "connector.class": ENGINE, "ottla.debezium.class": POSTGRES, "topic.prefix": "e"}
    given = {key: value for key, value in (given | keys).items() if value is not None}
    assert sentence in " ".join(validate_connector(Plugins(), given).errors())


@pytest.mark.parametrize("name", ["sqlserver.SqlServerConnector", "OracleConnector", "Db2", "MongoDb"])
def test_debezium_s_names_are_known(name):
    full = f"io.debezium.connector.{name}" if "." in name else name
    config = {"name": "e", "connector.class": full, "topic.prefix": "e", "database.names": "shop"}
    result = validate_connector(Plugins(), config)
    assert result.errors() == []
    product = Plugins().connector(full)(config).product()
    assert product.class_name.startswith("io.debezium.connector.")
    assert product.version == "3.6.1.Final"


def test_the_plugins_are_the_engine_s_connectors():
    where = "ottla.connect.sources.debezium.source:DebeziumSource"
    known = {one.name: one.version for one in Plugins().specs("source") if one.where == where}
    del known[ENGINE]
    assert known == {
        one.class_name: one.version.removesuffix(".Final") for one in program.PRODUCTS[: len(known)]
    }
    assert len(program.PRODUCTS) == len(known) + 3


def test_a_missing_java_is_named(monkeypatch):
    def none():
        raise JavaMissing("Spark needs Java 17 or newer and found none")

    monkeypatch.setattr(program, "find_java", none)
    with pytest.raises(TaskFailed, match="Debezium's engine runs on Java: it needs Java 17 or newer"):
        program.command(program.PRODUCTS[0], [], [])


@pytest.mark.parametrize(
    ("chain", "kind", "text"),
    [
        ([("java.sql.SQLException", "08006", "gone")], Retriable, "ended: gone"),
        (
            [("a.B", "", "outer"), ("java.net.ConnectException", "", "refused")],
            Retriable,
            r"outer \(refused\)",
        ),
        ([("a.B", "", "a setting is wrong")], TaskFailed, "a setting is wrong"),
        ([("java.lang.NoClassDefFoundError", "", "oracle/jdbc/Driver")], TaskFailed, "ottla.debezium.jars"),
        ([], TaskFailed, "it gave no reason"),
    ],
)
def test_why_an_engine_ended_decides_whether_it_is_tried_again(chain, kind, text):
    with pytest.raises(kind, match=text):
        raise failure_of("", chain)
