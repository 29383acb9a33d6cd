"""A plugin of pytest that takes the mock registry out of confluent-kafka's tests and puts a real one there.

It runs in the environment of those tests and imports nothing of Ottla. Their mock is new in each test, and so is the
context of the registry that takes its place.
"""

from __future__ import annotations

import http.client
import http.server
import itertools
import json
import os
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

URL = os.environ["OTTLA_REGISTRY_URL"]
MOCK = "mock://"
_PASSED = ("content-type", "accept", "authorization")


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


def forget_keys() -> None:
    """Delete all encryption keys for good: they belong to the whole registry, not to a context."""
    keks = "/dek-registry/v1/keks"
    for kek in ask("GET", f"{keks}?deleted=true") or []:
        place = f"{keks}/{urllib.parse.quote(kek, safe='')}"
        for subject in ask("GET", f"{place}/deks?deleted=true") or []:
            deks = f"{place}/deks/{urllib.parse.quote(subject, safe='')}?algorithm="
            for algorithm in ("AES128_GCM", "AES256_GCM", "AES256_SIV"):
                ask("DELETE", deks + algorithm)
                ask("DELETE", f"{deks}{algorithm}&permanent=true")
        ask("DELETE", place)
        ask("DELETE", f"{place}?permanent=true")
    left = ask("GET", f"{keks}?deleted=true")
    assert not left, f"the registry keeps {left}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    _complete_fixture()


def _complete_fixture() -> None:
    """Of its two fixtures of a cluster only the one that starts Confluent Platform makes asynchronous clients."""
    fixture = sys.modules.get("tests.integration.cluster_fixture")
    if fixture is not None and not hasattr(fixture.ByoFixture, "async_schema_registry"):
        fixture.ByoFixture.async_schema_registry = lambda self, conf=None: fixture.AsyncSchemaRegistryClient(
            {"url": URL, **(conf or {})}
        )


class _Proxy(http.server.BaseHTTPRequestHandler):
    """Passes requests on into the context of the running test: executors of rules keep the first address."""

    protocol_version = "HTTP/1.1"
    context = ""

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        connection = http.client.HTTPConnection(URL.removeprefix("http://"), timeout=60)
        headers = {name: value for name, value in self.headers.items() if name.lower() in _PASSED}
        connection.request(self.command, f"/contexts/{_Proxy.context}{self.path}", body or None, headers)
        answer = connection.getresponse()
        # The test knows nothing of its context, and finds subjects in its caches by their plain names.
        content = answer.read().replace(f":{_Proxy.context}:".encode(), b"")
        connection.close()
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.headers.get("Content-Type", ""))
        if answer.status != 204:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_DELETE = _pass_on

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing: pytest's output is the report."""


@pytest.fixture(scope="session")
def proxy() -> Iterator[str]:
    """The address at which each test finds an empty context."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Proxy)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


_contexts = itertools.count(1)


@pytest.fixture(autouse=True)
def empty_registry(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    """Tests of serializers get a context of their own, whose first id is 1; the others an empty registry."""
    if getattr(request.module, "_BASE_URL", None) == MOCK:
        _Proxy.context = f".test{next(_contexts)}"
        forget_keys()
        monkeypatch.setattr(request.module, "_BASE_URL", proxy)
    elif "tests.integration" in request.module.__name__:
        forget_everything()
