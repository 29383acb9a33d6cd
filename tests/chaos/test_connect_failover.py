"""A database of a connector fails over to its standby: the connector says so, and loses nothing without a word."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path

import psycopg2
import pytest

from chaos.connect_workers import WorkerProcess, broker_process
from chaos.test_connect_database_kills import (
    IDS,
    Postgres,
    Writer,
    connectors,
    rows,
    worker_keys,
    written_lines,
)
from integration.connect_changes import changes
from integration.connect_rest import eventually
from integration.servers import USER, Server, free_port, running_postgres
from ottla.testing.ports import free_ports
from ottla.testing.process import end_process

pytestmark = pytest.mark.slow


class Standby:
    """A copy of a PostgreSQL server that follows it, and can take its place and its port."""

    def __init__(self, primary: Server) -> None:
        self._primary = primary
        self._data = primary.folder / "standby"
        self._own_port = free_port()
        self._as_user = primary.words[: primary.words.index("--") + 1] if "--" in primary.words else []
        binaries = Path(primary.words[len(self._as_user)]).parent
        self._server = str(binaries / "postgres")
        copy = [str(binaries / "pg_basebackup"), "-D", str(self._data), "-h", "127.0.0.1", "-U", USER]
        subprocess.run(
            [*self._as_user, *copy, "-p", str(primary.port), "-R", "-X", "stream", "-c", "fast"],
            check=True,
            capture_output=True,
            cwd=primary.folder,
        )
        self._process = self._start(self._own_port)

    def _start(self, port: int) -> subprocess.Popen[bytes]:
        sockets = self._primary.folder / f"sockets-{port}"
        sockets.mkdir()
        if self._as_user:
            shutil.chown(sockets, "postgres")
        settings = {
            "wal_level": "logical",
            "fsync": "off",
            "listen_addresses": "127.0.0.1",
            "port": str(port),
            "unix_socket_directories": str(sockets),
            "wal_sender_timeout": "10s",
        }
        options = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        with (self._primary.folder / "standby-log").open("ab") as log:
            return subprocess.Popen(
                [*self._as_user, self._server, "-D", str(self._data), *options],
                cwd=self._primary.folder,
                stdout=log,
                stderr=log,
            )

    def ask(self, port: int, statement: str) -> str:
        with contextlib.closing(
            psycopg2.connect(host="127.0.0.1", port=port, user=USER, dbname="shop")
        ) as connection:
            connection.autocommit = True
            cursor = connection.cursor()
            cursor.execute(statement)
            return str(cursor.fetchall()[0][0])

    def caught_up(self) -> bool:
        end = self.ask(self._primary.port, "SELECT pg_current_wal_flush_lsn()")
        return self.ask(self._own_port, f"SELECT pg_last_wal_replay_lsn() >= '{end}'::pg_lsn") == "True"

    def take_over(self) -> None:
        """The primary dies; the standby becomes the primary at its address."""
        postmaster = self._primary.folder / "data" / "postmaster.pid"
        os.kill(int(postmaster.read_text().split()[0]), signal.SIGQUIT)
        self._primary.process.wait(60)
        end_process(self._process)
        # The fixture ends the one that is there now.
        self._process = self._primary.process = self._start(self._primary.port)
        eventually(
            lambda: _answers(lambda: self.ask(self._primary.port, "SELECT pg_promote()")) == "True", 60
        )

    def end(self) -> None:
        end_process(self._process)


def _answers(ask):
    try:
        return ask()
    except psycopg2.Error:
        return None


def newest(folder):
    """The newest version of each row that arrived."""
    found = dict.fromkeys(range(IDS), -1)
    for line in written_lines(folder):
        found[line["id"]] = max(found[line["id"]], line["n"])
    return sorted(found.items())


def test_a_database_that_fails_over_to_its_standby_goes_on_with_a_new_slot(tmp_path):
    (port,) = free_ports(1)
    with broker_process(tmp_path, apache=False) as broker, running_postgres() as server:
        database = Postgres(server, broker.bootstrap)
        with contextlib.closing(database.connect()) as connection:
            cursor = connection.cursor()
            cursor.execute("CREATE TABLE counts (id INT PRIMARY KEY, n INT NOT NULL)")
            cursor.executemany("INSERT INTO counts VALUES (%s, 0)", [(one,) for one in range(IDS)])
            connection.commit()
        standby = Standby(server)
        files = [file for file in connectors(tmp_path, database) if file.stem != "copy"]
        worker = WorkerProcess(tmp_path, port, worker_keys(broker.bootstrap, port), tuple(files)).start()
        writers = [Writer(database)]
        try:
            writers[0].start()
            eventually(lambda: len(written_lines(tmp_path)) > IDS + 40, 60)
            writers[0].ended.set()
            writers[0].join()
            eventually(lambda: newest(tmp_path) == rows(database, "counts"), 60)
            eventually(standby.caught_up, 60)
            standby.take_over()

            def trace():
                tasks = worker.rest.call("GET", "/connectors/source/status")[1]["tasks"]
                return tasks[0].get("trace", "") if tasks else ""

            eventually(lambda: "slot kills is gone" in trace(), 60)
            standby.ask(server.port, "SELECT pg_create_logical_replication_slot('kills', 'pgoutput')")
            writers.append(Writer(database))
            writers[1].start()
            eventually(lambda: writers[1].done > 10, 60)
            worker.rest.call("POST", "/connectors/source/restart?includeTasks=true")
            eventually(lambda: len(written_lines(tmp_path)) > 2 * IDS + 80, 90)
            writers[1].ended.set()
            writers[1].join()
            expected = rows(database, "counts")
            eventually(lambda: newest(tmp_path) == expected, 60)
            versions = [(one[2]["id"], one[2]["n"]) for one in changes(broker, database.topic)]
        finally:
            for writer in writers:
                writer.ended.set()
                writer.join()
            worker.kill()
            standby.end()
    assert len(versions) == len(set(versions)), "a row version arrived twice"
    for row, last in expected:
        own = [n for one, n in versions if one == row]
        assert own == list(range(own[0], last + 1)), f"row {row} has the versions {own}, the table has {last}"
