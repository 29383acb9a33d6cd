"""The latest offset of a partition is asked of its leader, which is often another broker than the coordinator."""

from __future__ import annotations

from typing import Any

from ottla.coordinator.share.partition_metadata import PartitionMetadataClient
from ottla.errors import ApiException, ErrorCode
from ottla.metadata.image import NO_LEADER
from ottla.wire.messages import ListOffsetsResponse
from unit.coordinator.brokers_rig import HERE, Brokers


class Scene(Brokers):
    def __init__(self, *leaders: int) -> None:
        super().__init__(2, 3)
        self.lead("orders", *leaders)
        self.client = PartitionMetadataClient(
            HERE, self.clock, lambda: self.image, self._local, self.peers(), 30.0
        )

    def _local(self, topic: str, partition: int) -> int:
        if partition == 9:
            raise ApiException(ErrorCode.NOT_LEADER_OR_FOLLOWER, "no longer")
        return 70 + partition

    def ask(self, *partitions: int) -> list[Any]:
        answers: list[Any] = []
        for partition in partitions:
            self.client.latest_offset("orders", partition, answers.append)
        return answers


def answer(request: Any, *errors: int) -> ListOffsetsResponse:
    response = ListOffsetsResponse
    return response(
        topics=[
            response.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    response.ListOffsetsPartitionResponse(
                        partition_index=part.partition_index,
                        offset=10 + part.partition_index,
                        error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER if part.partition_index in errors else 0,
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def test_another_broker_that_leads_is_asked_once_for_all_its_partitions() -> None:
    scene = Scene(2, 2, HERE)
    answers = scene.ask(0, 1, 2)
    assert answers == [72]
    broker, request, respond = scene.take()
    (topic,) = request.topics
    assert (broker, topic.name) == (2, "orders")
    assert [(part.partition_index, part.timestamp) for part in topic.partitions] == [(0, -1), (1, -1)]
    respond(answer(request))
    scene.settle()
    assert answers == [72, 10, 11]


def test_every_failure_is_an_error_of_kafka() -> None:
    scene = Scene(2, 2, NO_LEADER, 3)
    answers = scene.ask(0, 2)
    assert [error.code for error in answers] == [ErrorCode.LEADER_NOT_AVAILABLE]
    _, request, respond = scene.take()
    respond(answer(request, 0))
    scene.settle()
    assert [error.code for error in answers[1:]] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    answers = scene.ask(1)
    scene.take()
    scene.clock.advance_ms(31_000)
    assert [error.code for error in answers] == [ErrorCode.REQUEST_TIMED_OUT]


def test_a_broker_that_no_longer_leads_says_so() -> None:
    answers = Scene(*[HERE] * 10).ask(9)
    assert [error.code for error in answers] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
