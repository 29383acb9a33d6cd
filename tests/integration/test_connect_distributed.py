"""Workers of a distributed cluster: they share connectors, forward requests, and take over from each other."""

import contextlib
import itertools
import json
import re

import pytest
from click.testing import CliRunner

from integration.connect_rest import STRINGS, Rest, eventually
from ottla import KafkaConsumer
from ottla.connect.assign import assign
from ottla.connect.config.worker import worker_config
from ottla.connect.connectors_cli import connectors
from ottla.connect.failures import ConnectError
from ottla.connect.worker import Worker
from ottla.testing.running import running_broker

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker():
    with running_broker() as running:
        yield running


def worker(broker, group, **more):
    keys = {
        **STRINGS,
        "bootstrap.servers": broker.bootstrap,
        "listeners": "http://127.0.0.1:0",
        "group.id": group,
        "config.storage.topic": f"{group}-configs",
        "offset.storage.topic": f"{group}-offsets",
        "status.storage.topic": f"{group}-status",
        "offset.storage.partitions": "2",
        "heartbeat.interval.ms": "300",
        "session.timeout.ms": "6000",
        **more,
    }
    made = Worker(worker_config(keys))
    made.start()
    return made


@contextlib.contextmanager
def cluster(broker, group, count):
    workers = []
    try:
        for _ in range(count):
            workers.append(worker(broker, group))
            eventually(lambda: workers[-1].health()[0] == "healthy")
        yield workers, [Rest(f"http://127.0.0.1:{one.port}") for one in workers]
    finally:
        for one in workers:
            one.stop()


def records(broker, topic):
    consumer = KafkaConsumer(
        topic, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=1500
    )
    found = [(record.key, record.value) for record in consumer]
    consumer.close()
    return found


def test_tasks_that_the_leader_writes_after_the_start_of_a_connector_get_their_status(broker, tmp_path):
    with cluster(broker, "late-tasks", 1) as ((one,), (rest,)):
        out = str(tmp_path / "out")
        rest.create("late", connector_class="FileStreamSink", file=out, topics="late-in", tasks_max="2")
        rest.await_states("late", "RUNNING", "RUNNING", "RUNNING")
        one.herder.remove_statuses("late", connector=False)
        rest.await_states("late", "RUNNING")
        # The leader puts the tasks in force again.
        one.herder.put_tasks("late", [dict(one.herder.known("late"))])
        rest.await_states("late", "RUNNING", "RUNNING", "RUNNING")


def test_two_workers_share_connectors_forward_requests_and_take_over(broker, tmp_path):
    with cluster(broker, "shared", 2) as (workers, (one, two)):
        for number in range(4):
            source = tmp_path / f"in-{number}.txt"
            source.write_text("a\nb\n")
            # The second worker does not lead: it forwards.
            two.create(
                f"c{number}", connector_class="FileStreamSource", file=str(source), topic=f"shared-{number}"
            )
        for number in range(4):
            one.await_states(f"c{number}", "RUNNING", "RUNNING")
        owners = {
            number: one.call("GET", f"/connectors/c{number}/status")[1]["connector"]["worker_id"]
            for number in range(4)
        }
        assert sorted(map(list(owners.values()).count, {w.worker_id for w in workers})) == [2, 2]
        # Each worker tells how far any connector is, and a line of the status says it for each.
        for number, owner in owners.items():
            for rest in (one, two):
                path = f"/ottla/connectors/c{number}"
                eventually(lambda rest=rest, path=path: rest.call("GET", path)[1].get("records") == 2)
                assert rest.call("GET", path)[1]["worker_id"] == owner
        shown = CliRunner().invoke(connectors, ["--connect-url", two.url, "status"]).output.splitlines()
        assert shown[0].split() == ["NAME", "STATE", "RECORDS/S", "BEHIND", "LAST", "CYCLE", "WORKER"]
        for number, line in enumerate(shown[1:]):
            assert re.match(
                rf"c{number} +RUNNING +\d+\.\d +0 bytes +\d+ s ago +{re.escape(owners[number])}$", line
            )
        assert two.call("PUT", "/connectors/c0/pause") == (202, None)
        one.await_states("c0", "PAUSED", "PAUSED")
        assert two.call("PUT", "/connectors/c0/resume") == (202, None)
        # The leader stops; the other one leads, owns everything and loses nothing.
        workers[0].stop()
        for number in range(4):
            with (tmp_path / f"in-{number}.txt").open("a") as file:
                file.write("c\n")
        for number in range(4):
            eventually(
                lambda number=number: (
                    two.call("GET", f"/connectors/c{number}/status")[1]["tasks"][0]["worker_id"]
                    == workers[1].worker_id
                )
            )
            eventually(
                lambda number=number: (
                    two.call("GET", f"/connectors/c{number}/offsets")[1]["offsets"]
                    and two.call("GET", f"/connectors/c{number}/offsets")[1]["offsets"][0]["offset"][
                        "position"
                    ]
                    == 6
                )
            )
            assert [value for _, value in records(broker, f"shared-{number}")] == [b"a", b"b", b"c"]
        assert two.call("DELETE", "/connectors/c1") == (204, None)
        eventually(lambda: two.call("GET", "/connectors/c1/status")[0] == 404)


