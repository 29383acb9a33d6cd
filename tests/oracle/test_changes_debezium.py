"""Debezium reads the same databases at the same time: its events and ours are equal, field by field.

Left out are times of processing, the version, the id of the run, and positions of a snapshot. What differs on purpose
stands in docs/reference/connect.md and not in these statements.
"""

from __future__ import annotations

import contextlib
import json
import random
import threading

import psycopg2
import pymysql
import pytest

from chaos.connect_workers import LONG, broker_process
from integration.connect_changes import JSON, create
from integration.connect_rest import Rest, eventually, running_worker
from integration.servers import PASSWORD, USER, running_mariadb, running_postgres
from oracle import change_statements as statements
from oracle.connect_worker_java import cluster_keys, java_worker
from oracle.debezium import all_records, compared, debezium_plugins, differences, records
from oracle.kafka_tools import needs_java
from ottla import KafkaConsumer, TopicPartition
from ottla.testing.running import running_broker

pytestmark = [pytest.mark.java, pytest.mark.slow, needs_java]

BROKERS = ["ottla", "apache"] if LONG else ["ottla"]
CONVERTERS = {"key.converter": JSON, "value.converter": JSON, "header.converter": JSON}


@pytest.fixture(scope="module")
def broker(request, tmp_path_factory):
    """Ottla, and Apache Kafka for the long form of the tests that move."""
    if getattr(request, "param", "ottla") == "apache":
        with broker_process(tmp_path_factory.mktemp("apache"), apache=True) as running:
            yield running
        return
    with running_broker() as running:
        yield running


@pytest.fixture(scope="module")
def pair(broker, tmp_path_factory):
    """Debezium in a Java worker, and a worker of ours."""
    folder = tmp_path_factory.mktemp("debezium")
    keys = {**cluster_keys(broker.bootstrap, "java"), **CONVERTERS}
    with (
        java_worker(folder, {**keys, "plugin.path": debezium_plugins(folder / "plugins")}) as url,
        running_worker(
            broker.bootstrap, client_id="ours", ottla_cycle_max_records="100", **CONVERTERS
        ) as ours,
    ):
        yield {"judge": Rest(url), "ours": ours}


def both(pair, config):
    """Makes the same connector on both sides; prefixes tell them apart."""
    for prefix, rest in pair.items():
        keys = {"database.hostname": "127.0.0.1", "database.user": USER, "database.password": PASSWORD}
        style = {
            "skipped.operations": "none",
            "extended.headers.enabled": "true",
            "provide.transaction.metadata": "true",
        }
        given = {key: value.replace("PREFIX", prefix) for key, value in config.items()}
        if "database.server.id" in given:
            given["database.server.id"] = "7701" if prefix == "judge" else "7702"
        create(rest, f"{prefix}-{config['topic.prefix'][-2:]}", {**keys, **style, **given})


def judged(pair, broker, name, counts):
    """The differences of all tables."""
    found = []
    for table, count in counts.items():
        topics = (f"{prefix}{name}.{table}" for prefix in pair)
        java, ours = (records(broker.bootstrap, topic, count) for topic in topics)
        found += [f"{table}: {line}" for line in compared(java, ours)]
    return found


def arrived(pair, broker, topic, count):
    for prefix in pair:
        records(broker.bootstrap, f"{prefix}{topic}", count)


def transactions(broker, topic):
    """The records of transactions that end; Debezium also has beginnings of MariaDB's statements about tables."""
    found = all_records(broker.bootstrap, topic)
    marks = {}
    for _, value in found:
        marks.setdefault(value["payload"]["id"].partition(":")[0], []).append(value["payload"]["status"])
    return {
        name: [one for one in found if one[1]["payload"]["id"].partition(":")[0] == name]
        for name, statuses in marks.items()
        if statuses == ["BEGIN", "END"]
    }


def judged_transactions(pair, broker, name):
    """The differences of the topics of transactions."""
    java, ours = (transactions(broker, f"{prefix}{name}.transaction") for prefix in pair)
    assert len(java) > 5 and java.keys() <= ours.keys()
    found = []
    for one, marks in java.items():
        found += compared(marks, ours[one])
    return found


