"""Databases from Debian's packages, on free ports and in temporary directories, for the tests of connectors."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ottla.testing.process import end_process

USER = "ottla"
PASSWORD = "not-a-real-secret"
_START_S = 60.0


@dataclass(slots=True)
class Server:
    """A server that runs."""

    port: int
    folder: Path
    words: list[str]
    process: subprocess.Popen[bytes]

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(self.words, cwd=self.folder, stdout=log, stderr=log)

    def crash(self) -> None:
        """Ends the server at once, without its own shutdown, and starts it again."""
        postmaster, other = self.folder / "data" / "postmaster.pid", self.folder / "pid"

        def server() -> tuple[Path, int]:
            found = postmaster if postmaster.exists() else other
            return found, int(found.read_text().split()[0])

        file, pid = _await(server, self.process)
        # PostgreSQL's processes end together with SIGQUIT; after SIGKILL its children would hold the data.
        os.kill(pid, signal.SIGQUIT if file is postmaster else signal.SIGKILL)
        self.process.wait(60)
        file.unlink(missing_ok=True)
        self.start()

    def jdbc(self, kind: str, database: str) -> str:
        return f"jdbc:{kind}://127.0.0.1:{self.port}/{database}"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _as_user(user: str) -> list[str]:
    """Servers of databases do not run as root."""
    return ["runuser", "-u", user, "--"] if os.geteuid() == 0 else []


def _await(attempt: Callable[[], Any], process: subprocess.Popen[bytes]) -> Any:
    ticks = threading.Event()
    problem: Exception | None = None
    for _ in range(int(_START_S / 0.1)):
        try:
            return attempt()
        except Exception as error:  # noqa: BLE001 - each driver has its own errors
            problem = error
        assert process.poll() is None, f"the server ended with code {process.returncode}"
        ticks.wait(0.1)
    raise AssertionError(f"the server does not answer: {problem}")


@contextlib.contextmanager
def _folder(user: str) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="ottla-db-"))
    try:
        folder.chmod(0o755)
        if os.geteuid() == 0:
            shutil.chown(folder, user)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _running(words: list[str], folder: Path, port: int) -> Iterator[Server]:
    with (folder / "log").open("wb") as log:
        server = Server(port, folder, words, subprocess.Popen(words, cwd=folder, stdout=log, stderr=log))
    try:
        yield server
    finally:
        end_process(server.process)


@contextlib.contextmanager
def running_postgres() -> Iterator[Server]:
    """PostgreSQL with logical replication and the database `shop`."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))
    if not found:
        pytest.skip("needs PostgreSQL: apt install postgresql")
    import psycopg2

    binaries, port = Path(found[-1]).parent, free_port()
    with _folder("postgres") as folder:
        data = folder / "data"
        words = [
            *_as_user("postgres"),
            str(binaries / "initdb"),
            "-D",
            str(data),
            "-U",
            USER,
            "-A",
            "trust",
            "-N",
        ]
        subprocess.run(words, check=True, capture_output=True, cwd=folder)
        settings = {
            "wal_level": "logical",
            "fsync": "off",
            "unix_socket_directories": str(folder),
            "listen_addresses": "127.0.0.1",
            "port": str(port),
            "wal_sender_timeout": "10s",
        }
        options = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        with _running(
            [*_as_user("postgres"), str(binaries / "postgres"), "-D", str(data), *options], folder, port
        ) as one:
            _await(
                lambda: psycopg2.connect(host="127.0.0.1", port=port, user=USER, dbname="postgres").close(),
                one.process,
            )
            with contextlib.closing(
                psycopg2.connect(host="127.0.0.1", port=port, user=USER, dbname="postgres")
            ) as admin:
                admin.autocommit = True
                admin.cursor().execute("CREATE DATABASE shop")
            yield one


@contextlib.contextmanager
def running_mariadb(*options: str) -> Iterator[Server]:
    """MariaDB with a row binlog and the database `shop`."""
    binary, installer = shutil.which("mariadbd") or "/usr/sbin/mariadbd", shutil.which("mariadb-install-db")
    if not os.path.exists(binary) or installer is None:
        pytest.skip("needs MariaDB: apt install mariadb-server")
    import pymysql

    port = free_port()
    with _folder("mysql") as folder:
        data = folder / "data"
        words = [
            *_as_user("mysql"),
            installer,
            f"--datadir={data}",
            "--auth-root-authentication-method=normal",
        ]
        subprocess.run([*words, "--skip-test-db"], check=True, capture_output=True, cwd=folder)
        settings = [
            "--no-defaults",
            f"--datadir={data}",
            # A server that starts removes the temporary tables of its folder, also those of another server.
            f"--tmpdir={data}",
            f"--port={port}",
            f"--socket={folder}/socket",
            "--bind-address=127.0.0.1",
            "--server-id=1",
            "--log-bin=binlog",
            "--binlog-format=ROW",
            "--binlog-row-image=FULL",
            "--binlog-row-metadata=FULL",
            "--innodb-flush-log-at-trx-commit=2",
            "--innodb-buffer-pool-size=32M",
            f"--pid-file={folder}/pid",
            *options,
        ]
        with _running([*_as_user("mysql"), binary, *settings], folder, port) as one:
            _await(lambda: pymysql.connect(host="127.0.0.1", port=port, user="root").close(), one.process)
            with contextlib.closing(pymysql.connect(host="127.0.0.1", port=port, user="root")) as admin:
                cursor = admin.cursor()
                cursor.execute("CREATE DATABASE shop")
                cursor.execute(f"CREATE USER {USER} IDENTIFIED BY '{PASSWORD}'")
                cursor.execute(f"GRANT ALL ON *.* TO {USER}")
            yield one


@contextlib.contextmanager
def running_redis() -> Iterator[Server]:
    """Redis without persistence."""
    binary = shutil.which("redis-server")
    if binary is None:
        pytest.skip("needs Redis: apt install redis-server")
    import redis

    port = free_port()
    with _folder("nobody") as folder:
        words = [binary, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
        with _running(words, folder, port) as one:
            _await(lambda: redis.Redis(port=port).ping(), one.process)
            yield one
