"""A small shop: a table of SQLite that changes all the time, and the files of the connector that follows it."""

from __future__ import annotations

import contextlib
import random
import sqlite3
import threading
from pathlib import Path
from typing import Final

from ottla.demo.topics import ORDERS

ITEMS: Final = ("pen", "ink", "paper", "lamp", "clock", "atlas")
_CREATE: Final = """CREATE TABLE IF NOT EXISTS orders (
  id INTEGER PRIMARY KEY, item TEXT NOT NULL, pieces INTEGER NOT NULL, changed TIMESTAMP NOT NULL)"""
_NOW: Final = "strftime('%Y-%m-%d %H:%M:%f', 'now')"
_KEEP: Final = 10_000
_UPDATE_EVERY: Final = 4

_WORKER: Final = """bootstrap.servers={bootstrap}
listeners=http://localhost:{port}
client.id=demo
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
value.converter.schemas.enable=false
"""
_CONNECTOR: Final = """name=demo-orders
connector.class=io.confluent.connect.jdbc.JdbcSourceConnector
connection.url=jdbc:sqlite:{database}
mode=timestamp+incrementing
timestamp.column.name=changed
incrementing.column.name=id
table.whitelist=orders
topic.prefix={prefix}
poll.interval.ms=500
"""


def write_files(folder: Path, bootstrap_servers: str, port: int) -> list[str]:
    """The files of a Connect worker on a port and of its connector, as `ottla connect run` takes them."""
    worker, connector = folder / "worker.properties", folder / "orders.properties"
    worker.write_text(_WORKER.format(bootstrap=bootstrap_servers, port=port))
    prefix = ORDERS.removesuffix("orders")
    connector.write_text(_CONNECTOR.format(database=folder / "shop.db", prefix=prefix))
    return [str(worker), str(connector)]


class Shop:
    """Adds an order now and then, and changes an earlier one sometimes."""

    def __init__(self, folder: Path, *, seed: int, orders_per_s: float = 1.0) -> None:
        self.path = folder / "shop.db"
        self._seed = seed
        self._pause_s = 1 / orders_per_s
        self.changes = 0

    def create(self) -> None:
        """Makes the table unless it is there."""
        with contextlib.closing(sqlite3.connect(self.path)) as database, database:
            database.execute(_CREATE)

    def run(self, stopping: threading.Event) -> None:
        """Until `stopping` is set."""
        with contextlib.closing(sqlite3.connect(self.path)) as database:
            while not stopping.wait(self._pause_s):
                with database:
                    self.change(database)

    def change(self, database: sqlite3.Connection) -> None:
        """One change: mostly a new order, which removes the oldest one in the end."""
        (last,) = database.execute("SELECT COALESCE(MAX(id), 0) FROM orders").fetchone()
        chance = random.Random(f"{self._seed}/order/{last}/{self.changes % _UPDATE_EVERY}")
        pieces = chance.randint(1, 9)
        if last and self.changes % _UPDATE_EVERY == _UPDATE_EVERY - 1:
            database.execute(f"UPDATE orders SET pieces = ?, changed = {_NOW} WHERE id = ?", (pieces, last))
        else:
            add = f"INSERT INTO orders (item, pieces, changed) VALUES (?, ?, {_NOW})"
            database.execute(add, (chance.choice(ITEMS), pieces))
            database.execute("DELETE FROM orders WHERE id <= ?", (last - _KEEP,))
        self.changes += 1