def statements_of(broker, topic):
    """The statements about tables, with what both sides must tell of the tables."""
    found = []
    for key, value in all_records(broker.bootstrap, topic):
        payload = value["payload"]
        # A snapshot's statements have other times; the widths of numbers are what the server adds.
        for change in payload["tableChanges"]:
            for column in change["table"]["columns"] if change["table"] else ():
                del column["length"]
        source = payload["source"]
        snapshot = source["snapshot"] == "true"
        # Debezium repeats the number of the row before.
        at = None if snapshot else (source["gtid"], source["pos"], source["server_id"])
        found.append(
            {
                "key": key["payload"],
                "ddl": payload["ddl"],
                "source": [source["snapshot"], source["db"], source["table"], at],
                "changes": payload["tableChanges"],
            }
        )
    return found


def run(cursor, lines):
    for line in lines:
        cursor.execute(line)


def test_postgresql_s_changes_are_debezium_s(pair, broker):
    with running_postgres() as server:
        login = {"host": "127.0.0.1", "port": server.port, "user": USER, "dbname": "shop"}
        with contextlib.closing(psycopg2.connect(**login)) as connection:
            connection.autocommit = True
            cursor = connection.cursor()
            run(cursor, statements.POSTGRES_BEFORE)
            both(
                pair,
                {
                    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
                    "topic.prefix": "PREFIX-pg",
                    "database.port": str(server.port),
                    "database.dbname": "shop",
                    "plugin.name": "pgoutput",
                    "slot.name": "PREFIX_slot",
                    "publication.name": "PREFIX_publication",
                    "schema.include.list": "public",
                },
            )
            arrived(pair, broker, "-pg.public.weird", 1)

            def streaming():
                cursor.execute("SELECT count(*) FROM pg_replication_slots WHERE active AND NOT temporary")
                return cursor.fetchone()[0] == 2

            eventually(streaming)
            run(cursor, statements.POSTGRES_AFTER)
            for number, lines in enumerate(statements.POSTGRES_DEFINITIONS):
                run(cursor, lines)
                arrived(pair, broker, "-pg.public.ddl", number + 2)
            counts = {f"public.{table}": count for table, count in statements.POSTGRES_COUNTS.items()}
            assert judged(pair, broker, "-pg", counts) == []
            assert judged_transactions(pair, broker, "-pg") == []
        for prefix, rest in pair.items():
            rest.call("DELETE", f"/connectors/{prefix}-pg")


def test_mariadb_s_changes_are_debezium_s(pair, broker):
    with running_mariadb() as server:
        login = {"host": "127.0.0.1", "port": server.port, "user": USER, "password": PASSWORD}
        with contextlib.closing(pymysql.connect(**login, database="shop", autocommit=True)) as connection:
            cursor = connection.cursor()
            cursor.execute("ALTER DATABASE shop CHARACTER SET utf8mb4")
            run(cursor, statements.MARIADB_BEFORE)
            both(
                pair,
                {
                    "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
                    "topic.prefix": "PREFIX-my",
                    "database.port": str(server.port),
                    "database.server.id": "PREFIX",
                    "database.include.list": "shop",
                    "schema.history.internal.kafka.topic": "PREFIX-history",
                    "schema.history.internal.kafka.bootstrap.servers": broker.bootstrap,
                },
            )
            arrived(pair, broker, "-my.shop.uniq", 1)

            def streaming():
                cursor.execute(
                    "SELECT count(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'"
                )
                return cursor.fetchone()[0] == 2

            eventually(streaming)
            run(cursor, statements.MARIADB_AFTER)
            for number, lines in enumerate(statements.MARIADB_DEFINITIONS):
                run(cursor, lines)
                arrived(pair, broker, "-my.shop.ddl", number + 2)
            counts = {f"shop.{table}": count for table, count in statements.MARIADB_COUNTS.items()}
            assert judged(pair, broker, "-my", counts) == []
            assert judged_transactions(pair, broker, "-my") == []
            java, ours = (statements_of(broker, f"{prefix}-my") for prefix in pair)
            assert [one["ddl"] for one in ours] == [one["ddl"] for one in java]
            lines = [
                f"{one['ddl'][:40]!r}{line}"
                for one, other in zip(java, ours, strict=True)
                for line in differences(one, other)
            ]
            assert not lines, "\n".join(lines)
        for prefix, rest in pair.items():
            rest.call("DELETE", f"/connectors/{prefix}-my")