def test_the_topics_hold_kafka_s_records_and_no_secret(broker, tmp_path):
    secrets = tmp_path / "secrets.properties"
    secrets.write_text("topic=named-by-a-file\npassword=hunter2hunter2\n")
    source = tmp_path / "in.txt"
    source.write_text("a\n")
    made = worker(
        broker,
        "bytes",
        **{
            "config.providers": "file",
            "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        },
    )
    try:
        rest = Rest(f"http://127.0.0.1:{made.port}")
        eventually(lambda: made.health()[0] == "healthy")
        reference = f"${{file:{secrets}:topic}}"
        rest.create(
            "provided",
            connector_class="FileStreamSource",
            file=str(source),
            topic=reference,
            some_password=f"${{file:{secrets}:password}}",
        )
        rest.await_states("provided", "RUNNING", "RUNNING")
        assert rest.call("GET", "/connectors/provided/config")[1]["topic"] == reference
        eventually(lambda: records(broker, "named-by-a-file") == [(None, b"a")])
    finally:
        made.stop()
    found = [
        *records(broker, "bytes-configs"),
        *records(broker, "bytes-status"),
        *records(broker, "bytes-offsets"),
    ]
    keys = [key for key, _ in found]
    assert b"connector-provided" in keys and b"commit-provided" in keys and b"task-provided-0" in keys
    assert b"tasks-fencing-provided" in keys and b"status-task-provided-0" in keys
    assert b"hunter2" not in b"".join(value or b"" for _, value in found)
    config = json.loads(dict(found)[b"connector-provided"])["properties"]
    assert config["topic"] == reference


def test_a_config_topic_with_several_partitions_is_refused(broker):
    from ottla import KafkaAdminClient, NewTopic

    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.create_topics([NewTopic("wide-configs", 3, 1, topic_configs={"cleanup.policy": "compact"})])
    admin.create_topics([NewTopic("kept-configs", 1, 1)])
    admin.close()
    with pytest.raises(ConnectError, match="required to have a single partition"):
        worker(broker, "wide")
    with pytest.raises(ConnectError, match=r"required to have 'cleanup\.policy=compact'"):
        worker(broker, "kept")


def test_a_second_cluster_with_the_same_config_topic_is_refused_while_the_first_has_workers(broker):
    with cluster(broker, "holder", 1) as (_, rests):
        rests[0].create("held", connector_class="FileStreamSource", file="/nowhere", topic="held")
        with pytest.raises(
            ConnectError, match=r"belongs to the Connect cluster holder, which has workers at .*"
        ):
            worker(broker, "second", **{"config.storage.topic": "holder-configs"})
    # A cluster may be given another name.
    worker(broker, "second", **{"config.storage.topic": "holder-configs"}).stop()


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_assignments_are_balanced_and_sticky(count):
    members = [f"m{number}" for number in range(count)]
    connectors = [f"c{number}" for number in range(10)]
    first = assign(members, connectors, {})
    sizes = sorted(map(len, first.values()))
    assert sizes[-1] - sizes[0] <= 1 and sorted(itertools.chain(*first.values())) == sorted(connectors)
    before = {connector: member for member, held in first.items() for connector in held}
    assert assign(members, connectors, before) == first
    more = assign([*members, "new"], connectors, before)
    moved = [one for member, held in more.items() for one in held if before[one] != member]
    assert all(one in more["new"] for one in moved)


def test_a_connector_file_waits_until_the_worker_has_joined_and_goes_to_the_leader(broker, tmp_path):
    (tmp_path / "in.txt").write_text("a\n")
    for number in range(2):
        (tmp_path / f"c{number}.properties").write_text(
            f"name=filed-{number}\nconnector.class=FileStreamSource\nfile={tmp_path}/in.txt\ntopic=filed-{number}\n"
        )
    first = worker(broker, "filed")
    second = None
    try:
        # Right after its start the first worker has not joined, and the second does not lead.
        first.load_file(tmp_path / "c0.properties")
        second = worker(broker, "filed")
        second.load_file(tmp_path / "c1.properties")
        rest = Rest(f"http://127.0.0.1:{second.port}")
        for number in range(2):
            rest.await_states(f"filed-{number}", "RUNNING", "RUNNING")
            assert eventually(lambda number=number: records(broker, f"filed-{number}")) == [(None, b"a")]
    finally:
        for one in filter(None, (second, first)):
            one.stop()
