"""Decisions about transactions and the commits of their records: no marker is sent before the decision is committed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from ottla.config.broker import BrokerConfig
from ottla.coordinator.transaction.add_partitions_manager import AddPartitionsToTxnManager
from ottla.coordinator.transaction.end import EndRequest
from ottla.coordinator.transaction.init import InitRequest
from ottla.coordinator.transaction.marker_manager import MarkersDone, TxnMarker
from ottla.coordinator.transaction.marker_router import TransactionMarkerRouter
from ottla.coordinator.transaction.service import SERDE, TransactionCoordinator
from ottla.coordinator.transaction.state import TransactionState
from ottla.errors import ErrorCode
from ottla.log.types import TopicPartition
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE
from unit.coordinator.brokers_rig import HERE, Brokers
from unit.coordinator.coordinator_rig import TOPIC, Answer, RuntimeRig

A = TopicPartition("t", 0)


class ProducerIds:
    def next_id(self, done: Any) -> None:
        done(7, None)


class Scene:
    """A transaction coordinator whose log can lag behind; it keeps the markers that it would have written."""

    def __init__(self) -> None:
        self.brokers = Brokers()
        self.brokers.lead(TOPIC, HERE)
        self.brokers.lead("t", HERE)
        self.markers: list[TxnMarker] = []
        self.rig: RuntimeRig
        peers = self.brokers.peers()

        def make_runtime(new_shard: Any) -> Any:
            self.rig = RuntimeRig(new_shard, SERDE, reload_in_new_epoch=True)
            return self.rig.runtime

        config = BrokerConfig.single_node({})
        self.coordinator = TransactionCoordinator(
            config,
            self.brokers.clock,
            ProducerIds(),
            TransactionMarkerRouter(HERE, self.brokers.clock, lambda: self.brokers.image, self, peers, 30.0),
            AddPartitionsToTxnManager(self.brokers.clock, peers, 30.0),
            exists=lambda tp: True,
            transaction_version=lambda: 2,
            make_runtime=make_runtime,
        )
        image = self.brokers.image
        self.coordinator.publish(MetadataDelta.between(EMPTY_IMAGE, image), image, HERE)
        self.rig.settle()
        self.ask(
            self.coordinator.init_producer_id,
            InitRequest("job", 60_000),
            two_phase=False,
            keep_prepared=False,
        ).get()

    def write(self, marker: TxnMarker, partitions: Iterable[TopicPartition], done: MarkersDone) -> None:
        self.markers.append(marker)
        done(dict.fromkeys(partitions, ErrorCode.NONE))

    def ask(self, operation: Any, *words: Any, **options: Any) -> Answer:
        answer = Answer()
        operation(*words, done=answer.outcomes.append, failed=answer.outcomes.append, **options)
        self.rig.settle()
        return answer

    def add(self) -> Answer:
        return self.ask(self.coordinator.add_partitions, "job", 7, 0, [A], 2)

    def commit(self) -> Answer:
        return self.ask(self.coordinator.end_transaction, EndRequest("job", 7, 0, True))

    @property
    def state(self) -> TransactionState:
        found = self.rig.shard.find("job")
        return found.state  # type: ignore[no-any-return]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_markers_follow_the_committed_decision(scene: Scene) -> None:
    scene.add().get()
    scene.rig.partition.replicas_lag = True
    answer = scene.commit()
    assert not answer.there and not scene.markers
    scene.rig.partition.replicas_lag = False
    scene.rig.partition.catch_up()
    assert answer.get().producer_epoch == 1
    assert len(scene.markers) == 1 and scene.state is TransactionState.COMPLETE_COMMIT


def test_a_decision_that_was_committed_late_is_brought_to_its_end(scene: Scene) -> None:
    scene.add().get()
    scene.rig.partition.replicas_lag = True
    answer = scene.commit()
    scene.rig.clock.advance(6)
    assert answer.code == ErrorCode.COORDINATOR_NOT_AVAILABLE and not scene.markers
    scene.rig.partition.replicas_lag = False
    scene.rig.partition.catch_up()
    assert len(scene.markers) == 1 and scene.state is TransactionState.COMPLETE_COMMIT


def test_a_new_leader_sends_markers_only_of_what_is_committed(scene: Scene) -> None:
    scene.add().get()
    scene.rig.partition.replicas_lag = True
    answer = scene.commit()
    scene.coordinator.runtime.elect(0, 4)
    scene.rig.settle()
    assert answer.code == ErrorCode.NOT_COORDINATOR
    assert scene.state is TransactionState.PREPARE_COMMIT and not scene.markers
    scene.rig.clock.advance(20)
    assert not scene.markers
    scene.rig.partition.replicas_lag = False
    scene.rig.partition.catch_up()
    assert [(marker.commit, marker.coordinator_epoch) for marker in scene.markers] == [(True, 4)]
    assert scene.state is TransactionState.COMPLETE_COMMIT


def test_who_no_longer_leads_sends_no_markers(scene: Scene) -> None:
    scene.add().get()
    scene.rig.partition.replicas_lag = True
    answer = scene.commit()
    scene.coordinator.runtime.resign(0, 1)
    scene.rig.partition.catch_up()
    assert answer.code == ErrorCode.NOT_COORDINATOR and not scene.markers
