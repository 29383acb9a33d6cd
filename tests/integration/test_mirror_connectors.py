"""MirrorMaker 2's three connectors, created over REST in a Connect worker of the target."""

from __future__ import annotations

import pytest

from integration.connect_rest import Rest, eventually, running_worker
from integration.mirror_world import (
    assert_same_records,
    commit,
    committed,
    connect,
    make_topic,
    produce,
    records,
)
from ottla.mirror.formats import Checkpoint, Heartbeat
from ottla.pipeline.writer import Place

pytestmark = pytest.mark.slow
_PACKAGE = "org.apache.kafka.connect.mirror"


@pytest.fixture
def world(start_ottla_broker):
    source, target = start_ottla_broker("source"), start_ottla_broker("target")
    return source.bootstrap, target.bootstrap


def worker(bootstrap: str, group: str = "mirrors"):
    topics = {f"{one}_storage_topic": f"{group}-{one}" for one in ("config", "offset", "status")}
    factors = {f"{one}_storage_replication_factor": "1" for one in ("config", "offset", "status")}
    return running_worker(bootstrap, group_id=group, offset_storage_partitions="2", **topics, **factors)


def create(rest: Rest, part: str, source: str, target: str, **more: str) -> None:
    given = {
        "connector.class": f"{_PACKAGE}.Mirror{part}Connector",
        "source.cluster.alias": "A",
        "target.cluster.alias": "B",
        "source.cluster.bootstrap.servers": source,
        "target.cluster.bootstrap.servers": target,
        "replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "emit.checkpoints.interval.seconds": "1",
        "sync.group.offsets.enabled": "true",
        "mirror.cycle.ms": "300",
        **more,
    }
    code, answer = rest.call("PUT", f"/connectors/{part}/config", given)
    assert code == 201, answer


def held(bootstrap: str, topic: str):
    cluster = connect(bootstrap)
    try:
        if topic not in {one.name for one in cluster.metadata(None).topics}:
            return []
        return [one for part in records(bootstrap, topic).values() for _, one in part]
    finally:
        cluster.close()


def test_three_connectors_mirror_topics_groups_and_heartbeats(world):
    source, target = world
    make_topic(source, "orders", 2)
    make_topic(source, "empty")
    make_topic(target, "heartbeats")
    produce(source, "orders", 60)
    commit(source, "billing", {Place("orders", 0): 7, Place("empty", 0): 0})
    with worker(target) as rest:
        eventually(lambda: rest.call("GET", "/health")[0] == 200)
        for part in ("Source", "Checkpoint", "Heartbeat"):
            create(rest, part, source, target)
            rest.await_states(part, "RUNNING", "RUNNING")
        eventually(lambda: committed(target, "billing").get(Place("A.orders", 0)) == 7)
        eventually(lambda: len(held(target, "A.orders")) == 60)
        found = [Checkpoint.parse(key, value) for key, value, _, _ in held(target, "A.checkpoints.internal")]
        assert {(one.group, one.place) for one in found} == {("billing", Place("A.orders", 0))}
        key, value, _, _ = eventually(lambda: held(target, "heartbeats"))[0]
        assert Heartbeat.parse(key, value).source == "A"

        # A restart goes on where the notes in the worker's own offsets topic say.
        code, answer = rest.call("GET", "/connectors/Source/offsets")
        assert code == 200 and {one["partition"]["cluster"] for one in answer["offsets"]} == {"A"}
        rest.call("POST", "/connectors/Source/restart?includeTasks=true")
        produce(source, "orders", 40, start=1000)
        eventually(lambda: len(held(target, "A.orders")) == 100)
        assert assert_same_records(source, "orders", target, "A.orders") == 100

        # Positions that a user sets over REST hold, too: the records after them are copied again.
        assert rest.call("PUT", "/connectors/Source/stop")[0] == 204
        rest.await_states("Source", "STOPPED")
        where = {"cluster": "A", "topic": "orders", "partition": 0}
        count = len(records(source, "orders")[0])
        body = {"offsets": [{"partition": where, "offset": {"offset": count - 3}}]}
        code, answer = rest.call("PATCH", "/connectors/Source/offsets", body)
        assert code == 200, answer
        wrong = {"offsets": [{"partition": {"topic": "orders"}, "offset": None}]}
        assert rest.call("PATCH", "/connectors/Source/offsets", wrong)[0] in (400, 500)
        rest.call("PUT", "/connectors/Source/resume")
        eventually(lambda: len(held(target, "A.orders")) == 102)


def test_wrong_keys_and_a_worker_of_another_cluster_are_refused(world):
    source, target = world
    with worker(source) as rest:
        eventually(lambda: rest.call("GET", "/health")[0] == 200)
        code, answer = rest.call(
            "PUT",
            "/connectors/bad/config",
            {
                "connector.class": "MirrorSourceConnector",
                "source.cluster.bootstrap.servers": source,
                "target.cluster.bootstrap.servers": target,
                "replication.policy.class": "com.example.MyPolicy",
            },
        )
        assert code == 400 and "DefaultReplicationPolicy or IdentityReplicationPolicy" in answer["message"]
        create(rest, "Source", source, target)
        eventually(lambda: "FAILED" in rest.states("Source"))
        code, answer = rest.call("GET", "/connectors/Source/status")
        trace = "".join(one.get("trace") or "" for one in (answer["connector"], *answer["tasks"]))
        assert "run it in a worker of B" in trace
