"""An application over HTTP: its stores and status as JSON, and metrics for Prometheus."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from ottla.streams.errors import StreamsError
from ottla.streams.records import Windowed
from ottla.streams.status import Status

if TYPE_CHECKING:
    from ottla.streams.queries import QueryableStore

_logger = logging.getLogger(__name__)

MAX_ENTRIES: Final = 10_000
"""The most entries of a store in one response."""

_METRICS: Final = {
    "rows_per_second": "Records processed per second in the last batch",
    "input_rows": "Records of the last batch",
    "batch_ms": "Duration of the last batch in milliseconds",
    "batch": "Number of the last batch",
    "state_rows": "Entries in all state stores",
    "lag": "Records in the topics that have not been processed",
}


class Application(Protocol):
    """A StreamsApp, or a stand-in for it."""

    application_id: str

    def store(self, name: str) -> QueryableStore:
        """A state store."""

    def status(self) -> Status:
        """The current status."""

    def picture(self) -> dict[str, list[object]]:
        """The topology as boxes and arrows."""


class HttpEndpoint:
    """`/status`, `/topology`, `/plan`, `/metrics`, `/stores/NAME/KEY`, `/stores/NAME?from=A&to=B`.

    Port 0 takes any free port.
    """

    def __init__(self, app: Application, port: int, host: str = "127.0.0.1") -> None:
        handler = type("Handler", (_Handler,), {"app": app})
        try:
            self._server = ThreadingHTTPServer((host, port), handler)
        except OSError as problem:
            raise StreamsError(f"cannot listen on {host}:{port}: {problem.strerror}") from None
        self._thread = threading.Thread(target=self._server.serve_forever, name="streams-http", daemon=True)

    @property
    def address(self) -> str:
        """The address to ask, with the port that was taken."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def start(self) -> HttpEndpoint:
        """Begins to respond."""
        self._thread.start()
        return self

    def close(self) -> None:
        """Stops and gives the port back."""
        if self._thread.ident is not None:
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    app: Application

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        parts = [unquote(part) for part in url.path.split("/") if part]
        try:
            match parts:
                case ["status"]:
                    self._respond(self.app.status())
                case ["topology"]:
                    self._respond(self.app.picture())
                case ["plan"]:
                    path = Path(self.app.status().get("directory", "")) / "plan.json"
                    self._respond(msgspec.json.decode(path.read_bytes()) if path.is_file() else {})
                case ["metrics"]:
                    self._send(HTTPStatus.OK, metrics(self.app).encode(), "text/plain; version=0.0.4")
                case ["stores", name]:
                    self._respond(list(_entries(self.app.store(name), parse_qs(url.query))))
                case ["stores", name, key]:
                    store = self.app.store(name)
                    self._respond_value(store.get(store.key_of(key)))
                case _:
                    self._respond({"error": f"there is no {url.path}"}, HTTPStatus.NOT_FOUND)
        except StreamsError as problem:
            self._respond({"error": str(problem)}, HTTPStatus.NOT_FOUND)
        except Exception as problem:
            _logger.exception("the request for %s failed", self.path)
            reason = str(problem).strip().partition("\n")[0] or type(problem).__name__
            self._respond({"error": reason}, HTTPStatus.INTERNAL_SERVER_ERROR)

    def _respond_value(self, value: object) -> None:
        if value is None:
            self._respond({"error": "there is no such key"}, HTTPStatus.NOT_FOUND)
        elif isinstance(value, dict) and any(isinstance(key, Windowed) for key in value):
            self._respond([_entry(key, held) for key, held in value.items()])
        else:
            self._respond({"value": value})

    def _respond(self, what: object, status: HTTPStatus = HTTPStatus.OK) -> None:
        self._send(status, msgspec.json.encode(what, enc_hook=str), "application/json")

    def _send(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged."""


def _entries(store: QueryableStore, query: dict[str, list[str]]) -> Iterator[dict[str, object]]:
    if {"from", "to"} <= set(query):
        chosen = store.range(store.key_of(query["from"][0]), store.key_of(query["to"][0]))
    else:
        chosen = store.all()
    for key, value in islice(chosen, MAX_ENTRIES):
        yield _entry(key, value)


def _entry(key: object, value: object) -> dict[str, object]:
    if isinstance(key, Windowed):
        return {"key": key.key, "start": key.start, "end": key.end, "value": value}
    return {"key": key, "value": value}


def metrics(app: Application) -> str:
    """The status as text for Prometheus."""
    status = app.status()
    label = f'{{application_id="{app.application_id}"}}'
    lines = [
        "# TYPE ottla_streams_running gauge",
        f"ottla_streams_running{label} {int(bool(status.get('running')))}",
    ]
    for name, text in _METRICS.items():
        value = status.get(name)
        if value is not None:
            full = f"ottla_streams_{name}"
            lines += [f"# HELP {full} {text}", f"# TYPE {full} gauge", f"{full}{label} {value}"]
    return "\n".join(lines) + "\n"
