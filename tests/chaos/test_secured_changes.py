"""Three secured nodes under load while certificates are renewed every second and rights come and go.

`OTTLA_CHAOS_SECONDS=600 pytest tests/chaos/test_secured_changes.py` is the long form.
"""

from __future__ import annotations

import base64
import itertools
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.admin.acls import Entry, Pattern, create_acls, delete_acls, describe_acls
from ottla.admin.cluster import Cluster
from ottla.admin.settings import ClusterSettings
from ottla.admin.topics import NewTopic as OttlaTopic
from ottla.admin.topics import create_topics
from ottla.admin.users import alter_quotas, create_token, expire_token
from ottla.cli.secure.folder import certificate_names
from ottla.cli.secure.folder import replace as replace_file
from ottla.cli.secure.renew import renew_certificates
from ottla.client.cluster_settings import writer_settings
from ottla.errors import ApiException, ErrorCode
from ottla.ids import TopicName
from ottla.testing.process import BrokerFailed
from ottla.testing.secure import SecureCluster
from ottla.wire.enums import AclOperation, AclPermissionType, PatternType, ResourceType

SECONDS = float(os.environ.get("OTTLA_CHAOS_SECONDS", "6"))
PATIENCE_S = 90.0
CERTIFICATE_HAS_EXPIRED = 10
"""OpenSSL's X509_V_ERR_CERT_HAS_EXPIRED."""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600 + SECONDS)]

GATE, LOAD = "gate", "load"
MAY_WRITE = (
    Pattern(ResourceType.TOPIC, GATE, PatternType.LITERAL),
    Entry("User:eve", "*", AclOperation.WRITE, AclPermissionType.ALLOW),
)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    settings = {
        "ottla.ssl.reload.interval.ms": 200,
        "delegation.token.secret.key": "the-key-of-this-cluster",
        "quota.window.num": 3,
        "min.insync.replicas": 2,
    }
    made = SecureCluster(tmp_path_factory.mktemp("secured"), 3, settings=settings)
    try:
        made.start()
        for user in ("eve", "greedy"):
            made.add_user(user)
        admin = AdminClient(made.librdkafka_settings_of("admin"))
        topics = [NewTopic(GATE, 3, 1), NewTopic(LOAD, 3, 3)]
        for each in admin.create_topics(topics).values():
            each.result(60)
        with closing(cluster_of(made)) as cluster:
            describe = replace_operation(AclOperation.DESCRIBE)
            create_acls(cluster, [describe])
        yield made
        assert all(node.running for node in made.nodes.values()), made.logs()
        assert "Traceback" not in made.logs(), made.logs()
    finally:
        made.kill_all()


def replace_operation(operation: AclOperation) -> tuple[Pattern, Entry]:
    return MAY_WRITE[0], MAY_WRITE[1]._replace(operation=operation)


def settings_of(secured: SecureCluster, user: str = "admin") -> ClusterSettings:
    settings: dict[str, Any] = dict(secured.librdkafka_settings_of(user))
    return replace(writer_settings(settings.pop("bootstrap.servers"), settings), request_timeout_s=PATIENCE_S)


def cluster_of(secured: SecureCluster) -> Cluster:
    return Cluster(settings_of(secured))


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    pause = threading.Event()
    while not reached():
        assert time.monotonic() < deadline, "it did not happen"
        pause.wait(0.02)


