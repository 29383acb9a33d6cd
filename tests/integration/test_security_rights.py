"""What real clients may and may not do on a broker with an authorizer, and which errors they get."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from ottla.testing.ports import free_ports
from ottla.testing.process import BrokerProcess

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
LITERAL, PREFIXED = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
pytestmark = pytest.mark.slow

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.BROKER


class Guarded:
    """A broker that lets only its super user do anything until there are ACLs."""

    def __init__(self, folder: Path) -> None:
        port, controller = free_ports(2)
        config = folder / "server.properties"
        config.write_text(
            f"""
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=CLIENTS://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,CLIENTS:SASL_PLAINTEXT
inter.broker.listener.name=CLIENTS
sasl.mechanism.inter.broker.protocol=PLAIN
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256
listener.name.clients.plain.sasl.jaas.config={PLAIN} required username="admin" password="a" user_admin="a" \\
user_alice="a" user_bob="b";
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:admin;User:ANONYMOUS
log.dirs={folder / "data"}
offsets.topic.replication.factor=1
"""
        )
        self.bootstrap = f"127.0.0.1:{port}"
        self.broker = BrokerProcess(folder / "data", config=config, arguments=["--log-level", "info"]).start()
        self.admin = AdminClient(self.as_user("admin"))

    def as_user(self, name: str, password: str | None = None, mechanism: str = "PLAIN") -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": name,
            "sasl.password": password or name[0],
        }

    def topic(self, name: str) -> str:
        self.admin.create_topics([NewTopic(name, 1, 1)])[name].result(60)
        return name

    def allow(self, user: str, kind: Any, name: str, operation: Any, pattern: Any = LITERAL) -> AclBinding:
        acl = AclBinding(kind, name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
        self.admin.create_acls([acl])[acl].result(60)
        return acl


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    made = Guarded(tmp_path_factory.mktemp("guarded"))
    try:
        yield made
        assert made.broker.stop() == 0, made.broker.log
        assert "Traceback" not in made.broker.log, made.broker.log
    finally:
        made.broker.kill()


def produce(settings: dict[str, Any], topic: str) -> KafkaError | None:
    """The error of one record, or None."""
    outcome: list[KafkaError | None] = []
    producer = Producer(settings | {"message.timeout.ms": 20_000})
    producer.produce(topic, b"x", on_delivery=lambda error, _: outcome.append(error))
    producer.flush(60)
    return outcome[0]


def test_a_producer_needs_write_on_its_topic(guarded: Guarded, topic: str) -> None:
    guarded.topic(topic)
    error = produce(guarded.as_user("alice"), topic)
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    guarded.allow("alice", TOPIC, topic, AclOperation.WRITE)
    assert produce(guarded.as_user("alice"), topic) is None
    error = produce(guarded.as_user("bob"), topic)
    assert error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert (
        f"Principal = User:bob is Denied operation = DESCRIBE from host = 127.0.0.1 on resource = "
        f"Topic:LITERAL:{topic} for request = Metadata"
    ) in guarded.broker.log


def test_a_consumer_needs_its_group_and_its_topic(guarded: Guarded, topic: str) -> None:
    guarded.topic(topic)
    assert produce(guarded.as_user("admin"), topic) is None

    def read() -> Any:
        consumer = Consumer(
            guarded.as_user("bob") | {"group.id": f"{topic}-g", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([topic])
        try:
            while True:
                message = consumer.poll(30)
                if message is not None:
                    return message
        finally:
            consumer.close()

    denied = read()
    assert denied.error().code() in (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
    )
    guarded.allow("bob", TOPIC, topic, AclOperation.READ)
    assert read().error().code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    guarded.allow("bob", GROUP, topic, AclOperation.READ, PREFIXED)
    assert read().value() == b"x"


def test_topics_that_may_not_be_described_do_not_show(guarded: Guarded, topic: str) -> None:
    guarded.topic(topic)
    alice = AdminClient(guarded.as_user("alice"))
    assert topic not in alice.list_topics(timeout=30).topics
    named = alice.list_topics(topic, timeout=30).topics[topic]
    missing = alice.list_topics("there-is-no-such-topic", timeout=30).topics["there-is-no-such-topic"]
    assert named.error.code() == missing.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    guarded.allow("alice", TOPIC, topic, AclOperation.DESCRIBE)
    assert topic in alice.list_topics(timeout=30).topics


def test_administration_needs_its_rights(guarded: Guarded, topic: str) -> None:
    alice = AdminClient(guarded.as_user("alice"))
    with pytest.raises(KafkaException) as refused:
        alice.create_topics([NewTopic(f"{topic}-x", 1, 1)])[f"{topic}-x"].result(60)
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    guarded.topic(topic)
    with pytest.raises(KafkaException) as refused:
        alice.delete_topics([topic])[topic].result(60)
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    acl = AclBinding(TOPIC, topic, LITERAL, "User:alice", "*", AclOperation.ALL, AclPermissionType.ALLOW)
    with pytest.raises(KafkaException) as refused:
        alice.create_acls([acl])[acl].result(60)
    assert refused.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED
    guarded.allow("alice", TOPIC, topic, AclOperation.DELETE)
    alice.delete_topics([topic])[topic].result(60)


def test_acls_are_listed_and_removed(guarded: Guarded, topic: str) -> None:
    acl = guarded.allow("alice", TOPIC, topic, AclOperation.WRITE)
    everything = AclBindingFilter(
        ResourceType.ANY,
        topic,
        ResourcePatternType.ANY,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    assert guarded.admin.describe_acls(everything).result(60) == [acl]
    assert guarded.admin.delete_acls([everything])[everything].result(60) == [acl]
    assert guarded.admin.describe_acls(everything).result(60) == []


def test_a_right_that_was_taken_away_is_gone_for_open_connections(guarded: Guarded, topic: str) -> None:
    guarded.topic(topic)
    acl = guarded.allow("alice", TOPIC, topic, AclOperation.ALL)
    guarded.allow("alice", GROUP, "unused", AclOperation.READ)
    consumer = Consumer(guarded.as_user("alice") | {"group.id": "unused", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert produce(guarded.as_user("alice"), topic) is None
    message = consumer.poll(30)
    assert message is not None and message.value() == b"x"
    only = AclBindingFilter(
        TOPIC, topic, LITERAL, acl.principal, None, AclOperation.ANY, AclPermissionType.ANY
    )
    guarded.admin.delete_acls([only])[only].result(60)
    while (message := consumer.poll(30)) is not None and message.error() is None:
        pass
    assert message is not None
    assert message.error().code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    consumer.close()


def test_an_idempotent_producer_without_any_right_gets_no_producer_id(guarded: Guarded, topic: str) -> None:
    error = produce(guarded.as_user("bob") | {"enable.idempotence": True}, guarded.topic(topic))
    assert error is not None
    assert error.code() in (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError._FATAL,
    )


def test_scram_users_come_and_go_while_the_broker_runs(guarded: Guarded, topic: str) -> None:
    from confluent_kafka.admin import ScramCredentialInfo

    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    change = UserScramCredentialUpsertion("dave", info, b"secret-of-dave")
    guarded.admin.alter_user_scram_credentials([change])["dave"].result(60)
    described = guarded.admin.describe_user_scram_credentials(["dave"])["dave"].result(60)
    assert [each.iterations for each in described.scram_credential_infos] == [4096]
    guarded.topic(topic)
    guarded.allow("dave", TOPIC, topic, AclOperation.WRITE)
    dave = guarded.as_user("dave", "secret-of-dave", "SCRAM-SHA-256")
    assert produce(dave, topic) is None
    gone = UserScramCredentialDeletion("dave", ScramMechanism.SCRAM_SHA_256)
    guarded.admin.alter_user_scram_credentials([gone])["dave"].result(60)
    with pytest.raises(KafkaException):
        AdminClient(dave).list_topics(timeout=5)
    assert "secret-of-dave" not in guarded.broker.log
