"""A Connect worker in this process, and calls of its REST API."""

from __future__ import annotations

import contextlib
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

from ottla.connect.config.worker import worker_config
from ottla.connect.worker import Worker

STRINGS = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
}


class Rest:
    """Calls one worker."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    def call(self, method: str, path: str, body: Any = None, raw: bytes | None = None) -> tuple[int, Any]:
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, method=method, data=data, headers={"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            with error:
                text = error.read()
            return error.code, json.loads(text) if text else None

    def create(self, name: str, **config: str) -> Any:
        given = {key.replace("_", "."): value for key, value in config.items()}
        code, answer = self.call("POST", "/connectors", {"name": name, "config": given})
        assert code == 201, answer
        return answer

    def states(self, name: str) -> list[str]:
        code, answer = self.call("GET", f"/connectors/{name}/status")
        return [one["state"] for one in (answer["connector"], *answer["tasks"])] if code == 200 else []

    def await_states(self, name: str, *states: str) -> None:
        eventually(lambda: self.states(name) == list(states))


def eventually(condition: Callable[[], Any], timeout_s: float = 30.0) -> Any:
    """Waits until a condition holds; its value."""
    ticks = threading.Event()
    for _ in range(int(timeout_s / 0.05)):
        found = condition()
        if found:
            return found
        ticks.wait(0.05)
    raise AssertionError("the condition did not hold in time")


@contextlib.contextmanager
def running_worker(bootstrap: str, **keys: str) -> Iterator[Rest]:
    """A worker with string converters; underscores in names stand for dots."""
    given = {**STRINGS, "bootstrap.servers": bootstrap, "listeners": "http://127.0.0.1:0"}
    given.update({key.replace("_", "."): value for key, value in keys.items()})
    worker = Worker(worker_config(given))
    worker.start()
    try:
        yield Rest(f"http://127.0.0.1:{worker.port}")
    finally:
        worker.stop()
