"""What people and programs send over HTTP: requests to a Connect worker's REST, and the console's record filters."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any
from urllib.parse import quote

from fuzz.targets import Target
from ottla.admin.record_filter import FilterError, parse_filter
from ottla.connect.config.worker import worker_config
from ottla.connect.rest.app import make_app
from ottla.connect.worker import Worker

# -- Connect's REST

_CONFIG = {
    "connector.class": "FileStreamSource",
    "tasks.max": "1",
    "file": "/nowhere/in.txt",
    "topic": "lines",
    "transforms": "hoist",
    "transforms.hoist.type": "org.apache.kafka.connect.transforms.HoistField$Value",
    "transforms.hoist.field": "line",
    "producer.override.linger.ms": "5",
}
_REQUESTS: list[tuple[str, str, Any]] = [
    ("POST", "/connectors", {"name": "c", "config": _CONFIG, "initial_state": "PAUSED"}),
    ("PUT", "/connectors/c/config", _CONFIG),
    ("PATCH", "/connectors/c/config", {"file": None, "tasks.max": "2"}),
    ("PUT", "/connector-plugins/FileStreamSource/config/validate", {**_CONFIG, "name": "c"}),
    ("GET", "/connectors?expand=status&expand=info", None),
    ("GET", "/connectors/a%2Fb/status", None),
    ("GET", "/connectors/c/tasks/0/status", None),
    ("POST", "/connectors/c/restart?includeTasks=true&onlyFailed=true", None),
    ("POST", "/connectors/c/tasks/0/restart", None),
    ("PUT", "/connectors/c/pause", None),
    ("PUT", "/connectors/c/topics/reset", None),
    ("DELETE", "/connectors/c", None),
    ("GET", "/connector-plugins?connectorsOnly=false", None),
    ("PUT", "/admin/loggers/ottla.fuzzed?scope=worker", {"level": "DEBUG"}),
]
_CASES_PER_WORKER, _CASES_PER_CONNECTOR = 200, 10


class _Rest:
    """A worker that has not started: it knows connectors, and runs none."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._cases = 0
        self._app: Any = None

    def reset(self) -> None:
        self._cases = 0

    def send(self, method: str, path: str, body: bytes) -> None:
        if self._cases % _CASES_PER_WORKER == 0:
            self._app = make_app(Worker(worker_config(_worker(), from_file=False)))
        if self._cases % _CASES_PER_CONNECTOR == 0:
            known = json.dumps(_CONFIG).encode()
            assert self._loop.run_until_complete(self._ask("PUT", "/connectors/c/config", known))[0] < 300
        self._cases += 1
        status, answer = self._loop.run_until_complete(self._ask(method, path, body))
        assert 100 <= status < 600 and (not answer or answer.isascii() or json.loads(answer) is not None)

    async def _ask(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        where, _, query = path.partition("?")
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "path": where,
            "raw_path": quote(where, safe="/%").encode(),
            "query_string": query.encode(),
            "headers": [(b"content-type", b"application/json")],
        }
        statuses, parts = [], []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
            else:
                parts.append(message.get("body", b""))

        await self._app(scope, receive, send)
        return statuses[0], b"".join(parts)


def _worker() -> dict[str, str]:
    converter = "org.apache.kafka.connect.json.JsonConverter"
    return {
        "bootstrap.servers": "localhost:9092",
        "key.converter": converter,
        "value.converter": converter,
        "offset.storage.file.filename": "/nowhere/offsets",
    }


_rest = _Rest()


def _good_request(rng: random.Random) -> bytearray:
    method, path, body = rng.choice(_REQUESTS)
    return bytearray(f"{method} {path}\n{'' if body is None else json.dumps(body)}".encode())


def _feed_request(rng: random.Random, data: bytes) -> None:
    line, _, body = data.partition(b"\n")
    method, _, path = line.decode("latin-1").partition(" ")
    _rest.send(method, path, body)


# -- the console's filters

_FILTERS = (
    'value.total > 100 and key.startswith("de-")',
    'not (value["items"][0].sku in ["a", "b"]) or offset >= 17',
    'value.name.lower().matches("^a.*(b|c)+$") and headers["x"] != "y"',
    "partition == 3 and timestamp < 1700000000000 and value.a.b.c is None",
    "-1 <= value.n < 2.5",
)


class _Record:
    """A record as librdkafka gives it."""

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return 17

    def key(self) -> bytes:
        return b"de-1"

    def value(self) -> bytes:
        return b'{"total": 101, "items": [{"sku": "a"}], "name": "Abcbc", "n": 1, "a": {"b": {}}, "deep": [[[1]]]}'

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_600_000_000_000

    def headers(self) -> list[tuple[str, bytes | str | None]]:
        return [("x", b"\xff"), ("y", None)]


def _good_filter(rng: random.Random) -> bytearray:
    return bytearray(rng.choice(_FILTERS).encode())


def _feed_filter(rng: random.Random, data: bytes) -> None:
    parse_filter(data.decode("utf-8", "replace"))(_Record())


REQUEST_TARGETS = [
    Target("Connect REST", _good_request, _feed_request, share=2, reset=_rest.reset),
    Target("record filters", _good_filter, _feed_filter, allowed=(FilterError,), share=4),
]
