"""PostgreSQL as a source: a table as it is, changes as fast as they come, and at a steady pace.

Changes are Debezium's in Kafka Connect and Ottla's own; Kafka Connect has no JDBC source of a free license on Maven.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from bench.context import Bench
from bench.rows.connect_worker import JSON, Progress, Worker, running_worker
from bench.sheet import KAFKA, OTTLA
from bench.systems import Ottla
from ottla import KafkaConsumer, TopicPartition
from ottla.admin.cluster import Cluster
from ottla.client.cluster_settings import writer_settings
from ottla.pipeline.fetching import LATEST, READ_UNCOMMITTED, list_offsets
from ottla.pipeline.writer import Place
from ottla.testing.ports import free_ports

_USER = "bench"
_PACE = 1000
_START_S = 60.0
DEBEZIUM = "io.debezium:debezium-connector-postgres:3.6.3.Final"
_COLUMNS = "id BIGINT PRIMARY KEY, name TEXT NOT NULL, amount DOUBLE PRECISION, sent BIGINT NOT NULL"
_ROWS = "SELECT one, 'name ' || one, one / 8.0, 0 FROM generate_series({}, {}) AS one"


def databases(bench: Bench, folder: Path, broker: Ottla, tools: Sequence[str], rows: int) -> None:
    """Rows of 40 B in four columns, as JSON with a schema and exactly once. The server does not call fsync."""
    binaries = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
    if not binaries:
        bench.sheet.note("connect: no PostgreSQL on this machine")
        return
    for tool in tools:
        with (
            running_worker(
                bench, folder, tool, broker, bench.name("databases"), (DEBEZIUM,) if tool == KAFKA else ()
            ) as worker,
            _postgres(Path(binaries[-1])) as port,
        ):
            _read(bench, worker, broker, port, rows)


def _read(bench: Bench, worker: Worker, broker: Ottla, port: int, rows: int) -> None:
    import psycopg2

    with closing(psycopg2.connect(host="127.0.0.1", port=port, user=_USER, dbname="postgres")) as connection:
        connection.autocommit = True
        cursor = connection.cursor()
        if worker.tool == OTTLA:
            cursor.execute(f"CREATE TABLE snapshot ({_COLUMNS})")
            cursor.execute("INSERT INTO snapshot " + _ROWS.format(1, rows))
            _snapshot(bench, worker, broker, port, rows)
        cursor.execute(f"CREATE TABLE changes ({_COLUMNS})")
        _changes(bench, worker, broker, port, cursor, rows)


@contextmanager
def _postgres(binaries: Path) -> Iterator[int]:
    """A server with logical replication; its port."""
    folder = Path(tempfile.mkdtemp(prefix="ottla-bench-"))
    try:
        with _postgres_in(folder, binaries) as port:
            yield port
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _postgres_in(folder: Path, binaries: Path) -> Iterator[int]:
    # Servers of databases do not run as root.
    user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    if user:
        shutil.chown(folder, "postgres")
    (port,) = free_ports(1)
    data = str(folder / "data")
    words = [*user, str(binaries / "initdb"), "-D", data, "-U", _USER, "-A", "trust", "-N"]
    subprocess.run(words, check=True, capture_output=True, cwd=folder)
    settings: tuple[str, ...] = (
        "wal_level=logical",
        "fsync=off",
        "listen_addresses=127.0.0.1",
        f"port={port}",
    )
    settings += (f"unix_socket_directories={folder}",)
    words = [
        *user,
        str(binaries / "postgres"),
        "-D",
        data,
        *(word for one in settings for word in ("-c", one)),
    ]
    process = subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _await_server(port)
        yield port
    finally:
        process.terminate()
        process.wait(30)


def _await_server(port: int) -> None:
    import psycopg2

    deadline = time.monotonic() + _START_S
    while True:
        try:
            psycopg2.connect(host="127.0.0.1", port=port, user=_USER, dbname="postgres").close()
            return
        except psycopg2.OperationalError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.1)


@contextmanager
def _end_of(broker: Ottla, topic: str) -> Iterator[Callable[[], int]]:
    """Where a topic ends; 0 while it is not there."""
    cluster = Cluster(writer_settings(broker.bootstrap))
    place = Place(topic, 0)

    def end() -> int:
        names = {str(one.name) for one in cluster.metadata(None).topics}
        if topic not in names:
            return 0
        return list_offsets(cluster, {place: LATEST}, isolation=READ_UNCOMMITTED, timeout_s=60.0)[place]

    try:
        yield end
    finally:
        cluster.close()


def _snapshot(bench: Bench, worker: Worker, broker: Ottla, port: int, rows: int) -> None:
    keys = {
        "connection_url": f"jdbc:postgresql://127.0.0.1:{port}/postgres",
        "connection_user": _USER,
        "mode": "incrementing",
        "incrementing_column_name": "id",
        "table_whitelist": "snapshot",
        "topic_prefix": "jdbc-",
        "value_converter": JSON,
    }
    name = bench.name("jdbc")
    with _end_of(broker, "jdbc-snapshot") as end:
        kind = "io.confluent.connect.jdbc.JdbcSourceConnector"
        with worker.connector(name, connector_class=kind, **keys):
            progress = Progress(worker, end, rows).follow()
    progress.add(bench, "JDBC snapshot of PostgreSQL", rows)


def _changes(bench: Bench, worker: Worker, broker: Ottla, port: int, cursor: Any, rows: int) -> None:
    name = bench.name("changes").replace("-", "_")
    keys = {
        "topic_prefix": name,
        "database_hostname": "127.0.0.1",
        "database_port": str(port),
        "database_user": _USER,
        "database_dbname": "postgres",
        "plugin_name": "pgoutput",
        "slot_name": name,
        "publication_name": name,
        "table_include_list": r"public\.changes",
        "key_converter": JSON,
        "value_converter": JSON,
    }
    topic = f"{name}.public.changes"
    with _end_of(broker, topic) as end:
        kind = "io.debezium.connector.postgresql.PostgresConnector"
        with worker.connector(name, connector_class=kind, **keys):
            cursor.execute("INSERT INTO changes " + _ROWS.format(0, 0))
            Progress(worker, end, 1).follow()
            progress = Progress(worker, lambda: max(0, end() - 2), rows)
            cursor.execute("INSERT INTO changes " + _ROWS.format(1, rows))
            progress.follow()
            progress.add(bench, "PostgreSQL changes", rows)
            took_ms = sorted(_latencies(broker, topic, port, rows, int(4 * bench.scale.seconds)))
    row = f"PostgreSQL changes at {_PACE:,}/s"
    for part in (50, 99):
        bench.sheet.add(worker.tool, row, f"p{part}", "ms", took_ms[len(took_ms) * part // 100])


def _latencies(broker: Ottla, topic: str, port: int, first: int, seconds: int) -> list[float]:
    """Rows one by one, each in a transaction of its own; from before the INSERT to a consumer, in milliseconds."""
    count = _PACE * max(1, seconds)
    ready = threading.Event()

    def insert() -> None:
        import psycopg2

        with closing(
            psycopg2.connect(host="127.0.0.1", port=port, user=_USER, dbname="postgres")
        ) as connection:
            connection.autocommit = True
            cursor = connection.cursor()
            ready.wait()
            began_s = time.monotonic()
            for number in range(1, count + 1):
                time.sleep(max(0.0, began_s + number / _PACE - time.monotonic()))
                cursor.execute(
                    "INSERT INTO changes VALUES (%s, 'name', 1.5, %s)", (first + number, time.time_ns())
                )

    found: list[float] = []
    thread = threading.Thread(target=insert, name="inserts", daemon=True)
    with KafkaConsumer(
        bootstrap_servers=broker.bootstrap, group_id=None, isolation_level="read_committed"
    ) as consumer:
        place = TopicPartition(topic, 0)
        consumer.assign([place])
        consumer.seek_to_end(place)
        consumer.position(place)
        thread.start()
        ready.set()
        deadline = time.monotonic() + 10 * max(1, seconds) + _START_S
        while len(found) < count and time.monotonic() < deadline:
            for records in consumer.poll(timeout_ms=500).values():
                now_ns = time.time_ns()
                for one in records:
                    found.append((now_ns - json.loads(one.value)["payload"]["after"]["sent"]) / 1e6)
    thread.join()
    if len(found) < count:
        raise TimeoutError(f"{len(found)} of {count} changes arrived")
    return found
