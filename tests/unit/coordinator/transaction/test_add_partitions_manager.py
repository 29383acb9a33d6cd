"""Questions to transaction coordinators on other brokers: many in a request, each with its answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ottla.coordinator.transaction.add_partitions_manager import (
    AddPartitionsToTxnManager,
    VerificationRequest,
)
from ottla.errors import ErrorCode
from ottla.log.types import TopicPartition
from ottla.wire.messages import AddPartitionsToTxnResponse
from unit.coordinator.brokers_rig import Brokers

A, B = TopicPartition("t", 0), TopicPartition("t", 1)

Codes = Mapping[TopicPartition, ErrorCode]


class Scene(Brokers):
    def __init__(self) -> None:
        super().__init__(2)
        self.manager = AddPartitionsToTxnManager(self.clock, self.peers(), 30.0)

    def ask(
        self, name: str, *partitions: TopicPartition, epoch: int = 0, verify: bool = False
    ) -> list[Codes]:
        answers: list[Codes] = []
        self.manager.send(2, VerificationRequest(name, 7, epoch, partitions, verify, answers.append))
        return answers


def answer(request: Any, codes: Mapping[tuple[str, TopicPartition], ErrorCode]) -> Any:
    response = AddPartitionsToTxnResponse
    return response(
        results_by_transaction=[
            response.AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id,
                topic_results=[
                    response.AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            response.AddPartitionsToTxnPartitionResult(
                                partition_index=index,
                                partition_error_code=codes.get(
                                    (transaction.transactional_id, TopicPartition(topic.name, index)), 0
                                ),
                            )
                            for index in topic.partitions
                        ],
                    )
                    for topic in transaction.topics
                ],
            )
            for transaction in request.transactions
        ]
    )


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_the_questions_of_one_turn_share_a_request_and_each_has_its_answer(scene: Scene) -> None:
    one, two, other = scene.ask("job", A), scene.ask("job", B), scene.ask("other", A)
    _, request, respond = scene.take()
    assert [t.transactional_id for t in request.transactions] == ["job", "other"]
    assert request.transactions[0].topics[0].partitions == [0, 1]
    assert not request.transactions[0].verify_only
    respond(answer(request, {("job", B): ErrorCode.PRODUCER_FENCED}))
    scene.settle()
    assert one == [{A: ErrorCode.NONE}]
    assert two == [{B: ErrorCode.PRODUCER_FENCED}]
    assert other == [{A: ErrorCode.NONE}]


def test_what_cannot_be_asked_as_one_goes_in_requests_of_its_own(scene: Scene) -> None:
    old, new, asked = (
        scene.ask("job", A, epoch=1),
        scene.ask("job", A, epoch=2),
        scene.ask("job", B, verify=True),
    )
    scene.settle()
    assert [request.transactions[0].producer_epoch for _, request, _ in scene.sent] == [1, 2, 0]
    for _, request, respond in scene.sent:
        code = ErrorCode.PRODUCER_FENCED if request.transactions[0].producer_epoch == 1 else ErrorCode.NONE
        respond(answer(request, {("job", A): code}))
    scene.settle()
    assert (old, new) == ([{A: ErrorCode.PRODUCER_FENCED}], [{A: ErrorCode.NONE}])
    assert asked == [{B: ErrorCode.NONE}]


def test_a_coordinator_that_dies_is_a_network_exception(scene: Scene) -> None:
    waiting = scene.ask("job", A, B)
    scene.settle()
    scene.network.stop(2)
    scene.settle()
    assert waiting == [dict.fromkeys((A, B), ErrorCode.NETWORK_EXCEPTION)]
    afterwards = scene.ask("job", A)
    scene.settle()
    assert afterwards == [{A: ErrorCode.NETWORK_EXCEPTION}]


def test_an_error_of_the_whole_request_is_everyones(scene: Scene) -> None:
    one, other = scene.ask("job", A), scene.ask("other", B)
    _, _, respond = scene.take()
    respond(AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    scene.settle()
    assert one == [{A: ErrorCode.INVALID_TXN_STATE}]
    assert other == [{B: ErrorCode.INVALID_TXN_STATE}]


def test_a_broker_that_left_is_not_asked(scene: Scene) -> None:
    scene.image = type(scene.image)()
    waiting = scene.ask("job", A)
    scene.settle()
    assert waiting == [{A: ErrorCode.NETWORK_EXCEPTION}]
