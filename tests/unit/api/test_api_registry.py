"""What is told of an API without loading it is what its file says."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ottla.api.registry import supported
from ottla.wire.apis import ApiKey


@pytest.mark.parametrize("controllers", [False, True])
def test_what_is_told_of_an_api_is_what_its_file_declares(controllers: bool) -> None:
    apis = supported(on_controller_listener=controllers)
    for told in apis.advertised():
        api = apis[told.key]
        assert (api.key, api.min_version, api.max_version) == told
    assert [told.key for told in apis.advertised()] == sorted(apis)


def test_an_api_that_is_not_served_is_not_there() -> None:
    apis = supported(on_controller_listener=False)
    assert ApiKey.PRODUCE in apis
    assert ApiKey.VOTE not in apis
    assert apis.get(ApiKey.VOTE) is None


def test_a_server_is_loaded_without_apis_and_coordinators() -> None:
    """They are half of all modules: a broker answers sooner when they come later."""
    code = "import sys, ottla.server; print(*(name for name in sys.modules if name.startswith('ottla.')))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "ottla.server.node" in loaded
    assert "ottla.api.data.produce" not in loaded
    assert "ottla.coordinator.group.shard" not in loaded
