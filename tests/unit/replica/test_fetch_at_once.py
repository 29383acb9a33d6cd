"""How much a consumer gets in one answer: not all that it would take, but as much as it insists on."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.api.data import fetch
from ottla.wire.messages import FetchRequest
from unit.replica.replica_scene import Context, Scene, make_scene

MB = 1 << 20
PARTITIONS = 12


@pytest.fixture
def scene() -> Scene:
    scene = make_scene()
    scene.create_topic("t", PARTITIONS)
    for index in range(PARTITIONS):
        for _ in range(4):
            scene.append("t", index, bytes(MB // 2 - 100))
    return scene


def ask(scene: Scene, partition_max: int, **options: Any) -> list[int]:
    """The bytes of each partition in the answer to a consumer that would take everything."""
    request = FetchRequest(
        max_wait_ms=0,
        max_bytes=100 * MB,
        topics=[
            FetchRequest.FetchTopic(
                topic="t",
                partitions=[
                    FetchRequest.FetchPartition(
                        partition=index, fetch_offset=0, partition_max_bytes=partition_max
                    )
                    for index in range(PARTITIONS)
                ],
            )
        ],
        session_id=0,
        session_epoch=-1,
        **options,
    )
    answer: Any = fetch.API.handle(scene.broker, Context(12), request)
    (topic,) = answer.responses
    return [len(part.records) for part in topic.partitions]


def test_the_last_partitions_wait_for_the_next_request(scene: Scene) -> None:
    sizes = ask(scene, MB)
    assert 7 * MB < sum(sizes) <= 8 * MB
    assert all(sizes[:8])
    assert not any(sizes[8:])


def test_who_waits_for_more_gets_more(scene: Scene) -> None:
    assert 10 * MB < sum(ask(scene, MB, min_bytes=11 * MB)) <= 11 * MB


def test_who_takes_more_of_a_partition_gets_it(scene: Scene) -> None:
    assert 19 * MB < sum(ask(scene, 20 * MB)) <= 20 * MB