class Load:
    """Writes numbers until it is stopped, and remembers which were acknowledged by all in-sync replicas."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.acknowledged: set[int] = set()
        self.failed: list[KafkaError] = []
        self._stop = threading.Event()
        self._producer = Producer(settings | {"acks": "all", "linger.ms": 5, "message.timeout.ms": 60_000})
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        for number in itertools.count():
            if self._stop.is_set():
                break

            def noted(error: KafkaError | None, _: object, number: int = number) -> None:
                if error is None:
                    self.acknowledged.add(number)
                else:
                    self.failed.append(error)

            self._producer.produce(LOAD, b"%d" % number, partition=number % 3, on_delivery=noted)
            self._producer.poll(0.002)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)
        assert self._producer.flush(PATIENCE_S) == 0


class Renewal:
    """New certificates for all nodes every second."""

    def __init__(self, secured: SecureCluster) -> None:
        self._secured = secured
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(1.0):
            renew_certificates(self._secured.folder, 30, lambda _: None)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)


def write_to_each_leader(settings: dict[str, Any]) -> list[KafkaError | None]:
    """The outcome of one record for each partition, over new connections.

    Each partition has a producer of its own. When one leader refuses, librdkafka drops the topic with what waits for
    its other partitions (`_UNKNOWN_PARTITION` or `_DESTROY`), and their leaders would never be asked.
    """
    outcomes: list[KafkaError | None] = []
    producers = [Producer(settings | {"message.timeout.ms": 60_000}) for _ in range(3)]
    for partition, producer in enumerate(producers):
        producer.produce(GATE, b"x", partition=partition, on_delivery=lambda error, _: outcomes.append(error))
    for producer in producers:
        assert producer.flush(PATIENCE_S) == 0
    return outcomes


def ends_of(consumer: Consumer, topic: str) -> list[int]:
    """The end of each partition, as its leader says."""
    return [
        consumer.get_watermark_offsets(TopicPartition(topic, each), timeout=PATIENCE_S)[1]
        for each in range(3)
    ]


def everywhere(cluster: Cluster, secured: SecureCluster, *, allowed: bool) -> None:
    """Wait until every broker has read the change: each answers DescribeAcls from what it has read."""
    host_settings = cluster.settings

    def known_to(node_id: int) -> bool:
        node = cluster.nodes()[node_id]
        with closing(Cluster(replace(host_settings, bootstrap=((node.host, node.port),)))) as one:
            entries = describe_acls(one, *MAY_WRITE)
        return any(MAY_WRITE[1] in each for each in entries.values()) is allowed

    for node_id in secured.nodes:
        until(lambda node_id=node_id: known_to(node_id))


def test_nothing_is_lost_and_no_right_outlives_its_end(secured: SecureCluster) -> None:
    eve = secured.librdkafka_settings_of("eve")
    load, renewal = Load(secured.librdkafka_settings_of("admin")), Renewal(secured)
    deadline, rounds = time.monotonic() + SECONDS, 0
    shown: dict[int, set[str]] = {node_id: set() for node_id in secured.nodes}
    reader = Consumer(secured.librdkafka_settings_of("admin") | {"group.id": "ends"})
    try:
        with closing(cluster_of(secured)) as cluster:
            while rounds < 2 or time.monotonic() < deadline:
                create_acls(cluster, [MAY_WRITE])
                everywhere(cluster, secured, allowed=True)
                assert write_to_each_leader(eve) == [None] * 3
                delete_acls(cluster, [MAY_WRITE])
                everywhere(cluster, secured, allowed=False)
                before = ends_of(reader, GATE)
                refused = [error and error.code() for error in write_to_each_leader(eve)]
                assert refused == [KafkaError.TOPIC_AUTHORIZATION_FAILED] * 3
                assert ends_of(reader, GATE) == before
                rounds += 1
                note_certificates(cluster, shown)
            # Each node has shown three certificates at least.
            until(lambda: note_certificates(cluster, shown) > 2)
    finally:
        renewal.stop()
        load.stop()
        reader.close()
    print(
        f"{rounds} rounds of a right that came and went, {len(load.acknowledged)} records acknowledged, "
        f"certificates shown: {', '.join(str(len(each)) for each in shown.values())}"
    )
    assert load.failed == [] and len(load.acknowledged) > 100
    assert all(len(each) > 2 for each in shown.values()), shown
    assert load.acknowledged <= numbers_of(secured)


def test_nothing_is_lost_while_certificates_expire_and_a_node_is_killed(secured: SecureCluster) -> None:
    load = Load(secured.librdkafka_settings_of("admin"))
    try:
        until(lambda: len(load.acknowledged) > 100)
        with closing(cluster_of(secured)) as cluster:
            places = {node_id: (node.host, node.port) for node_id, node in cluster.nodes().items()}
            give_certificates(secured, timedelta(seconds=4))
            # A certificate is looked at when a connection opens: those that are open go on, as in Kafka.
            until(lambda: all(has_expired(secured, place) for place in places.values()))
            before = len(load.acknowledged)
            until(lambda: len(load.acknowledged) > before + 100)
            secured.nodes[3].kill()
            with pytest.raises(BrokerFailed, match="expired on"):
                secured.nodes[3].start()
            give_certificates(secured, timedelta(days=30))
            secured.nodes[3].start()
            until(lambda: not any(has_expired(secured, place) for place in places.values()))
            before = len(load.acknowledged)
            until(lambda: len(load.acknowledged) > before + 100)
    finally:
        load.stop()
    assert load.failed == []
    assert load.acknowledged <= numbers_of(secured)


def give_certificates(secured: SecureCluster, lifetime: timedelta) -> None:
    """New certificates for all nodes, which end after this time."""
    folder = secured.folder
    authority = folder.load_authority()
    for node_id in folder.node_ids():
        store = folder.key_store(f"node-{node_id}")
        old = folder.load_current(store)
        hosts, uris = certificate_names(old)
        fresh = authority.issue(old.subject, hosts=hosts, uris=uris, lifetime=lifetime)
        replace_file(store, fresh.pem())


def has_expired(secured: SecureCluster, place: tuple[str, int]) -> bool:
    """Whether a new connection is refused because the node's certificate has ended."""
    context = ssl.create_default_context(cafile=secured.ca_file)
    try:
        with (
            socket.create_connection(place, PATIENCE_S) as plain,
            context.wrap_socket(plain, server_hostname=place[0]),
        ):
            return False
    except ssl.SSLCertVerificationError as error:
        return error.verify_code == CERTIFICATE_HAS_EXPIRED


