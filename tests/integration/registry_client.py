"""Plain HTTP to a registry, and records as they stand in its topic."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

JSON = "application/vnd.schemaregistry.v1+json"


class Http:
    """Requests to one registry. An answer is its status and its document."""

    def __init__(self, url: str, user: str | None = None, password: str = "") -> None:
        self.url = url
        self._headers = {"Content-Type": JSON, "Accept": JSON}
        if user is not None:
            token = base64.b64encode(f"{user}:{password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {token}"

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, method=method)
        for name, value in {**self._headers, **headers}.items():
            request.add_header(name.replace("_", "-"), value)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.status, json.loads(response.read() or b"null")
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read() or b"null")

    def get(self, path: str) -> Any:
        return self.ask("GET", path)[1]

    def register(self, subject: str, schema: Any, **more: Any) -> tuple[int, Any]:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        return self.ask("POST", f"/subjects/{subject}/versions", {"schema": text, **more})


def topic_records(bootstrap: str, topic: str = "_schemas") -> list[tuple[bytes | None, bytes | None]]:
    """All records of the one partition of a topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": False})
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[bytes | None, bytes | None]] = []
    last = -1
    while last + 1 < end:
        for message in consumer.consume(100, 5):
            assert message.error() is None, message.error()
            found.append((message.key(), message.value()))
            last = message.offset()
    consumer.close()
    return found


def write_records(bootstrap: str, pairs: list[tuple[bytes, bytes | None]], topic: str = "_schemas") -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for key, value in pairs:
        producer.produce(topic, value, key, partition=0)
    assert producer.flush(30) == 0
