"""An application over HTTP: stores, status and metrics."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from ottla.streams import StreamsError, Window, Windowed
from ottla.streams.http import HttpEndpoint


class Counts:
    rows: ClassVar = {"hello": 4, "kafka": 1, "spark": 2}

    def key_of(self, text: str) -> str:
        return text

    def get(self, key: str) -> Any:
        return self.rows.get(key)

    def all(self) -> Iterator[tuple[Any, Any]]:
        return iter(self.rows.items())

    def range(self, first: str, last: str) -> Iterator[tuple[Any, Any]]:
        return ((key, value) for key, value in self.rows.items() if first <= key <= last)


class Clicks(Counts):
    def get(self, key: str) -> Any:
        return {Windowed(key, Window(0, 10)): 3}


class App:
    application_id = "wordcount"

    def store(self, name: str) -> Any:
        if name not in ("counts", "clicks"):
            raise StreamsError(f"there is no state store {name}")
        return Counts() if name == "counts" else Clicks()

    def status(self) -> dict[str, Any]:
        return {"running": True, "batch": 7, "rows_per_second": 1234.5}

    def picture(self) -> dict[str, Any]:
        return {"boxes": [{"name": "topic in", "label": "in", "kind": "topic"}], "arrows": []}


@pytest.fixture
def endpoint() -> Iterator[HttpEndpoint]:
    serving = HttpEndpoint(App(), 0).start()
    yield serving
    serving.close()


def ask(endpoint: HttpEndpoint, path: str) -> Any:
    with urllib.request.urlopen(endpoint.address + path, timeout=60) as answer:
        return json.loads(answer.read())


def test_a_key_of_a_store_is_one_request_away(endpoint: HttpEndpoint) -> None:
    assert ask(endpoint, "/stores/counts/hello") == {"value": 4}
    assert ask(endpoint, "/stores/clicks/home") == [{"key": "home", "start": 0, "end": 10, "value": 3}]


def test_ranges_and_whole_stores_are_lists(endpoint: HttpEndpoint) -> None:
    assert [entry["key"] for entry in ask(endpoint, "/stores/counts")] == ["hello", "kafka", "spark"]
    assert ask(endpoint, "/stores/counts?from=i&to=l") == [{"key": "kafka", "value": 1}]


@pytest.mark.parametrize("path", ["/stores/counts/nobody", "/stores/words/hello", "/elsewhere"])
def test_what_is_not_there_is_said(endpoint: HttpEndpoint, path: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask(endpoint, path)
    with refused.value as answer:
        assert answer.code == 404
        assert "there is no" in json.loads(answer.read())["error"]


def test_status_and_metrics_tell_how_it_goes(endpoint: HttpEndpoint) -> None:
    assert ask(endpoint, "/status")["batch"] == 7
    with urllib.request.urlopen(endpoint.address + "/metrics", timeout=60) as answer:
        output = answer.read().decode()
    assert 'ottla_streams_running{application_id="wordcount"} 1' in output
    assert 'ottla_streams_rows_per_second{application_id="wordcount"} 1234.5' in output


def test_the_topology_is_for_programs_that_draw(endpoint: HttpEndpoint) -> None:
    assert ask(endpoint, "/topology")["boxes"][0]["label"] == "in"
    assert ask(endpoint, "/plan") == {}
