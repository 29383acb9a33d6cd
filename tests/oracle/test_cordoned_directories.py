"""Cordoned log directories: the same requests to Apache Kafka and to Ottla."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.testing.apache import ApacheKafka, java_is_here
from ottla.testing.process import BrokerProcess
from ottla.testing.raw_client import RawClient
from ottla.wire import messages as m

pytestmark = [
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.skipif(not java_is_here(), reason="needs Java and Maven"),
]

_BROKER = 4
_SET, _DELETE = 0, 1
_KEY = "cordoned.log.dirs"
_PATIENCE_S = 60.0


class Node:
    """One node with the log directories `one` and `two`."""

    def __init__(self, directory: Path, client: RawClient) -> None:
        self.one, self.two = (str(directory / name) for name in ("one", "two"))
        self._client = client

    def cordon(self, value: str | None, broker: str = "1") -> int:
        """Set what is cordoned, or nothing any more."""
        request = m.IncrementalAlterConfigsRequest
        operation = _DELETE if value is None else _SET
        config = request.AlterableConfig(name=_KEY, config_operation=operation, value=value)
        resource = request.AlterConfigsResource(resource_type=_BROKER, resource_name=broker, configs=[config])
        return int(self._client.ask(request(resources=[resource]), 1).responses[0].error_code)

    def create(self, topic: str, assignment: list[int] | None = None) -> int:
        request = m.CreateTopicsRequest
        new = request.CreatableTopic(name=topic, num_partitions=4, replication_factor=1)
        if assignment is not None:
            new = request.CreatableTopic(
                name=topic,
                num_partitions=-1,
                replication_factor=-1,
                assignments=[request.CreatableReplicaAssignment(partition_index=0, broker_ids=assignment)],
            )
        return int(self._client.ask(request(topics=[new], timeout_ms=10_000), 7).topics[0].error_code)

    def move(self, topic: str, path: str) -> int:
        request = m.AlterReplicaLogDirsRequest
        topics = [request.AlterReplicaLogDirTopic(name=topic, partitions=[0])]
        asked = request(dirs=[request.AlterReplicaLogDir(path=path, topics=topics)])
        return int(self._client.ask(asked, 2).results[0].partitions[0].error_code)

    def directories(self) -> dict[str, Any]:
        answer = self._client.ask(m.DescribeLogDirsRequest(topics=None), 5)
        return {result.log_dir: result for result in answer.results}

    def cordoned(self) -> set[str]:
        return {path for path, result in self.directories().items() if result.is_cordoned}

    def logs_in(self, path: str, topic: str) -> int:
        topics = self.directories()[path].topics
        return sum(len(each.partitions) for each in topics if each.name == topic)


@pytest.fixture(params=["kafka", "ottla"])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Node]:
    settings = {"log.dirs": f"{tmp_path}/one,{tmp_path}/two"}
    if request.param == "kafka":
        kafka = ApacheKafka(tmp_path, settings)
        kafka.format()
        try:
            kafka.start()
            with RawClient("127.0.0.1", kafka.port, timeout_s=30) as client:
                yield Node(tmp_path, client)
        finally:
            kafka.kill()
        return
    properties = tmp_path / "server.properties"
    given = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "listeners": "PLAINTEXT://127.0.0.1:0",
        **settings,
    }
    properties.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
    with (
        BrokerProcess(tmp_path / "node", config=properties) as broker,
        RawClient(broker.host, broker.port, timeout_s=30) as client,
    ):
        yield Node(tmp_path, client)


def until(condition: Callable[[], bool]) -> None:
    """Ask until it is so; what is asked takes its time."""
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline


def test_a_cordoned_directory_gets_nothing_new(node: Node) -> None:
    assert node.create("before") == ErrorCode.NONE
    until(lambda: node.logs_in(node.one, "before") == 2)
    assert node.cordon(node.one) == ErrorCode.NONE
    until(lambda: node.cordoned() == {node.one})
    assert node.create("after") == ErrorCode.NONE
    until(lambda: node.logs_in(node.two, "after") == 4)
    assert node.logs_in(node.one, "before") == 2
    assert node.move("after", node.one) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert node.move("after", node.two) == ErrorCode.NONE
    # What the broker has not got, and what is not for all brokers.
    assert node.cordon("/elsewhere") == ErrorCode.INVALID_REQUEST
    assert node.cordon(f"*,{node.one}") == ErrorCode.INVALID_REQUEST
    assert node.cordon(node.one, broker="") == ErrorCode.INVALID_REQUEST
    assert node.cordoned() == {node.one}


def test_a_broker_whose_directories_are_all_cordoned_gets_no_replicas(node: Node) -> None:
    assert node.cordon("*") == ErrorCode.NONE
    # The controller hears of it from the broker; until then it makes topics, each of which is there only once.
    names = (f"refused-{number}" for number in itertools.count())
    until(lambda: node.create(next(names)) == ErrorCode.INVALID_REPLICATION_FACTOR)
    assert node.create("refused too") == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert node.create("refused-too") == ErrorCode.INVALID_REPLICATION_FACTOR
    assert node.create("by-hand", assignment=[1]) == ErrorCode.NONE
    assert node.cordon(None) == ErrorCode.NONE
    until(lambda: node.create("welcome") == ErrorCode.NONE)
    assert node.cordoned() == set()