class Versions(threading.Thread):
    """Gives rows new versions, in transactions of many sizes, until `ended` is set."""

    def __init__(self, login):
        super().__init__()
        self._login = login
        self.ended = threading.Event()

    def run(self):
        drawn = random.Random(5)
        with contextlib.closing(psycopg2.connect(**self._login)) as connection:
            cursor = connection.cursor()
            while not self.ended.wait(0.01):
                first = drawn.randrange(20)
                last = first + drawn.choice((0, 2, 15))
                cursor.execute("UPDATE moved SET n = n + 1 WHERE id BETWEEN %s AND %s", (first, last))
                connection.commit()


@pytest.mark.parametrize("broker", BROKERS, indirect=True)
def test_a_connector_moves_from_debezium_to_ours_and_back_while_rows_change(broker, tmp_path):
    """The offsets are the same on both sides: each version of a row arrives once."""
    keys = {**cluster_keys(broker.bootstrap, "moved"), **CONVERTERS}
    java = {**keys, "plugin.path": debezium_plugins(tmp_path / "plugins")}
    with running_postgres() as server:
        login = {"host": "127.0.0.1", "port": server.port, "user": USER, "dbname": "shop"}
        with contextlib.closing(psycopg2.connect(**login)) as connection:
            cursor = connection.cursor()
            cursor.execute("CREATE TABLE moved (id INT PRIMARY KEY, n INT NOT NULL)")
            cursor.execute("INSERT INTO moved SELECT i, 0 FROM generate_series(0, 19) i")
            connection.commit()
        config = {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "topic.prefix": "moved",
            "database.hostname": "127.0.0.1",
            "database.port": str(server.port),
            "database.user": USER,
            "database.password": PASSWORD,
            "database.dbname": "shop",
            "plugin.name": "pgoutput",
            "table.include.list": "public.moved",
        }
        writer = Versions(login)
        with following(broker.bootstrap, "moved.public.moved") as follow:
            try:
                with java_worker(tmp_path, java) as url:
                    create(Rest(url), "moved", config)
                    follow(20)
                    writer.start()
                    follow(100)
                with running_worker(broker.bootstrap, **keys):
                    follow(100)
                with java_worker(tmp_path, java):
                    follow(100)
                    writer.ended.set()
                    writer.join()
                    with contextlib.closing(psycopg2.connect(**login)) as connection:
                        cursor = connection.cursor()
                        cursor.execute("SELECT id, n FROM moved ORDER BY id")
                        expected = cursor.fetchall()
                    found = follow(0, lambda found: dict(found) == dict(expected))
            finally:
                writer.ended.set()
                if writer.ident is not None:
                    writer.join()
    for row, last in expected:
        assert [n for id_, n in found if id_ == row] == list(range(last + 1)), f"row {row}"


@contextlib.contextmanager
def following(bootstrap, topic):
    """Reads a topic on: `follow(count)` waits for that many records more, and gives (id, n) of all so far."""
    found = []
    with KafkaConsumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:

        def follow(count, done=lambda found: True):
            wanted = len(found) + count

            def enough():
                if not consumer.assignment() and consumer.partitions_for_topic(topic):
                    consumer.assign([TopicPartition(topic, 0)])
                for batch in consumer.poll(50).values() if consumer.assignment() else ():
                    found.extend((one["id"], one["n"]) for one in map(after, batch))
                return len(found) >= wanted and done(found)

            eventually(enough, 60)
            return found

        yield follow


def after(record):
    return json.loads(record.value)["payload"]["after"]
