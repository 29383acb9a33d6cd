"""A whole node over real sockets: how it comes up, what it answers, and how it goes down."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from ottla.errors import ErrorCode
from ottla.testing.ports import free_ports
from ottla.testing.process import BrokerProcess
from ottla.testing.raw_client import RawClient
from ottla.wire import messages

Start = Callable[..., BrokerProcess]


def client_of(broker: BrokerProcess) -> RawClient:
    return RawClient(broker.host, broker.port)


def create(client: RawClient, name: str, partitions: int = 1) -> None:
    request = messages.CreateTopicsRequest
    topic = request.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    [answer] = client.ask(request(topics=[topic], timeout_ms=10_000), 7).topics
    assert answer.error_code == ErrorCode.NONE, answer.error_message


def fetch_request(topic_id: bytes, *, max_wait_ms: int) -> Any:
    request = messages.FetchRequest
    partition = request.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = request.FetchTopic(topic_id=topic_id, partitions=[partition])
    return request(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20, topics=[topic])


def metadata(client: RawClient, *names: str, version: int = 13, create_missing: bool = False) -> Any:
    request = messages.MetadataRequest
    topics = [request.MetadataRequestTopic(name=name) for name in names]
    return client.ask(request(topics=topics, allow_auto_topic_creation=create_missing), version)


def test_every_version_of_api_versions_is_answered(broker: BrokerProcess) -> None:
    with client_of(broker) as client:
        for version in range(5):
            request = messages.ApiVersionsRequest()
            if version >= 3:
                request = messages.ApiVersionsRequest(client_software_name="t", client_software_version="1")
            assert client.ask(request, version).error_code == ErrorCode.NONE


def test_an_api_that_is_listed_is_served_and_one_that_is_not_closes_the_connection(
    broker: BrokerProcess,
) -> None:
    with client_of(broker) as client:
        listed = {api.api_key for api in client.ask(messages.ApiVersionsRequest(), 0).api_keys}
    assert messages.UpdateRaftVoterRequest.API_KEY not in listed
    with client_of(broker) as client:
        client.send(messages.UpdateRaftVoterRequest(), 0)
        assert client.closed_by_broker()


def test_a_later_request_is_handled_while_a_fetch_waits(broker: BrokerProcess, topic: str) -> None:
    with client_of(broker) as client, client_of(broker) as other:
        create(client, topic)
        topic_id = metadata(client, topic).topics[0].topic_id
        client.send(fetch_request(topic_id, max_wait_ms=60_000), 13)
        deadline = time.monotonic() + 50
        request = messages.CreateTopicsRequest
        late = request.CreatableTopic(name=f"{topic}-late", num_partitions=1, replication_factor=1)
        client.send(request(topics=[late], timeout_ms=10_000), 7)
        while metadata(other, f"{topic}-late").topics[0].error_code:
            assert time.monotonic() < deadline, "the creation waited for the fetch"
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce(topic, b"what the fetch waits for")
        assert producer.flush(60) == 0
        assert client.receive().error_code == ErrorCode.NONE
        assert client.receive().topics[0].error_code == ErrorCode.NONE


def test_without_advertised_listeners_a_client_is_told_how_it_came(start_broker: Start) -> None:
    broker = start_broker(listen="0.0.0.0:0")
    for host in ("127.0.0.1", "127.0.0.2"):
        with RawClient(host, broker.port) as client:
            [node] = metadata(client).brokers
            assert (node.host, node.port) == (host, broker.port)


def test_a_topic_appears_when_it_is_asked_for(broker: BrokerProcess, topic: str) -> None:
    with client_of(broker) as client:
        first = metadata(client, topic).topics[0]
        assert first.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        deadline = time.monotonic() + 60
        while metadata(client, topic, create_missing=True).topics[0].error_code:
            assert time.monotonic() < deadline
        assert [p.leader_id for p in metadata(client, topic).topics[0].partitions] == [1]


def test_coordinators_are_found_after_their_topic_is_made(broker: BrokerProcess) -> None:
    with client_of(broker) as client:
        deadline = time.monotonic() + 60
        while True:
            request = messages.FindCoordinatorRequest(key_type=0, coordinator_keys=["a", "b"])
            answers = client.ask(request, 4).coordinators
            if not any(answer.error_code for answer in answers):
                break
            assert {a.error_code for a in answers} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
            assert time.monotonic() < deadline
        assert {(a.host, a.port) for a in answers} == {(broker.host, broker.port)}
        offsets = metadata(client, "__consumer_offsets").topics[0]
        assert offsets.is_internal and len(offsets.partitions) == 50


def test_garbage_harms_nobody_else(broker: BrokerProcess) -> None:
    with client_of(broker) as good:
        for garbage in (b"GET / HTTP/1.0\r\n\r\n", struct.pack(">i", -5), struct.pack(">ihhi", 8, 99, 0, 1)):
            with client_of(broker) as bad:
                bad.socket.sendall(garbage)
                assert bad.closed_by_broker()
        assert good.ask(messages.ApiVersionsRequest(), 0).error_code == ErrorCode.NONE


def test_caps_on_connections_change_while_the_broker_runs(start_broker: Start) -> None:
    broker = start_broker()
    with client_of(broker) as client:
        request = messages.IncrementalAlterConfigsRequest
        change = request.AlterableConfig(name="max.connections.per.ip", config_operation=0, value="2")
        resource = request.AlterConfigsResource(resource_type=4, resource_name="", configs=[change])
        [answer] = client.ask(request(resources=[resource]), 1).responses
        assert answer.error_code == ErrorCode.NONE, answer.error_message
        with client_of(broker) as second:
            assert second.ask(messages.ApiVersionsRequest(), 0).error_code == ErrorCode.NONE
            with client_of(broker) as third:
                assert third.closed_by_broker()


def test_a_controller_listener_answers_what_kafkas_does(start_broker: Start) -> None:
    (port,) = free_ports(1)
    broker = start_broker(
        settings={
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@127.0.0.1:{port}",
            "listeners": f"CONTROLLER://127.0.0.1:{port}",
        }
    )
    assert broker.port != port
    with RawClient("127.0.0.1", port) as client:
        keys = {api.api_key for api in client.ask(messages.ApiVersionsRequest(), 0).api_keys}
        assert messages.ProduceRequest.API_KEY not in keys
        request = messages.DescribeQuorumRequest
        asked = request.TopicData(
            topic_name="__cluster_metadata", partitions=[request.PartitionData(partition_index=0)]
        )
        answer = client.ask(request(topics=[asked]), 2)
        assert answer.topics[0].partitions[0].leader_id == 1
        cluster = client.ask(messages.DescribeClusterRequest(endpoint_type=2), 1)
        assert [(node.broker_id, node.port) for node in cluster.brokers] == [(1, port)]


def test_topics_and_records_outlive_a_restart(start_broker: Start) -> None:
    broker = start_broker()
    with client_of(broker) as client:
        create(client, "kept", 3)
        before = metadata(client, "kept").topics[0]
    assert broker.stop() == 0
    broker.start()
    with client_of(broker) as client:
        after = metadata(client, "kept").topics[0]
        assert (after.topic_id, len(after.partitions)) == (before.topic_id, 3)
        assert [p.leader_id for p in after.partitions] == [1, 1, 1]


def test_stopping_with_clients_connected_is_quick_and_clean(start_broker: Start) -> None:
    broker = start_broker()
    with client_of(broker) as idle, client_of(broker) as waiting:
        create(waiting, "quiet")
        topic_id = metadata(waiting, "quiet").topics[0].topic_id
        waiting.send(fetch_request(topic_id, max_wait_ms=60_000), 13)
        assert idle.ask(messages.ApiVersionsRequest(), 0).error_code == ErrorCode.NONE
        begin = time.monotonic()
        assert broker.stop() == 0
        assert time.monotonic() - begin < 50, "it waited for the fetch"
        assert idle.closed_by_broker()
    assert "Traceback" not in broker.log


def refused(process: BrokerProcess) -> str:
    """The one line with which a start ends that cannot be."""
    result = subprocess.run(process.command(), capture_output=True, text=True, timeout=60)
    assert result.returncode == 1
    [line] = result.stderr.splitlines()
    return line


def test_a_taken_port_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        data = tmp_path / "data"
        assert str(port) in refused(BrokerProcess(data, listen=f"127.0.0.1:{port}"))
    assert not data.exists()


def test_a_directory_in_use_is_refused(start_broker: Start) -> None:
    broker = start_broker()
    assert "in use by another process" in refused(BrokerProcess(broker.data))
    assert broker.running


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads what Linux counts for a process")
def test_a_start_is_cheap(tmp_path: Path) -> None:
    """In processor time, not in waiting: the machine may be busy with other things."""
    ticks = os.sysconf("SC_CLK_TCK")
    spent_s = []
    # As installed: whatever this environment says, the first start leaves bytecode for the others.
    bytecode = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path / "bytecode")}
    for number in range(3):
        with BrokerProcess(tmp_path / f"data-{number}", environment=bytecode).start() as broker:
            with client_of(broker) as client:
                assert metadata(client).brokers
            fields = Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2].split()
            spent_s.append((int(fields[11]) + int(fields[12])) / ticks)
            status = Path(f"/proc/{broker.pid}/status").read_text()
            resident_kb = int(status.partition("VmRSS:")[2].split()[0])
    assert min(spent_s) < 1.0
    assert resident_kb < 60 << 10
