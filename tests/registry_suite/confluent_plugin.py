"""A plugin of pytest that takes the mock registry out of confluent-kafka's tests and puts a real one there.

It runs in the environment of those tests and imports nothing of Ottla. Their mock forgets everything with each client;
here everything is deleted for good before each test.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

URL = os.environ["OTTLA_REGISTRY_URL"]


def ask(method: str, path: str) -> Any:
    """The answer to a request; None for one that is refused."""
    request = urllib.request.Request(URL + path, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.loads(response.read() or b"null")
    except urllib.error.HTTPError as error:
        error.close()
        return None


def quoted(name: str) -> str:
    return urllib.parse.quote(name, safe="")


def forget_everything() -> None:
    """Delete all subjects, settings and keys for good."""
    left: list[str] = ask("GET", "/subjects?deleted=true") or []
    while left:
        # A subject that others reference goes after them.
        for name in left:
            ask("DELETE", f"/subjects/{quoted(name)}")
            ask("DELETE", f"/subjects/{quoted(name)}?permanent=true")
        before, left = left, ask("GET", "/subjects?deleted=true") or []
        assert len(left) < len(before), f"the registry keeps {left}"
    ask("DELETE", "/config")
    keys = "/dek-registry/v1/keks"
    for name in ask("GET", f"{keys}?deleted=true") or []:
        kek = f"{keys}/{quoted(name)}"
        for subject in ask("GET", f"{kek}/deks?deleted=true") or []:
            for algorithm in ("AES128_GCM", "AES256_GCM", "AES256_SIV"):
                dek = f"{kek}/deks/{quoted(subject)}?algorithm={algorithm}"
                ask("DELETE", dek)
                ask("DELETE", f"{dek}&permanent=true")
        ask("DELETE", kek)
        ask("DELETE", f"{kek}?permanent=true")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for module in {getattr(item, "module", None) for item in items}:
        if getattr(module, "_BASE_URL", None) == "mock://":
            module._BASE_URL = URL
    _complete_fixture()


def _complete_fixture() -> None:
    """Of its two fixtures of a cluster only the one that starts Confluent Platform makes asynchronous clients."""
    fixture = sys.modules.get("tests.integration.cluster_fixture")
    if fixture is not None and not hasattr(fixture.ByoFixture, "async_schema_registry"):
        fixture.ByoFixture.async_schema_registry = lambda self, conf=None: fixture.AsyncSchemaRegistryClient(
            {"url": URL, **(conf or {})}
        )


@pytest.fixture(autouse=True)
def empty_registry() -> Iterator[None]:
    forget_everything()
    yield
