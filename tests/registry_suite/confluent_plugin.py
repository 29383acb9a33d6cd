"""A plugin of pytest that takes the mock registry out of confluent-kafka's tests and puts a real one there.

It runs in the environment of those tests and imports nothing of Ottla. Their mock is new in each test, and so is the
context of the registry that takes its place.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

import pytest

URL = os.environ["OTTLA_REGISTRY_URL"]
MOCK = "mock://"


def ask(method: str, path: str) -> Any:
    """The answer to a request; None for one that is refused."""
    request = urllib.request.Request(URL + path, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.loads(response.read() or b"null")
    except urllib.error.HTTPError as error:
        error.close()
        return None


def forget_everything() -> None:
    """Delete all subjects and the global settings for good."""
    left: list[str] = ask("GET", "/subjects?deleted=true") or []
    while left:
        # A subject that others reference goes after them.
        for name in left:
            place = f"/subjects/{urllib.parse.quote(name, safe='')}"
            ask("DELETE", place)
            ask("DELETE", f"{place}?permanent=true")
        before, left = left, ask("GET", "/subjects?deleted=true") or []
        assert len(left) < len(before), f"the registry keeps {left}"
    ask("DELETE", "/config")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    _complete_fixture()


def _complete_fixture() -> None:
    """Of its two fixtures of a cluster only the one that starts Confluent Platform makes asynchronous clients."""
    fixture = sys.modules.get("tests.integration.cluster_fixture")
    if fixture is not None and not hasattr(fixture.ByoFixture, "async_schema_registry"):
        fixture.ByoFixture.async_schema_registry = lambda self, conf=None: fixture.AsyncSchemaRegistryClient(
            {"url": URL, **(conf or {})}
        )


_contexts = itertools.count(1)


@pytest.fixture(autouse=True)
def empty_registry(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of serializers get a context of their own, whose first id is 1; the others an empty registry."""
    if getattr(request.module, "_BASE_URL", None) == MOCK:
        monkeypatch.setattr(request.module, "_BASE_URL", f"{URL}/contexts/.test{next(_contexts)}")
    elif "tests.integration" in request.module.__name__:
        forget_everything()
