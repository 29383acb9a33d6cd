"""Workers and databases are killed while rows change: each row version arrives once, copies equal the topic."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import threading
from pathlib import Path

import psycopg2
import pymysql
import pytest

from chaos.connect_workers import LONG, WorkerProcess, broker_process
from integration.connect_changes import JSON, changes
from integration.connect_rest import eventually
from integration.servers import PASSWORD, USER, running_mariadb, running_postgres
from ottla.connect.sources.debezium.program import command, product_of
from ottla.testing.ports import free_ports

pytestmark = pytest.mark.slow

ROUNDS = int(os.environ.get("OTTLA_CONNECT_KILLS", "4"))
IDS = 40


def worker_keys(bootstrap, port):
    return {
        "bootstrap.servers": bootstrap,
        "listeners": f"http://127.0.0.1:{port}",
        "client.id": "kills",
        "key.converter": JSON,
        "value.converter": JSON,
        "ottla.cycle.max.records": "15",
        "ottla.poll.interval.ms": "20",
        "ottla.restart.backoff.max.ms": "1000",
        "offset.flush.interval.ms": "1000",
    }


class Postgres:
    running = staticmethod(running_postgres)
    topic = "kills.public.counts"
    source = "io.debezium.connector.postgresql.PostgresConnector"
    url = "jdbc:postgresql"

    def __init__(self, server, bootstrap):
        self.server = server
        self.bootstrap = bootstrap

    def connect(self):
        return psycopg2.connect(host="127.0.0.1", port=self.server.port, user=USER, dbname="shop")

    def keys(self):
        return {"database.dbname": "shop", "table.include.list": r"public\.counts", "slot.name": "kills"}


class MariaDb(Postgres):
    running = staticmethod(running_mariadb)
    topic = "kills.shop.counts"
    source = "io.debezium.connector.mariadb.MariaDbConnector"
    url = "jdbc:mariadb"

    def connect(self):
        return pymysql.connect(
            host="127.0.0.1", port=self.server.port, user=USER, password=PASSWORD, database="shop"
        )

    def keys(self):
        return {"table.include.list": r"shop\.counts"}


def fetch(java_class):
    """Fetches the jars of Debezium before the clock runs."""
    product = product_of(java_class)
    assert product is not None
    command(product, [], [])


class EnginePostgres(Postgres):
    """Debezium's engine reads: its process is killed too."""

    def __init__(self, server, bootstrap):
        super().__init__(server, bootstrap)
        fetch(self.java_class)

    source = "ottla.connect.DebeziumSource"
    java_class = "io.debezium.connector.postgresql.PostgresConnector"

    def keys(self):
        engine = {
            "ottla.debezium.class": self.java_class,
            "max.batch.size": "15",
            "poll.interval.ms": "20",
        }
        return {**super().keys(), **engine, "plugin.name": "pgoutput"}


class EngineMariaDb(MariaDb):
    def __init__(self, server, bootstrap):
        super().__init__(server, bootstrap)
        fetch(self.java_class)

    source = EnginePostgres.source
    java_class = "io.debezium.connector.mariadb.MariaDbConnector"

    def keys(self):
        history = {
            "database.server.id": "7701",
            "schema.history.internal.kafka.topic": "kills-history",
            "schema.history.internal.kafka.bootstrap.servers": self.bootstrap,
        }
        engine = {"ottla.debezium.class": self.java_class, "max.batch.size": "15"}
        return {**super().keys(), **history, **engine}


def connectors(folder, database):
    login = {"database.user": USER, "database.password": PASSWORD, "topic.prefix": "kills"}
    where = {"database.hostname": "127.0.0.1", "database.port": str(database.server.port)}
    given = {
        "source": {"connector.class": database.source, **login, **where, **database.keys()},
        "copy": {
            "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
            "connection.url": database.server.jdbc(database.url.removeprefix("jdbc:"), "shop"),
            "connection.user": USER,
            "connection.password": PASSWORD,
            "topics": database.topic,
            "table.name.format": "copied",
            "insert.mode": "upsert",
            "pk.mode": "record_key",
            "auto.create": "true",
        },
        "files": {
            "connector.class": "FilesSink",
            "topics": database.topic,
            "store.url": str(folder / "files"),
        },
    }
    for name, config in given.items():
        file = folder / f"{name}.json"
        file.write_text(json.dumps({"name": name, "config": config}))
        yield file


