"""The listener of a controller: what other nodes ask there, in every version, and who is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from integration.controller_requests import NODE_REQUESTS
from ottla.errors import ErrorCode
from ottla.testing.cluster import FIRST_CONTROLLER_ID, Cluster
from ottla.wire import messages
from ottla.wire.apis import ApiKey

CONTROLLER = FIRST_CONTROLLER_ID


class Asked:
    name = "nowhere"
    topic_id = bytes(range(16))

    def __init__(self, version: int) -> None:
        self.version = version


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One broker, one controller."""
    with Cluster(tmp_path_factory.mktemp("pair"), 1, controllers=1) as nodes:
        yield nodes
        for node_id in nodes.nodes:
            assert "Traceback" not in nodes.log(node_id), nodes.log(node_id)


def listed(cluster: Cluster, node_id: int) -> dict[int, range]:
    answer = cluster.ask(messages.ApiVersionsRequest(), 0, node_id=node_id)
    return {api.api_key: range(api.min_version, api.max_version + 1) for api in answer.api_keys}


def test_what_nodes_ask_is_answered_in_every_version(pair: Cluster) -> None:
    served = listed(pair, CONTROLLER)
    codes: dict[str, set[int]] = {}
    for key, make in NODE_REQUESTS.items():
        for version in served[key]:
            answer = pair.ask(make(Asked(version)), version, node_id=CONTROLLER)
            codes.setdefault(ApiKey(key).name, set()).add(answer.error_code)
    assert codes == {
        "ALTER_PARTITION": {ErrorCode.STALE_BROKER_EPOCH},
        "BROKER_REGISTRATION": {ErrorCode.INCONSISTENT_CLUSTER_ID},
        "BROKER_HEARTBEAT": {ErrorCode.STALE_BROKER_EPOCH},
        "CONTROLLER_REGISTRATION": {ErrorCode.NONE},
        "ASSIGN_REPLICAS_TO_DIRS": {ErrorCode.STALE_BROKER_EPOCH},
        "ALLOCATE_PRODUCER_IDS": {ErrorCode.STALE_BROKER_EPOCH},
    }


def test_brokers_do_not_answer_for_the_controller(pair: Cluster) -> None:
    assert not set(NODE_REQUESTS) & set(listed(pair, 1))


def test_a_controller_takes_admin_requests_itself(pair: Cluster, topic: str) -> None:
    request = messages.CreateTopicsRequest
    new = request.CreatableTopic(name=topic, num_partitions=2, replication_factor=1)
    answer = pair.ask(request(topics=[new], timeout_ms=60_000), 7, node_id=CONTROLLER)
    assert answer.topics[0].error_code == 0
    pair.wait_for(lambda: pair.leader_of(topic, 1) == 1)
    found: Any = pair.partition(topic, 1)
    assert list(found.isr_nodes) == [1]
