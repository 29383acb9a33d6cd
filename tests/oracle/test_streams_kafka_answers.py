"""The same StreamsGroupHeartbeats to Apache Kafka and to Ottla: the same epochs, tasks, conditions, errors, topics."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oracle.kafka_tools import needs_java
from ottla.coordinator.group.shard import SERDE
from ottla.errors import ErrorCode
from ottla.records.batch import iter_batches, iter_records
from ottla.testing.apache import ApacheKafka
from ottla.testing.process import BrokerProcess
from ottla.testing.raw_client import RawClient
from ottla.wire import messages as m

pytestmark = [pytest.mark.java, pytest.mark.slow, needs_java]

AT_ONCE = {"group.streams.initial.rebalance.delay.ms": 0, "group.streams.assignment.interval.ms": 0}
NOT_YET = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)
request = m.StreamsGroupHeartbeatRequest


class Both:
    """A connection to each of the two; what they answer must be the same."""

    def __init__(self, kafka: RawClient, ottla: RawClient, directories: tuple[Path, Path]) -> None:
        self.clients = (kafka, ottla)
        self.directories = directories

    def ask(self, message: Any, version: int = 0) -> list[Any]:
        return [client.ask(message, version) for client in self.clients]

    def beat(self, group: str, member: str, epoch: int, **fields: Any) -> Any:
        """One heartbeat to both: Ottla's answer, after it was held against Kafka's."""
        message = request(group_id=group, member_id=member, member_epoch=epoch, **fields)
        kafka, ottla = self.ask(message)
        assert plain(ottla) == plain(kafka), f"Kafka: {kafka}\nOttla: {ottla}"
        return ottla

    def describe(self, group: str) -> Any:
        kafka, ottla = (
            answer.groups[0] for answer in self.ask(m.StreamsGroupDescribeRequest(group_ids=[group]))
        )
        for answer in (kafka, ottla):
            answer.error_message = None
            answer.members.sort(key=lambda member: member.member_id)
        assert ottla == kafka
        return ottla


def plain(answer: Any) -> dict[str, Any]:
    """What has to be the same: all but sentences, and the interval that Ottla shortens on purpose."""

    def tasks(structs: Any) -> Any:
        return None if structs is None else {one.subtopology_id: sorted(one.partitions) for one in structs}

    endpoints = answer.partitions_by_user_endpoint
    return {
        "error": ErrorCode(answer.error_code),
        "epoch": answer.member_epoch,
        "status": [status.status_code for status in answer.status or ()],
        "active": tasks(answer.active_tasks),
        "standby": tasks(answer.standby_tasks),
        "warmup": tasks(answer.warmup_tasks),
        "endpoint epoch": answer.endpoint_information_epoch,
        "endpoints": endpoints
        and {
            (one.user_endpoint.host, one.user_endpoint.port): [
                sorted((part.topic, sorted(part.partitions)) for part in parts)
                for parts in (one.active_partitions, one.standby_partitions)
            ]
            for one in endpoints
        },
    }


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    kafka = ApacheKafka(tmp_path_factory.mktemp("kafka"), AT_ONCE)
    kafka.format()
    ottla = BrokerProcess(tmp_path_factory.mktemp("ottla") / "data", settings=AT_ONCE)
    try:
        kafka.start()
        ottla.start()
        with RawClient("127.0.0.1", kafka.port) as one, RawClient(ottla.host, ottla.port) as other:
            pair = Both(one, other, (kafka.data, ottla.data))
            create_topics(pair, one=1, two=2, four=4, other=4)
            for client in pair.clients:
                wait_for_coordinator(client)
            yield pair
    finally:
        kafka.kill()
        ottla.kill()


def create_topics(both: Both, **topics: int) -> None:
    creation = m.CreateTopicsRequest
    wanted = [
        creation.CreatableTopic(name=name, num_partitions=count, replication_factor=1)
        for name, count in topics.items()
    ]
    for answer in both.ask(creation(topics=wanted, timeout_ms=10_000), 7):
        assert [topic.error_code for topic in answer.topics] == [0] * len(topics)


def wait_for_coordinator(client: RawClient) -> None:
    deadline = time.monotonic() + 60
    while True:
        client.ask(m.FindCoordinatorRequest(key_type=0, coordinator_keys=["nobody"]), 4)
        answer = client.ask(request(group_id="nobody", member_id="m", member_epoch=5), 0)
        if answer.error_code not in NOT_YET:
            return
        assert time.monotonic() < deadline, answer


def info(name: str, partitions: int = 0) -> Any:
    configs = [request.KeyValue(key="cleanup.policy", value="compact")] if name.endswith("log") else []
    return request.TopicInfo(name=name, partitions=partitions, topic_configs=configs)


def subtopology(id_: str, sources: list[str], **more: Any) -> Any:
    groups = more.get("together", [])
    return request.Subtopology(
        subtopology_id=id_,
        source_topics=sources,
        repartition_source_topics=more.get("reads", []),
        repartition_sink_topics=more.get("writes", []),
        state_changelog_topics=more.get("logs", []),
        copartition_groups=[
            request.CopartitionGroup(source_topics=left, repartition_source_topics=right)
            for left, right in groups
        ],
    )


def first(*subtopologies: Any, epoch: int = 0, **fields: Any) -> dict[str, Any]:
    """The fields of a first heartbeat."""
    return {
        "topology": request.Topology(epoch=epoch, subtopologies=list(subtopologies)),
        "process_id": "process",
        "rebalance_timeout_ms": 60_000,
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
        "client_tags": [],
        **fields,
    }


def owned(**tasks: list[int]) -> dict[str, Any]:
    active = [
        request.TaskIds(subtopology_id=id_.removeprefix("s"), partitions=partitions)
        for id_, partitions in tasks.items()
    ]
    return {"active_tasks": active, "standby_tasks": [], "warmup_tasks": []}


def test_a_group_forms_hands_tasks_over_and_ends(both: Both) -> None:
    group, plan = "forms", subtopology("0", ["four"])
    answer = both.beat(group, "m1", 0, **first(plan, process_id="p1"))
    assert plain(answer)["active"] == {"0": [0, 1, 2, 3]}
    both.beat(group, "m1", 2, **owned(s0=[0, 1, 2, 3]))
    both.beat(group, "m1", 2)
    both.beat(group, "m2", 0, **first(plan, process_id="p2"))
    both.describe(group)
    kept = plain(both.beat(group, "m1", 2))["active"]["0"]
    assert len(kept) == 2
    both.beat(group, "m2", 3)
    both.beat(group, "m1", 2, **owned(s0=kept))
    answer = both.beat(group, "m2", 3)
    assert sorted(kept + plain(answer)["active"]["0"]) == [0, 1, 2, 3]
    both.describe(group)
    both.beat(group, "m1", 3, shutdown_application=True)
    both.beat(group, "m2", 3)
    both.beat(group, "m1", -1)
    both.beat(group, "m2", 3)
    both.beat(group, "m2", -1)
    described = both.describe(group)
    assert described.group_state == "Empty"
    both.describe("no such group")
    written = [records_of(group, directory) for directory in both.directories]
    assert written[0] == written[1]
    assert len(written[0]) > 20


def records_of(group: str, directory: Path) -> list[tuple[Any, Any]]:
    """What a broker has written about a group, but for the time and the hash of topic ids that differ anyway."""
    found = []
    for log in directory.glob("**/__consumer_offsets-*/*.log"):
        data = log.read_bytes()
        for position, header in iter_batches(data):
            for record in iter_records(data[position : position + header.size_in_bytes]):
                decoded: Any = SERDE.decode(record.key, record.value)
                if decoded.key.group_id != group:
                    continue
                for field in ("metadata_hash", "assignment_timestamp"):
                    if hasattr(decoded.value, field):
                        setattr(decoded.value, field, 0)
                found.append((decoded.key, decoded.value))
    return found


def test_internal_topics_are_created_alike(both: Both) -> None:
    group = "creates"
    plan = (
        subtopology("0", ["two"], writes=["again"]),
        subtopology("1", ["four"], reads=[info("again")], logs=[info("state-log")], together=[([0], [0])]),
        subtopology("2", ["one"], writes=["fixed"]),
        subtopology("3", [], reads=[info("fixed", 3)], logs=[info("fixed-log")]),
    )
    answer = both.beat(group, "m1", 0, **first(*plan))
    assert plain(answer)["status"] == [3]
    described = m.DescribeTopicPartitionsRequest(
        topics=[
            m.DescribeTopicPartitionsRequest.TopicRequest(name=name)
            for name in ("again", "fixed", "fixed-log", "state-log")
        ]
    )
    deadline = time.monotonic() + 60
    for client in both.clients:
        while any(topic.error_code for topic in client.ask(described, 0).topics):
            assert time.monotonic() < deadline
    kafka, ottla = ([(t.name, len(t.partitions)) for t in answer.topics] for answer in both.ask(described))
    assert ottla == kafka == [("again", 4), ("fixed", 3), ("fixed-log", 3), ("state-log", 4)]
    resource = m.DescribeConfigsRequest.DescribeConfigsResource
    configs = m.DescribeConfigsRequest(
        resources=[
            resource(resource_type=2, resource_name="state-log", configuration_keys=["cleanup.policy"])
        ]
    )
    for answer in both.ask(configs, 4):
        assert answer.results[0].configs[0].value == "compact"
    for client in both.clients:
        # Kafka's coordinator hears of new topics a little after everyone else.
        while (answer := client.ask(request(group_id=group, member_id="m1", member_epoch=2), 0)).status:
            assert time.monotonic() < deadline
        assert plain(answer)["active"] == {"0": [0, 1], "1": [0, 1, 2, 3], "2": [0], "3": [0, 1, 2]}
    both.describe(group)


def test_endpoints_are_told_alike(both: Both) -> None:
    group, plan = "endpoints", subtopology("0", ["one", "two"])
    here = request.Endpoint(host="here", port=1)
    both.beat(group, "m1", 0, **first(plan, process_id="p1", user_endpoint=here))
    both.beat(group, "m1", 2, endpoint_information_epoch=0)
    both.beat(group, "m2", 0, **first(plan, process_id="p2"))
    both.beat(group, "m1", 2, **owned(s0=[0, 1]))
    both.beat(group, "m1", 2, **owned(s0=[0]))
    both.beat(group, "m2", 3, endpoint_information_epoch=-1)
    both.beat(group, "m2", 3, endpoint_information_epoch=1)
    both.describe(group)


PLAN = subtopology("0", ["one"])


@pytest.mark.parametrize(
    ("epoch", "fields"),
    [
        (0, first(PLAN, instance_id="static")),
        (0, first(PLAN, rack_id="")),
        (0, first(PLAN, rebalance_timeout_ms=-1)),
        (0, {**first(PLAN), "topology": None}),
        (0, {**first(PLAN), **owned(s0=[0])}),
        (0, {**first(PLAN), "standby_tasks": None}),
        (0, first(PLAN, task_offsets=[])),
        (0, first(PLAN, warmup_tasks=[request.TaskIds(subtopology_id="0", partitions=[0])])),
        (0, first(subtopology("0", ["__consumer_offsets"]))),
        (0, first(subtopology("0", ["bad name"]))),
        (0, first(subtopology("0", ["one"], logs=[info("a-log", 3)]))),
        (0, first(subtopology("0", []))),
        (0, first(subtopology("0", ["one"], reads=[info("unwritten")]))),
        (0, first(subtopology("0", [], reads=[info("loop")], writes=["loop"]))),
        (1, {}),
        (1, first(PLAN)),
        (1, {"active_tasks": []}),
        (-1, {}),
        (-2, {}),
        (-3, {}),
    ],
)
def test_what_is_refused_is_refused_alike(both: Both, epoch: int, fields: dict[str, Any]) -> None:
    assert both.beat("refused", "m1", epoch, **fields).error_code != 0


@pytest.mark.parametrize(
    "plan",
    [
        [subtopology("0", ["missing"])],
        [subtopology("0", ["two", "four"], together=[([0, 1], [])])],
        [
            subtopology("0", ["two"], writes=["r5"]),
            subtopology("1", ["four"], reads=[info("r5", 5)], together=[([0], [0])]),
        ],
        [subtopology("0", ["four"], logs=[info("one")])],
    ],
)
def test_topologies_that_do_not_fit_are_told_alike(both: Both, plan: list[Any], topic: str) -> None:
    answer = both.beat(topic, "m1", 0, **first(*plan))
    assert plain(answer)["status"] in ([1], [2])
    both.beat(topic, "m1", answer.member_epoch)
    assert both.describe(topic).group_state == "NotReady"


def test_epochs_topologies_and_tasks_are_checked_alike(both: Both) -> None:
    group = "checks"
    both.beat(group, "m1", 0, **first(PLAN, epoch=1))
    for epoch, fields in (
        (1, {}),
        (3, {}),
        (1, owned()),
        (2, owned(s0=[1])),
        (2, owned(s9=[0])),
    ):
        both.beat(group, "m1", epoch, **fields)
    both.beat(group, "m2", 2)
    both.beat(group, "m2", 0, **first(subtopology("0", ["two"]), epoch=1))
    both.beat(group, "m2", 0, **first(subtopology("0", ["two"]), epoch=0))
    both.beat(group, "m1", 0, **first(PLAN, epoch=1))
    both.describe(group)
