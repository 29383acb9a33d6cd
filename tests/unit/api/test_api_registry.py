"""The registry lists every API by its file, and loads the file at the first request."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ottla.api.registry import supported
from ottla.wire.apis import API_VERSIONS, ApiKey


@pytest.mark.parametrize("controllers", [False, True])
def test_every_stable_version_is_advertised(controllers: bool) -> None:
    apis = supported(on_controller_listener=controllers)
    assert [advertised.key for advertised in apis.advertised()] == sorted(apis)
    for advertised in apis.advertised():
        api = apis[advertised.key]
        assert api.key == advertised.key
        first = 3 if api.key == ApiKey.PRODUCE else advertised.min_version
        assert api.versions == range(first, advertised.max_version + 1)


def test_produce_is_advertised_from_0_for_old_librdkafka_clients() -> None:
    apis = supported(on_controller_listener=False)
    assert next(iter(apis.advertised())) == (ApiKey.PRODUCE, 0, 13)


@pytest.mark.parametrize("controllers", [False, True])
def test_the_docstring_of_an_api_file_opens_with_its_key_and_versions(controllers: bool) -> None:
    apis = supported(on_controller_listener=controllers)
    for key in apis:
        first, last = apis[key].versions[0], apis[key].versions[-1]
        versions = f"version {first}" if first == last else f"versions {first}-{last}"
        documentation = sys.modules[apis.module_name(key)].__doc__
        assert documentation is not None
        assert documentation.startswith(f"{API_VERSIONS[key].name} (key {key}), {versions}.\n")


def test_an_api_that_is_not_served_is_not_there() -> None:
    apis = supported(on_controller_listener=False)
    assert ApiKey.PRODUCE in apis
    assert ApiKey.VOTE not in apis
    assert apis.get(ApiKey.VOTE) is None


def test_a_server_is_loaded_without_what_its_first_response_does_not_need() -> None:
    """APIs and coordinators are half of all modules; the others serve settings that most nodes do not have."""
    code = "import sys, ottla.cli.start, ottla.server; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "ottla.server.node" in loaded
    assert "ottla.api.data.produce" not in loaded
    assert "ottla.coordinator.group.shard" not in loaded
    needed_later = {
        "cryptography",
        "json",
        "ottla.cli.child_node",
        "ottla.coordinator.transaction.marker_manager",
        "ottla.credentials.delegation_tokens",
        "ottla.credentials.jaas",
        "ottla.log.cleaner.compaction",
        "ottla.metrics.http",
        "ottla.replica.replica_fetcher",
        "ottla.security.audit",
        "ottla.security.authorizer",
        "ottla.server.http_endpoint",
        "shutil",
    }
    assert not needed_later.intersection(loaded)