def note_certificates(cluster: Cluster, shown: dict[int, set[str]]) -> int:
    """Which certificates the nodes show to new connections; the fewest of any node so far."""
    for node_id, node in cluster.nodes().items():
        shown[node_id].add(ssl.get_server_certificate((node.host, node.port)))
    return min(map(len, shown.values()))


def numbers_of(secured: SecureCluster) -> set[int]:
    consumer = Consumer(secured.librdkafka_settings_of("admin") | {"group.id": "reader"})
    ends = ends_of(consumer, LOAD)
    consumer.assign([TopicPartition(LOAD, each, 0) for each in range(3)])
    found: set[int] = set()
    count = 0
    while count < sum(ends):
        for message in consumer.consume(1000, timeout=60):
            assert message.error() is None
            found.add(int(message.value()))
            count += 1
    consumer.close()
    return found


def test_a_quota_counts_on_every_broker_and_for_what_the_controller_does(secured: SecureCluster) -> None:
    with closing(cluster_of(secured)) as admin:
        operations = (AclOperation.WRITE, AclOperation.DESCRIBE)
        rights = [
            (MAY_WRITE[0], MAY_WRITE[1]._replace(principal="User:greedy", operation=each))
            for each in operations
        ]
        create = Entry("User:greedy", "*", AclOperation.CREATE, AclPermissionType.ALLOW)
        create_acls(admin, [*rights, (Pattern(ResourceType.TOPIC, "greedy-", PatternType.PREFIXED), create)])
        alter_quotas(admin, {"user": "greedy"}, {"producer_byte_rate": 20_000, "controller_mutation_rate": 1})
    throttled: set[int] = set()
    producer = Producer(
        secured.librdkafka_settings_of("greedy")
        | {"throttle_cb": lambda event: throttled.add(event.broker_id) if event.throttle_time > 0 else None}
    )
    deadline = time.monotonic() + PATIENCE_S
    while len(throttled) < 3 and time.monotonic() < deadline:
        for partition in range(3):
            producer.produce(GATE, b"x" * 30_000, partition=partition)
        producer.poll(0.2)
    assert throttled == {1, 2, 3}
    assert producer.flush(PATIENCE_S) == 0
    codes = set()
    for node_id in secured.nodes:
        with closing(Cluster(settings_of(secured, "greedy"))) as cluster:
            node = cluster.nodes()[node_id]
            with closing(Cluster(replace(cluster.settings, bootstrap=((node.host, node.port),)))) as one:
                wanted = [OttlaTopic(TopicName(f"greedy-{node_id}-{each}"), 3, 1) for each in range(3)]
                codes |= {topic.error_code for topic in create_topics(one, wanted).topics}
    assert ErrorCode.THROTTLING_QUOTA_EXCEEDED in codes


def test_a_token_of_one_node_lets_in_at_every_node_until_it_ends(secured: SecureCluster) -> None:
    with closing(cluster_of(secured)) as admin:
        token = create_token(admin, -1)
        secret = base64.b64encode(token.hmac).decode()
        security = replace(admin.settings.security, user=token.token_id, password=secret, token=True)
        addresses = [(node.host, node.port) for node in admin.nodes().values()]
        assert len(addresses) == 3

        def is_let_in(address: tuple[str, int]) -> bool:
            settings = replace(admin.settings, bootstrap=(address,), security=security)
            try:
                with closing(Cluster(settings)) as cluster:
                    cluster.any()
            except ApiException as error:
                assert error.code is ErrorCode.SASL_AUTHENTICATION_FAILED
                return False
            return True

        for address in addresses:
            until(lambda address=address: is_let_in(address))
        expire_token(admin, token.hmac, -1)
        for address in addresses:
            until(lambda address=address: not is_let_in(address))
