"""Datagen: generated records for demonstrations and tests, the same ones for the same seed and number."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ottla.connect.config.definitions import ConfigDef, ConfigKey, ConfigValues
from ottla.connect.data import schema as schemas
from ottla.connect.data.record import SourceRecord
from ottla.connect.data.schema import ConnectValue, Schema, Struct
from ottla.connect.spi import Offsets, Read, ReadLimit, SourceConnector, SourceReader, partition_key
from ottla.json_types import to_int

_ADDRESS: Final = schemas.struct(
    [("city", schemas.STRING), ("state", schemas.STRING), ("zipcode", schemas.INT64)], name="ksql.address"
)
_KINDS: Final[Mapping[str, Schema]] = {
    "orders": schemas.struct(
        [
            ("ordertime", schemas.INT64),
            ("orderid", schemas.INT32),
            ("itemid", schemas.STRING),
            ("orderunits", schemas.FLOAT64),
            ("address", _ADDRESS),
        ],
        name="ksql.orders",
    ),
    "users": schemas.struct(
        [
            ("registertime", schemas.INT64),
            ("userid", schemas.STRING),
            ("regionid", schemas.STRING),
            ("gender", schemas.STRING),
        ],
        name="ksql.users",
    ),
    "pageviews": schemas.struct(
        [("viewtime", schemas.INT64), ("userid", schemas.STRING), ("pageid", schemas.STRING)],
        name="ksql.pageviews",
    ),
    "clickstream": schemas.struct(
        [
            ("ip", schemas.STRING),
            ("userid", schemas.INT32),
            ("remote_user", schemas.STRING),
            ("time", schemas.STRING),
            ("_time", schemas.INT64),
            ("request", schemas.STRING),
            ("status", schemas.STRING),
            ("bytes", schemas.STRING),
            ("referrer", schemas.STRING),
            ("agent", schemas.STRING),
        ],
        name="clickstream.clickstream",
    ),
}
_KEYS: Final = {"orders": "orderid", "users": "userid", "pageviews": "viewtime", "clickstream": "ip"}
_PAGES: Final = ("/index.html", "/site/user_status.html", "/images/track.png", "/site/login.html")
_AGENTS: Final = ("Mozilla/5.0 (X11; Linux x86_64)", "Mozilla/5.0 (compatible; Googlebot/2.1)")
_EPOCH_MS: Final = 1_500_000_000_000


class Datagen(SourceConnector):
    """`io.confluent.kafka.connect.datagen.DatagenConnector`, with the quickstarts orders, users, pageviews and
    clickstream."""

    java_classes = ("io.confluent.kafka.connect.datagen.DatagenConnector",)
    version = "0.1.0"

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Where to write, what, and how fast."""
        return ConfigDef(
            [
                ConfigKey("kafka.topic", importance="HIGH", documentation="Topic to write to"),
                ConfigKey(
                    "quickstart",
                    importance="HIGH",
                    valid=f"[{', '.join(_KINDS)}]",
                    documentation="The kind of records",
                ),
                ConfigKey(
                    "max.interval",
                    "LONG",
                    500,
                    "HIGH",
                    "The longest time between two records in ms; 0 for no pause",
                    valid="[0,...]",
                ),
                ConfigKey("iterations", "INT", -1, "HIGH", "Number of records; -1 for no end"),
                ConfigKey("random.seed", "LONG", 0, "LOW", "The same seed gives the same records"),
                ConfigKey("schema.keyfield", default=None, documentation="The field that is the key"),
            ]
        )

    def reader(self) -> SourceReader:
        """A reader that counts records."""
        return _Reader(dict(self.values))


class _Reader(SourceReader):
    def __init__(self, values: ConfigValues) -> None:
        self._kind = values["quickstart"]
        self._topic = values["kafka.topic"]
        self._interval_ms = values["max.interval"]
        self._most = values["iterations"]
        self._seed = values["random.seed"]
        self._key_field = values["schema.keyfield"] or _KEYS[self._kind]
        self._key = partition_key({"task.id": 0})
        self._due: float | None = None

    def _count(self, offsets: Offsets) -> int:
        return to_int(offsets.get(self._key, {}).get("task.generation", 0))

    def latest_offsets(self, start: Offsets, limit: ReadLimit) -> Offsets:
        done, now = self._count(start), time.monotonic()
        ready = limit.records
        if self._interval_ms:
            if self._due is None:
                self._due = now
            ready = min(
                ready, int((now - self._due) * 1000 / self._interval_ms) + 1 if now >= self._due else 0
            )
            self._due += ready * self._interval_ms / 1000
        end = done + ready
        if self._most >= 0:
            end = min(end, max(done, self._most))
        return {self._key: {"task.generation": end}} if end > done else start

    def splits(self, start: Offsets, end: Offsets, max_splits: int) -> Sequence[tuple[int, int]]:
        first, last = self._count(start), self._count(end)
        step = max(1, -(-(last - first) // max_splits))
        return [(at, min(at + step, last)) for at in range(first, last, step)]

    def read(self, split: tuple[int, int]) -> Iterator[Read]:
        schema = _KINDS[self._kind]
        for number in range(*split):
            value = Struct(schema, _fields(self._kind, number, random.Random(f"{self._seed}.{number}")))
            key_schema = schema.field(self._key_field).schema
            yield SourceRecord(
                self._topic,
                value,
                schema,
                value.get(self._key_field),
                key_schema,
                source_partition={"task.id": 0},
                source_offset={"task.generation": number + 1},
            )

    def size(self, start: Offsets, end: Offsets) -> int:
        return 150 * (self._count(end) - self._count(start))


def _fields(kind: str, number: int, drawn: random.Random) -> dict[str, ConnectValue]:
    if kind == "orders":
        place = drawn.randrange(100)
        address = {
            "city": f"City_{place}",
            "state": f"State_{place}",
            "zipcode": drawn.randrange(10_000, 100_000),
        }
        return {
            "ordertime": _EPOCH_MS + drawn.randrange(10**9),
            "orderid": number & 0x7FFFFFFF,
            "itemid": f"Item_{drawn.randrange(1000)}",
            "orderunits": round(drawn.uniform(0.1, 10.0), 6),
            "address": Struct(_ADDRESS, address),
        }
    if kind == "users":
        return {
            "registertime": _EPOCH_MS + drawn.randrange(10**9),
            "userid": f"User_{drawn.randrange(1, 10)}",
            "regionid": f"Region_{drawn.randrange(1, 10)}",
            "gender": drawn.choice(("MALE", "FEMALE", "OTHER")),
        }
    if kind == "pageviews":
        return {
            "viewtime": 1 + 10 * number,
            "userid": f"User_{drawn.randrange(1, 10)}",
            "pageid": f"Page_{drawn.randrange(10, 100)}",
        }
    return {
        "ip": f"{drawn.randrange(1, 255)}.{drawn.randrange(255)}.{drawn.randrange(255)}.{drawn.randrange(255)}",
        "userid": drawn.randrange(1, 40),
        "remote_user": "-",
        "time": str(10 * number + 1),
        "_time": 10 * number + 1,
        "request": f"GET {drawn.choice(_PAGES)} HTTP/1.1",
        "status": drawn.choice(("200", "302", "404", "405", "406", "407")),
        "bytes": drawn.choice(("278", "1289", "2048", "4096", "4006", "4196", "14096")),
        "referrer": "-",
        "agent": drawn.choice(_AGENTS),
    }
