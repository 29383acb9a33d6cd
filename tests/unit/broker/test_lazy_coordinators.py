"""Coordinators that were never needed, on a broker that is stopping."""

from __future__ import annotations

import pytest

from ottla.broker.coordinators import Coordinators, CoordinatorSet
from ottla.errors import ApiException, ErrorCode
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE
from ottla.metadata.topic_names import OFFSETS_TOPIC
from ottla.wire.messages import TopicRecord


def make() -> CoordinatorSet:
    raise AssertionError("nobody needs them any more")


def test_a_stopping_broker_hears_of_the_first_group_without_coordinating_it() -> None:
    """Seed 20 of the simulator: the broker took the news for a failure of its own."""
    coordinators = Coordinators(make)
    coordinators.stop_groups()
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay(TopicRecord(name=OFFSETS_TOPIC, topic_id=bytes(15) + b"1"))
    coordinators.publish(delta, delta.apply(1, 1), node_id=1)
    with pytest.raises(ApiException) as e:
        coordinators.get()
    assert e.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