class Writer(threading.Thread):
    """Changes rows in transactions of many sizes, until `ended` is set; it outlives the server."""

    def __init__(self, database):
        super().__init__()
        self._database = database
        self._drawn = random.Random(11)
        self.ended = threading.Event()
        self.done = 0

    def run(self):
        while not self.ended.is_set():
            with (
                contextlib.suppress(psycopg2.Error, pymysql.err.Error),
                contextlib.closing(self._database.connect()) as connection,
            ):
                cursor = connection.cursor()
                while not self.ended.wait(0.05):
                    first = self._drawn.randrange(IDS)
                    last = first + self._drawn.choice((0, 1, 20))
                    cursor.execute("UPDATE counts SET n = n + 1 WHERE id BETWEEN %s AND %s", (first, last))
                    connection.commit()
                    self.done += 1
            self.ended.wait(0.05)


def rows(database, table):
    with contextlib.closing(database.connect()) as connection:
        cursor = connection.cursor()
        cursor.execute(f"SELECT id, n FROM {table} ORDER BY id")
        return list(cursor.fetchall())


def written_lines(folder):
    files = sorted((folder / "files").rglob("*.json"))
    return [json.loads(line)["after"] for file in files for line in file.read_text().splitlines()]


def kill_engine(worker):
    """Kills the process of Debezium's engine, if the worker has one just now."""
    for pid in worker.children():
        with contextlib.suppress(OSError):
            if b"EngineHost" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)


KINDS = [
    (Postgres, False),
    (MariaDb, False),
    (Postgres, True),
    (EnginePostgres, False),
    (MariaDb, True),
    (EngineMariaDb, False),
    (EnginePostgres, True),
]


@pytest.mark.parametrize(
    ("kind", "apache"),
    KINDS if LONG else KINDS[:4],
    ids=lambda given: "" if given is False else "apache" if given is True else given.__name__,
)
def test_each_row_version_arrives_once_though_workers_and_databases_are_killed(tmp_path, kind, apache):
    drawn = random.Random(7)
    (port,) = free_ports(1)
    with broker_process(tmp_path, apache=apache) as broker, kind.running() as server:
        database = kind(server, broker.bootstrap)
        with contextlib.closing(database.connect()) as connection:
            cursor = connection.cursor()
            cursor.execute("CREATE TABLE counts (id INT PRIMARY KEY, n INT NOT NULL)")
            cursor.executemany("INSERT INTO counts VALUES (%s, 0)", [(one,) for one in range(IDS)])
            connection.commit()
        files = tuple(connectors(tmp_path, database))
        worker = WorkerProcess(tmp_path, port, worker_keys(broker.bootstrap, port), files).start()
        writer = Writer(database)
        writer.start()
        try:
            seen = 0
            for number in range(max(2, ROUNDS // 2) if apache else ROUNDS):
                eventually(lambda seen=seen: len(written_lines(tmp_path)) > seen + 40, 60)
                seen = len(written_lines(tmp_path))
                writer.ended.wait(drawn.uniform(0, 0.3))
                if number % 3 == 2 and database.source == EnginePostgres.source:
                    kill_engine(worker)
                elif number % 2:
                    server.crash()
                else:
                    worker.kill()
                    worker.start()
            done = writer.done
            eventually(lambda: writer.done > done + 5, 60)
            writer.ended.set()
            writer.join()
            expected = rows(database, "counts")
            eventually(lambda: rows(database, "copied") == expected, 60)
            versions = [(one[2]["id"], one[2]["n"]) for one in changes(broker, database.topic)]
            eventually(lambda: len(written_lines(tmp_path)) == len(versions), 30)
            assert [(one["id"], one["n"]) for one in written_lines(tmp_path)] == versions
        finally:
            writer.ended.set()
            writer.join()
            worker.kill()
    assert len(versions) == len(set(versions)), "a row version arrived twice"
    for row, last in expected:
        own = [n for one, n in versions if one == row]
        assert own == list(range(own[0], last + 1)), f"row {row} has the versions {own}, the table has {last}"
