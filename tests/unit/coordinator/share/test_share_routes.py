"""Share state is asked of the broker that keeps it: one request per group and turn, again when that broker changes."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.coordinator.runtime import partition_for
from ottla.coordinator.share.persister import SharePersister
from ottla.coordinator.share.routes import ShareStateRoutes
from ottla.coordinator.share.service import StateApi
from ottla.coordinator.share.state import StateKey
from ottla.errors import ErrorCode
from ottla.metadata.endpoints import leader_of
from ottla.metadata.topic_names import SHARE_STATE_TOPIC
from ottla.wire.messages import ReadShareGroupStateRequest, ReadShareGroupStateResponse
from unit.coordinator.brokers_rig import HERE, Brokers

TOPIC_ID = b"t" * 16


class Runtime:
    """What the routes ask of the coordinator's runtime."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    @property
    def partition_count(self) -> int:
        topic = self._brokers.image.topics.by_name.get(SHARE_STATE_TOPIC)
        return 0 if topic is None else len(topic.partitions)

    def leader_of(self, partition: int) -> int:
        return leader_of(self._brokers.image, SHARE_STATE_TOPIC, partition)


class Here:
    """The share coordinator of this broker."""

    def __init__(self, brokers: Brokers) -> None:
        self.runtime = Runtime(brokers)
        self.asked: list[StateKey] = []

    def ask(self, api: StateApi, key: StateKey, part: Any, done: Any) -> None:
        self.asked.append(key)
        code = ErrorCode.NONE if self.runtime.partition_count else ErrorCode.COORDINATOR_NOT_AVAILABLE
        response: Any = api.response
        done(response.PartitionResult(partition=key.partition, error_code=code))


class Scene(Brokers):
    def __init__(self) -> None:
        super().__init__(2, 3)
        self.lead(SHARE_STATE_TOPIC, 2)
        self.here = Here(self)
        self.made = 0
        self.routes = ShareStateRoutes(HERE, self.clock, self.here, self.peers(), 30.0)  # type: ignore[arg-type]
        self.persister = SharePersister(self.routes.ask, self.clock, self._make_topic)

    def _make_topic(self) -> None:
        self.made += 1
        self.lead(SHARE_STATE_TOPIC, HERE)

    def read(self, *partitions: int) -> list[Any]:
        request, answers = ReadShareGroupStateRequest, []
        self.persister.read_state(
            request(
                group_id="g",
                topics=[
                    request.ReadStateData(
                        topic_id=TOPIC_ID,
                        partitions=[
                            request.PartitionData(partition=index, leader_epoch=4) for index in partitions
                        ],
                    )
                ],
            ),
            answers.append,
        )
        return answers

    def move(self, leader: int) -> None:
        self.lead(SHARE_STATE_TOPIC, leader)
        self.routes.leaders_changed()


def answer(request: Any) -> Any:
    response = ReadShareGroupStateResponse
    return response(
        results=[
            response.ReadStateResult(
                topic_id=topic.topic_id,
                partitions=[
                    response.PartitionResult(partition=part.partition, start_offset=part.partition * 10)
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_the_partitions_of_a_group_are_asked_about_together(scene: Scene) -> None:
    answers = scene.read(0, 1)
    broker, request, respond = scene.take()
    assert broker == 2 and request.group_id == "g"
    assert [(part.partition, part.leader_epoch) for part in request.topics[0].partitions] == [(0, 4), (1, 4)]
    respond(answer(request))
    scene.settle()
    (response,) = answers
    assert [part.start_offset for part in response.results[0].partitions] == [0, 10]


def test_what_is_kept_here_is_not_asked_over_the_wire(scene: Scene) -> None:
    scene.lead(SHARE_STATE_TOPIC, HERE)
    assert scene.read(0)
    scene.settle()
    assert scene.here.asked == [StateKey("g", TOPIC_ID, 0)] and not scene.sent


def test_a_coordinator_that_moves_is_followed(scene: Scene) -> None:
    answers = scene.read(0)
    _, _, late = scene.take()
    scene.move(3)
    scene.clock.advance_ms(50)
    ((broker, request, respond),) = scene.sent
    assert broker == 3 and not answers
    respond(answer(request))
    scene.settle()
    assert answers[0].results[0].partitions[0].error_code == ErrorCode.NONE
    late(answer(request))
    scene.settle()
    assert len(answers) == 1


def test_a_coordinator_that_dies_is_asked_for_until_there_is_another(scene: Scene) -> None:
    scene.network.stop(2)
    answers = scene.read(0)
    scene.clock.advance_ms(300)
    scene.move(-1)
    scene.clock.advance_ms(300)
    assert not answers
    scene.move(HERE)
    scene.clock.advance_ms(1000)
    assert answers and scene.here.asked


def test_the_topic_is_made_when_it_is_missing(scene: Scene) -> None:
    scene.image = type(scene.image)(brokers=scene.image.brokers)
    answers = scene.read(0)
    scene.clock.advance_ms(100)
    assert scene.made == 1 and answers


def test_all_share_partitions_of_a_group_need_not_be_in_one_place(scene: Scene) -> None:
    scene.lead(SHARE_STATE_TOPIC, 2, 3)
    answers = scene.read(*range(6))
    scene.settle()
    for broker, request, respond in list(scene.sent):
        for part in request.topics[0].partitions:
            key = StateKey("g", TOPIC_ID, part.partition).coordinator_key
            assert (2, 3)[partition_for(key, 2)] == broker
        respond(answer(request))
    scene.settle()
    assert [part.start_offset for part in answers[0].results[0].partitions] == [0, 10, 20, 30, 40, 50]
