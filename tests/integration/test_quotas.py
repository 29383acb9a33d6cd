"""Quotas of a real broker: the tools that set them, and real clients that are held to them."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from ottla.admin.cluster import Cluster
from ottla.admin.settings import ClusterSettings
from ottla.admin.topics import NewTopic, create_topics
from ottla.admin.users import alter_quotas
from ottla.errors import ErrorCode
from ottla.ids import TopicName
from ottla.testing.process import BrokerProcess
from ottla.wire.messages import CreateTopicsRequest

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    # Short windows: nobody has to wait for long.
    made = BrokerProcess(tmp_path_factory.mktemp("quotas"), settings={"quota.window.num": 3}).start()
    try:
        yield made
        assert made.stop() == 0, made.log
        assert "Traceback" not in made.log, made.log
    finally:
        made.kill()


def configs(broker: BrokerProcess, *arguments: str) -> str:
    """`ottla configs`."""
    done = subprocess.run(
        [sys.executable, "-m", "ottla", "configs", "--bootstrap-server", broker.bootstrap, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def set_quota(broker: BrokerProcess, entity: dict[str, str | None], **values: float) -> None:
    with closing(cluster(broker)) as admin:
        alter_quotas(admin, entity, values)


def cluster(broker: BrokerProcess, client_id: str = "admin") -> Cluster:
    host, port = broker.bootstrap.split(":")
    return Cluster(ClusterSettings(bootstrap=((host, int(port)),), client_id=client_id))


def throttles(client: str) -> tuple[dict[str, Any], list[int]]:
    """Settings that note how long the broker makes librdkafka wait, in milliseconds."""
    waits: list[int] = []
    return {
        "client.id": client,
        "throttle_cb": lambda event: waits.append(round(event.throttle_time * 1000)),
    }, waits


def test_quotas_are_shown_as_they_were_set(broker: BrokerProcess) -> None:
    add = ("--alter", "--add-config")
    configs(
        broker,
        *add,
        "producer_byte_rate=1024,request_percentage=12.5",
        "--entity-type",
        "users",
        "--entity-name",
        "al",
    )
    configs(broker, *add, "consumer_byte_rate=7", "--entity-type", "clients", "--entity-default")
    shown = configs(broker, "--describe", "--entity-type", "users")
    assert "Quota configs for user-principal 'al' are" in shown
    assert "producer_byte_rate=1024.0" in shown and "request_percentage=12.5" in shown
    assert "the default client-id are consumer_byte_rate=7.0" in configs(
        broker, "--describe", "--entity-type", "clients"
    )
    configs(
        broker,
        "--alter",
        "--delete-config",
        "consumer_byte_rate",
        "--entity-type",
        "clients",
        "--entity-default",
    )
    assert "consumer" not in configs(broker, "--describe", "--entity-type", "clients")


def test_a_producer_above_its_quota_is_told_to_wait_and_loses_nothing(
    broker: BrokerProcess, topic: str
) -> None:
    set_quota(broker, {"client-id": topic}, producer_byte_rate=20000)
    settings, waits = throttles(topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.size": 20_000, **settings})
    outcomes: list[KafkaError | None] = []
    for _ in range(8):
        producer.produce(topic, bytes(10_000), on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(60) == 0
    assert outcomes == [None] * 8
    assert waits and max(waits) >= 100


def test_a_consumer_above_its_quota_gets_empty_answers_and_then_everything(
    broker: BrokerProcess, topic: str
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.size": 20_000})
    for number in range(10):
        producer.produce(topic, str(number).encode() + bytes(10_000))
    assert producer.flush(60) == 0
    set_quota(broker, {"client-id": topic}, consumer_byte_rate=35000)
    settings, waits = throttles(topic)
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
        | {"fetch.message.max.bytes": 40_000, **settings}
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        seen: list[int] = []
        while len(seen) < 10:
            message = consumer.poll(60)
            assert message is not None and message.error() is None
            seen.append(int(bytes(message.value()).rstrip(b"\x00")))
    finally:
        consumer.close()
    assert seen == list(range(10))
    assert waits and max(waits) >= 100


def test_topics_beyond_the_mutation_quota_are_refused(broker: BrokerProcess, topic: str) -> None:
    set_quota(broker, {"client-id": topic}, controller_mutation_rate=1)
    with closing(cluster(broker, topic)) as admin:
        done = create_topics(admin, [NewTopic(f"{topic}-{n}", 12, 1) for n in range(2)])
        assert [each.error_code for each in done.topics] == [0, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
        assert 0 < done.throttle_time_ms <= 1000
        # The connection is muted meanwhile; then there is room again.
        done = create_topics(admin, [NewTopic(f"{topic}-1", 1, 1)])
        assert [each.error_code for each in done.topics] == [0]


def test_old_requests_are_done_and_then_wait(broker: BrokerProcess, topic: str) -> None:
    set_quota(broker, {"client-id": topic}, controller_mutation_rate=2)
    request = CreateTopicsRequest(
        topics=[
            CreateTopicsRequest.CreatableTopic(name=TopicName(topic), num_partitions=24, replication_factor=1)
        ]
    )
    with closing(cluster(broker, topic)) as admin:
        done = admin.any().ask(request, max_version=5)
    assert done.topics[0].error_code == 0
    assert 0 < done.throttle_time_ms <= 1000


@pytest.mark.skipif(sys.platform != "linux", reason="needs a second address of the machine, 127.0.0.2")
def test_connections_of_an_address_above_its_rate_are_closed_unread(broker: BrokerProcess) -> None:
    host, port = broker.bootstrap.split(":")
    set_quota(broker, {"ip": "127.0.0.2"}, connection_creation_rate=2)
    ends = []
    for _ in range(30):
        with socket.create_connection((host, int(port)), source_address=("127.0.0.2", 0)) as connection:
            connection.sendall(bytes.fromhex("0000000a0012000000000007ffff"))
            try:
                ends.append(connection.recv(100))
            except ConnectionResetError:
                # The broker has closed it with the request unread.
                ends.append(b"")
            if ends[-1] == b"":
                break
    assert ends[0] and ends[-1] == b""
    # Other addresses are not concerned.
    shown = json.loads(configs(broker, "--describe", "--entity-type", "ips", "--json"))
    assert shown == [{"entity": {"ip": "127.0.0.2"}, "quotas": {"connection_creation_rate": 2.0}}]
