"""When a stopping broker waits no longer: the quorum has no leader that could move its leaderships away."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.server.node import is_led


@pytest.mark.parametrize("heard", [True, False])
def test_a_follower_is_led_while_the_leader_responds(heard: bool) -> None:
    raft: Any = SimpleNamespace(is_leader=False, hears_leader=heard)
    assert is_led(raft, 1, 5000) is heard


@pytest.mark.parametrize(("fetched_ms", "led"), [(4500, True), (3000, False)])
def test_a_leader_needs_a_majority_that_fetches(fetched_ms: int, led: bool) -> None:
    times = {1: -1, 2: fetched_ms, 3: -1}
    voters = [
        SimpleNamespace(key=SimpleNamespace(id=node_id), last_fetch_timestamp=at_ms)
        for node_id, at_ms in times.items()
    ]
    raft: Any = SimpleNamespace(is_leader=True, describe_quorum=lambda: SimpleNamespace(voters=voters))
    assert is_led(raft, 1, 5000) is led
