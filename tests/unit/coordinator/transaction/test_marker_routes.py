"""Markers find the leaders of their partitions, wherever they are and wherever they go."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from ottla.coordinator.transaction.marker_manager import (
    RETRY_MS,
    MarkersDone,
    TransactionMarkerManager,
    TxnMarker,
)
from ottla.coordinator.transaction.marker_router import TransactionMarkerRouter
from ottla.coordinator.transaction.state import TransactionMetadata, TransactionState
from ottla.errors import ErrorCode
from ottla.log.types import TopicPartition
from ottla.wire.messages import WriteTxnMarkersResponse
from unit.coordinator.brokers_rig import HERE, Brokers

A, B, C = (TopicPartition("t", index) for index in range(3))


class Here:
    """The partitions of this broker take every marker."""

    def __init__(self) -> None:
        self.written: list[TopicPartition] = []

    def write(self, marker: TxnMarker, partitions: Iterable[TopicPartition], done: MarkersDone) -> None:
        asked = list(partitions)
        self.written += asked
        done(dict.fromkeys(asked, ErrorCode.NONE))


class Scene(Brokers):
    def __init__(self) -> None:
        super().__init__(2, 3)
        self.lead("t", HERE, 2, 3)
        self.here = Here()
        self.complete: list[str] = []
        self.routes = TransactionMarkerRouter(
            HERE, self.clock, lambda: self.image, self.here, self.peers(), 30.0
        )
        self.sender = TransactionMarkerManager(
            self.clock,
            self.routes,
            exists=lambda tp: tp.partition in self.image.topics.by_name[tp.topic].partitions,
            on_complete=lambda partition, prepared: self.complete.append(prepared.transactional_id),
        )

    def end(self, name: str, *partitions: TopicPartition, producer_id: int = 7) -> None:
        prepared = TransactionMetadata(
            name,
            producer_id,
            3,
            60_000,
            state=TransactionState.PREPARE_COMMIT,
            partitions=frozenset(partitions),
            client_version=2,
        )
        self.sender.add(0, 5, prepared)

    def move(self, *leaders: int) -> None:
        self.lead("t", *leaders)
        self.routes.leaders_changed(self.image)


def answer(request: Any, code: ErrorCode = ErrorCode.NONE) -> Any:
    response = WriteTxnMarkersResponse
    return response(
        markers=[
            response.WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    response.WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            response.WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_each_leader_gets_the_markers_of_its_partitions(scene: Scene) -> None:
    scene.end("job", A, B, C)
    scene.settle()
    assert scene.here.written == [A]
    assert [broker for broker, _, _ in scene.sent] == [2, 3]
    for _, request, respond in scene.sent:
        (marker,) = request.markers
        assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 3, 5)
        assert marker.transaction_result and marker.transaction_version == 2
        assert not scene.complete
        respond(answer(request))
        scene.settle()
    assert scene.complete == ["job"]


def test_transactions_that_end_in_one_turn_share_a_request(scene: Scene) -> None:
    scene.end("one", B, producer_id=1)
    scene.end("two", B, producer_id=2)
    broker, request, respond = scene.take()
    assert (broker, [marker.producer_id for marker in request.markers]) == (2, [1, 2])
    respond(answer(request))
    scene.settle()
    assert scene.complete == ["one", "two"]


def test_a_refused_marker_is_sent_again_to_whoever_leads_then(scene: Scene) -> None:
    scene.end("job", B)
    _, request, respond = scene.take()
    respond(answer(request, ErrorCode.NOT_LEADER_OR_FOLLOWER))
    scene.lead("t", HERE, 3, 3)
    scene.clock.advance_ms(RETRY_MS)
    broker, request, respond = scene.take()
    assert broker == 3
    respond(answer(request))
    scene.settle()
    assert scene.complete == ["job"]


def test_nobody_waits_for_a_leader_that_was_replaced(scene: Scene) -> None:
    scene.end("job", B)
    _, request, respond = scene.take()
    scene.move(HERE, HERE, 3)
    scene.clock.advance_ms(RETRY_MS)
    assert scene.here.written == [B] and scene.complete == ["job"]
    respond(answer(request))
    scene.settle()
    assert scene.complete == ["job"]


def test_a_broker_that_died_is_tried_until_its_partitions_have_another_leader(scene: Scene) -> None:
    scene.network.stop(2)
    scene.end("job", A, B)
    scene.clock.advance_ms(5 * RETRY_MS)
    assert not scene.complete and len(scene.sender) == 1
    scene.move(HERE, -1, 3)
    scene.clock.advance_ms(2 * RETRY_MS)
    assert not scene.complete
    scene.move(HERE, 3, 3)
    scene.clock.advance_ms(RETRY_MS)
    _, request, respond = scene.take()
    respond(answer(request))
    scene.settle()
    assert scene.complete == ["job"]
    assert scene.here.written == [A]


def test_a_deleted_topic_needs_no_marker(scene: Scene) -> None:
    scene.end("job", B)
    _, request, respond = scene.take()
    scene.lead("t", HERE)
    respond(answer(request, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    scene.clock.advance_ms(2 * RETRY_MS)
    assert scene.complete == ["job"] and not scene.sent


def test_a_fenced_coordinator_leaves_the_rest_to_its_successor(scene: Scene) -> None:
    scene.end("job", B, C)
    scene.settle()
    (_, request, respond), _ = scene.sent
    respond(answer(request, ErrorCode.TRANSACTION_COORDINATOR_FENCED))
    scene.settle()
    scene.sent.clear()
    scene.clock.advance_ms(5 * RETRY_MS)
    assert not scene.sent and not scene.complete and not len(scene.sender)


def test_a_broker_that_moved_is_reached_at_its_new_address(scene: Scene) -> None:
    scene.end("job", B)
    _, request, respond = scene.take()
    respond(answer(request))
    scene.settle()
    peers = scene.peers()
    before = peers.to(2)
    assert before is not None and peers.to(2) is before
    other = scene.image.brokers[3]
    scene.image = type(scene.image)(brokers={**scene.image.brokers, 2: other}, topics=scene.image.topics)
    after = peers.to(2)
    assert after is not None and after.endpoint.host == "broker3"
    scene.image = type(scene.image)(topics=scene.image.topics)
    assert peers.to(2) is None
