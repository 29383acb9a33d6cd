"""The schema registry and the Avro serializers: requests a second, memory, and a record's cost beside confluent-kafka.

Lookups and registrations count by the CPU time of the registry's process and by the clock; serializers by the least
thread CPU time of many rounds, both libraries in turns.
"""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from bench.context import Bench
from bench.rows.registry_spark import from_avro_row
from bench.sheet import OTTLA
from bench.systems import HELD_SETTINGS, Ottla, cpu_seconds, rss_mb, stop_cleanly
from ottla.json_types import JsonObject
from ottla.schemas import RegisteredSchema, Registry
from ottla.schemas.avro import AvroSerde
from ottla.testing.registry import RegistryProcess

_ROW = "schema registry"
_THREADS = 4
_LOOKUPS = 4_000
_REGISTRATIONS = 400
_ROUNDS = 40
_CALLS = 2_000
_COLUMN = 20_000
ORDER: JsonObject = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "item", "type": "string"},
        {"name": "quantity", "type": "int"},
        {"name": "price", "type": "double"},
        {"name": "customer", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
VALUE = {
    "id": 123456789,
    "item": "apples",
    "quantity": 3,
    "price": 1.25,
    "customer": "ann",
    "tags": ["a", "b"],
}


def registry(bench: Bench) -> None:
    system = Ottla(bench.directory / "registry", HELD_SETTINGS)
    try:
        system.start()
        for turn in range(bench.scale.few_rounds):
            with RegistryProcess(
                system.bootstrap, "--topic", f"_bench{turn}", "--group", f"bench{turn}"
            ) as server:
                _requests(bench, server)
        with RegistryProcess(system.bootstrap, "--topic", "_spark", "--group", "spark") as server:
            client = Registry(server.url)
            from_avro_row(bench, _ROW, client, ORDER)
            client.close()
        stop_cleanly([system])
    finally:
        system.kill()
    serializers(bench)


def _requests(bench: Bench, server: RegistryProcess) -> None:
    def write(number: int) -> tuple[str, str, object]:
        text = json.dumps({**ORDER, "name": f"Order{number}"})
        return "POST", f"/subjects/s{number}-value/versions", {"schema": text}

    def read(number: int) -> tuple[str, str, object]:
        return "GET", f"/schemas/ids/{number % _REGISTRATIONS + 1}", None

    # The first registration waits for the leader's election, as long as group.initial.rebalance.delay.ms says.
    _drive(server, 1, lambda _: write(_REGISTRATIONS))
    for name, count, request in (("registrations", _REGISTRATIONS, write), ("lookups", _LOOKUPS, read)):
        cpu, clock = _drive(server, count, request)
        bench.sheet.add(OTTLA, _ROW, f"{name} a CPU second", "/s", count / cpu, higher=True)
        bench.sheet.add(OTTLA, _ROW, f"{name} a second", "/s", count / clock, higher=True)
    bench.sheet.add(OTTLA, _ROW, "memory afterwards", "MB", rss_mb(server.pid))


def _drive(
    server: RegistryProcess, count: int, request: Callable[[int], tuple[str, str, object]]
) -> tuple[float, float]:
    """CPU time of the registry, and the time that so many requests of a few clients take."""
    numbers = iter(range(count))
    failures: list[BaseException] = []

    def work() -> None:
        client = _Client(server.url)
        try:
            # One iterator for all threads: its next() is atomic.
            for number in numbers:
                client.ask(*request(number))
        except Exception as error:  # noqa: BLE001 - the thread that started this one raises it
            failures.append(error)
        finally:
            client.close()

    cpu, clock = cpu_seconds(server.pid), time.monotonic()
    threads = [threading.Thread(target=work) for _ in range(_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return cpu_seconds(server.pid) - cpu, time.monotonic() - clock


class _Client:
    """One connection that stays open, as clients have it. It is lean, since it shares the machine with the registry."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host = parts.netloc
        self._socket = socket.create_connection((parts.hostname, parts.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, method: str, path: str, body: object) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: application/json\r\n"
        self._socket.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        answer = self._socket.recv(65_536)
        while (end := answer.find(b"\r\n\r\n")) < 0:
            answer += self._more()
        length = int(re.search(rb"(?i)\r\ncontent-length: (\d+)", answer)[1])  # type: ignore[index]
        while len(answer) < end + 4 + length:
            answer += self._more()
        if not answer.startswith(b"HTTP/1.1 200 "):
            raise RuntimeError(f"{method} {path}: {answer[:300]!r}")

    def _more(self) -> bytes:
        found = self._socket.recv(65_536)
        if not found:
            raise RuntimeError("the registry closed the connection")
        return found

    def close(self) -> None:
        self._socket.close()


# -- serializers


class _Offline(Registry):
    """A registry with one schema and no server: what is measured is the serializer."""

    def register(self, *given: object, **more: object) -> RegisteredSchema:
        return RegisteredSchema(1, json.dumps(ORDER))

    def by_id(self, schema_id: int, subject: str = "") -> RegisteredSchema:
        return RegisteredSchema(1, json.dumps(ORDER))


def serializers(bench: Bench) -> None:
    serde = AvroSerde(_Offline("http://localhost:1"), "orders-value", ORDER)
    data = serde.serialize("orders", [], VALUE)
    work: dict[str, Callable[[], object]] = {
        "Avro record written, ottla": lambda: serde.serialize("orders", [], VALUE),
        "Avro record read, ottla": lambda: serde.deserialize("orders", [], data),
        **_confluents(),
    }
    for name, microseconds in _least(work, _CALLS).items():
        bench.sheet.add(OTTLA, _ROW, name, "µs", microseconds)
    bench.sheet.add(OTTLA, _ROW, "Avro column read", "records/s", _column(serde, data or b""), higher=True)


def _least(work: dict[str, Callable[[], object]], calls: int) -> dict[str, float]:
    """The least µs of thread CPU of each, over rounds in turns."""
    found = dict.fromkeys(work, float("inf"))
    for _ in range(_ROUNDS):
        for name, call in work.items():
            began = time.thread_time_ns()
            for _ in range(calls):
                call()
            found[name] = min(found[name], (time.thread_time_ns() - began) / calls / 1000)
    return found


def _confluents() -> dict[str, Callable[[], object]]:
    """The same record with confluent-kafka's serializers on its mock of a registry."""
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    client: Any = SchemaRegistryClient.new_client({"url": "mock://bench"})
    context = SerializationContext("orders", MessageField.VALUE)
    write: Any = AvroSerializer(client, json.dumps(ORDER))
    read: Any = AvroDeserializer(client, json.dumps(ORDER))
    data = write(VALUE, context)
    assert read(data, context) == VALUE
    return {
        "Avro record written, confluent-kafka": lambda: write(VALUE, context),
        "Avro record read, confluent-kafka": lambda: read(data, context),
    }


def _column(serde: AvroSerde, data: bytes) -> float:
    """Records a second of CPU that a worker of Spark turns into an Arrow column."""
    import pyarrow as pa

    from ottla.schemas.spark import read_column

    values = pa.array([data] * _COLUMN, pa.binary())
    least = float("inf")
    for _ in range(_ROUNDS):
        began = time.process_time()
        read_column(values, serde.registry, json.dumps(ORDER), permissive=False)
        least = min(least, time.process_time() - began)
    return _COLUMN / least
