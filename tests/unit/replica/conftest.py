"""The stage that the tests of this directory share."""

from __future__ import annotations

import pytest

from unit.replica.replica_scene import Scene, make_scene


@pytest.fixture
def scene() -> Scene:
    """A broker's replica side on real logs in memory and a virtual clock; threads are played by the test."""
    return make_scene()
