"""The Python client and the tools where Apache Kafka asks who they are: SCRAM, TLS, users and access control."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oracle.kafka_tools import needs_java
from oracle.tools_oracle import run_ottla
from oracle.tools_systems import ApachePair
from ottla import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ElectionType,
    KafkaAdminClient,
    KafkaConsumer,
    KafkaProducer,
    OffsetSpec,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    ScramMechanism,
    TopicPartition,
    TopicPartitionReplica,
    UpdateFeatureType,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from ottla.client.broker_errors import (
    ClusterAuthorizationFailedError,
    SaslAuthenticationFailedError,
    TopicAuthorizationFailedError,
    UnsupportedSaslMechanismError,
)
from ottla.client.errors import for_code

pytestmark = [needs_java, pytest.mark.java, pytest.mark.slow]

_PATIENCE_S = 60.0
SECRET = "pencil, with = and ü"


@pytest.fixture
def admin(apache_pair: ApachePair) -> Any:
    with KafkaAdminClient(bootstrap_servers=apache_pair.bootstrap) as client:
        yield client


def as_user(name: str, mechanism: str, password: str = SECRET) -> dict[str, str]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": name,
        "sasl_plain_password": password,
    }


def properties(path: Path, name: str, mechanism: str, password: str = SECRET) -> Path:
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required"
        f' username="{name}" password="{password}";\n',
        encoding="utf-8",
    )
    return path


def until(reached: Callable[[], bool]) -> None:
    """Ask until it is so: a broker hears of a change a moment after the controller has noted it."""
    deadline = time.monotonic() + _PATIENCE_S
    while not reached():
        assert time.monotonic() < deadline


def wait_for_user(apache: ApachePair, name: str, mechanism: str) -> None:
    def is_let_in() -> bool:
        try:
            KafkaAdminClient(bootstrap_servers=apache.secure, **as_user(name, mechanism)).close()
        except SaslAuthenticationFailedError:
            return False
        return True

    until(is_let_in)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_users_log_in_by_scram(
    apache_pair: ApachePair, admin: KafkaAdminClient, tmp_path: Path, mechanism: str
) -> None:
    user = f"amy-{mechanism[-3:]}"
    assert admin.alter_user_scram_credentials([UserScramCredentialUpsertion(user, mechanism, SECRET)]) == {
        user: None
    }
    wait_for_user(apache_pair, user, mechanism)
    reported = admin.describe_user_scram_credentials([user])[user]
    kind = ScramMechanism[mechanism.replace("-", "_")]
    assert reported == {"error": None, "credential_infos": [{"mechanism": kind, "iterations": 4096}]}

    config = properties(tmp_path / "amy.properties", user, mechanism)
    at = ("--bootstrap-server", apache_pair.secure, "--command-config", config)
    said = run_ottla("topics", *at, "--list")
    assert (said.code, said.err) == (0, "")
    wrong = properties(tmp_path / "wrong.properties", user, mechanism, "guess")
    said = run_ottla("topics", "--bootstrap-server", apache_pair.secure, "--command-config", wrong, "--list")
    assert said.code == 1 and len(said.err.splitlines()) == 1
    assert "check the user, the password and sasl.mechanism" in said.err
    with pytest.raises(SaslAuthenticationFailedError):
        KafkaAdminClient(bootstrap_servers=apache_pair.secure, **as_user(user, mechanism, "guess"))
    assert admin.alter_user_scram_credentials([UserScramCredentialDeletion(user, mechanism)]) == {user: None}
    until(lambda: admin.describe_user_scram_credentials([user])[user]["error"] is not None)


class Token:
    """A token of no issuer: the login must not come so far that it counts."""

    def token(self) -> str:
        return "e30.e30.e30"


def test_a_mechanism_that_is_not_offered_is_told(apache_pair: ApachePair) -> None:
    login = {**as_user("amy", "OAUTHBEARER"), "sasl_oauth_token_provider": Token()}
    with pytest.raises(UnsupportedSaslMechanismError, match="SCRAM-SHA-256"):
        KafkaAdminClient(bootstrap_servers=apache_pair.secure, **login)


def test_who_may_not_is_told_so_in_one_line(
    apache_pair: ApachePair, admin: KafkaAdminClient, tmp_path: Path
) -> None:
    # Only the first broker has the listeners that ask who one is.
    admin.create_topics({"secret": {"assignments": {0: [1]}}}, wait_for_metadata=True)
    admin.alter_user_scram_credentials([UserScramCredentialUpsertion("eve", "SCRAM-SHA-512", SECRET)])
    wait_for_user(apache_pair, "eve", "SCRAM-SHA-512")
    config = properties(tmp_path / "eve.properties", "eve", "SCRAM-SHA-512")
    at = ("--bootstrap-server", apache_pair.secure, "--command-config", config)
    for tool, *words in (
        ("topics", "--create", "--topic", "mine"),
        ("configs", "--alter", "--topic", "secret", "--add-config", "retention.ms=5"),
        ("consume", "--topic", "secret", "--from-beginning", "--timeout-ms", 5000),
        ("acls", "--list"),
        ("metadata-quorum", "describe", "--status"),
    ):
        said = run_ottla(tool, *at, *words)
        assert said.code == 1 and len(said.err.splitlines()) == 1 and said.err.startswith("ottla: "), said
        assert "uthoriz" in said.err, said
    producer = KafkaProducer(bootstrap_servers=apache_pair.secure, **as_user("eve", "SCRAM-SHA-512"))
    with pytest.raises((ClusterAuthorizationFailedError, TopicAuthorizationFailedError)):
        producer.send("secret", b"x").get(timeout=60)
    producer.close()

    pattern = ResourcePattern(ResourceType.TOPIC, "secret")
    entry = ACL("User:eve", "*", ACLOperation.ALL, ACLPermissionType.ALLOW, pattern)
    assert admin.create_acls([entry]) == {"succeeded": [entry], "failed": []}
    wanted = ACLFilter(
        "User:eve",
        None,
        ACLOperation.ANY,
        ACLPermissionType.ANY,
        ResourcePatternFilter(ResourceType.TOPIC, "secret", ACLResourcePatternType.ANY),
    )
    until(lambda: admin.describe_acls(wanted)[0] != [])
    assert admin.describe_acls(wanted) == ([entry], for_code(0))
    producer = KafkaProducer(bootstrap_servers=apache_pair.secure, **as_user("eve", "SCRAM-SHA-512"))
    assert producer.send("secret", b"x").get(timeout=60).offset == 0
    producer.close()
    assert admin.delete_acls([wanted]) == [(wanted, [entry], for_code(0))]
    until(lambda: admin.describe_acls(wanted)[0] == [])


def test_tls_is_spoken_by_the_tools_and_the_client(apache_pair: ApachePair, tmp_path: Path) -> None:
    config = tmp_path / "tls.properties"
    config.write_text(
        f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={apache_pair.authority}\n"
    )
    at = ("--bootstrap-server", apache_pair.encrypted, "--command-config", config)
    topic = ("--topic", "sealed")
    assert run_ottla("topics", *at, "--create", *topic, "--replica-assignment", 1).code == 0
    assert run_ottla("produce", *at, *topic, stdin="one\n").code == 0
    # Without a group: its coordinator may be the broker that does not speak TLS.
    place = ("--partition", 0, "--offset", "earliest")
    read = run_ottla("consume", *at, *topic, *place, "--max-messages", 1)
    assert (read.code, read.out) == (0, "one\n"), read
    settings = {
        "bootstrap_servers": apache_pair.encrypted,
        "security_protocol": "SSL",
        "ssl_cafile": str(apache_pair.authority),
    }
    producer = KafkaProducer(**settings)
    assert producer.send("sealed", b"two").get(timeout=60).offset == 1
    producer.close()
    consumer = KafkaConsumer(
        "sealed", **settings, auto_offset_reset="earliest", group_id=None, consumer_timeout_ms=60_000
    )
    assert [next(consumer).value, next(consumer).value] == [b"one", b"two"]
    consumer.close()
    with KafkaAdminClient(**settings) as client:
        assert "sealed" in client.list_topics()
    # Without the certificate nobody is trusted.
    config.write_text("security.protocol=SSL\n")
    said = run_ottla("topics", *at, "--list")
    assert said.code == 1 and len(said.err.splitlines()) == 1 and "certificate" in said.err, said


def test_the_cluster_is_looked_after(admin: KafkaAdminClient) -> None:
    admin.create_topics({"moved": {"assignments": {0: [1, 2]}}}, wait_for_metadata=True)
    tp = TopicPartition("moved", 0)
    assert admin.alter_partition_reassignments({tp: [2, 1]}) == {tp: None}
    assert isinstance(admin.list_partition_reassignments([tp]), dict)
    assert admin.elect_leaders(ElectionType.PREFERRED, {"moved": [0]}, raise_errors=False)["error_code"] == 0

    def replicas() -> list[int]:
        (partition,) = admin.describe_topic_partitions(["moved"])["topics"][0]["partitions"]
        nodes: list[int] = partition["replica_nodes"]
        return nodes

    until(lambda: replicas() == [2, 1])
    (quorum,) = admin.describe_metadata_quorum()["topics"]
    assert quorum["partitions"][0]["leader_id"] == 1 and quorum["partitions"][0]["error"] is None
    features = admin.describe_features()
    assert features["metadata.version"]["finalized"][1] > 0
    level = features["group.version"]["finalized"][1]
    reported = admin.update_features(
        {"group.version": (UpdateFeatureType.SAFE_DOWNGRADE, level - 1)}, validate_only=True
    )
    assert list(reported) == ["group.version"]
    assert admin.get_broker_version_data(2).api_versions[3][1] >= 12
    assert admin.list_partition_offsets({tp: OffsetSpec.LATEST})[tp].offset == 0

    def directories_of_first() -> list[dict[str, Any]]:
        reported: list[dict[str, Any]] = admin.describe_log_dirs({"moved": [0]}, [1])[0]["log_dirs"]
        return reported

    until(lambda: any(each["topics"] for each in directories_of_first()))
    directories = directories_of_first()
    (there,) = [each["log_dir"] for each in directories if each["topics"]]
    (other,) = [each["log_dir"] for each in directories if not each["topics"]]
    replica = TopicPartitionReplica("moved", 0, 1)
    assert admin.alter_replica_log_dirs({replica: other}) == {replica: for_code(0)}
    assert there != other
    assert "moved" in admin.list_config_resources(["topic"])["topic"]
