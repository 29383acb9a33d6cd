"""The same programs on kafka-python and on Ottla's clients, against one broker: a user must see the same."""

from __future__ import annotations

import itertools

import pytest

from integration.client_scripts import SCRIPTS, two_sides
from ottla.testing import running_broker

_PARTITIONS = {"metadata_and_records": 1, "serializers_and_iteration": 1}
_numbers = itertools.count(1)

# kafka-python warns of plain functions as serializers, which every course uses.
# It also leaves sockets to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def bootstrap():
    with running_broker(settings={"group.min.session.timeout.ms": 1000}) as broker:
        yield broker.bootstrap


def make_topic(bootstrap, topic, partitions):
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(60)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_a_program_sees_the_same_on_both(bootstrap, script):
    seen = {}
    for side, api in two_sides().items():
        name = f"{script.__name__.replace('_', '-')}-{next(_numbers)}-{side[0]}"
        make_topic(bootstrap, name, _PARTITIONS.get(script.__name__, 4))
        seen[side] = script(api, bootstrap, name, f"group-{name}")
    assert seen["ottla"] == seen["kafka-python"]
