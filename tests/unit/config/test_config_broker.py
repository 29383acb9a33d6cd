"""A node's configuration: what is in force, and what does not fit together."""

import pytest

from ottla import limits
from ottla.config.broker import BrokerConfig
from ottla.config.checks import connection_overrides
from ottla.config.errors import ConfigError
from ottla.config.listeners import Listener, SecurityProtocol, Voter

SHIPPED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "inter.broker.listener.name": "PLAINTEXT",
    "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
    "log.dirs": "/data/a,/data/b",
}
"""The keys that matter of the server.properties that Kafka 4.3 comes with."""


def test_the_properties_that_kafka_comes_with():
    config = BrokerConfig(SHIPPED)
    assert config.node_id == 1
    assert config.roles == {"broker", "controller"}
    assert config.broker_listeners == (Listener("PLAINTEXT", "", 9092, SecurityProtocol.PLAINTEXT),)
    assert config.controller_listeners == (Listener("CONTROLLER", "", 9093, SecurityProtocol.PLAINTEXT),)
    assert config.advertised("PLAINTEXT") == Listener(
        "PLAINTEXT", "localhost", 9092, SecurityProtocol.PLAINTEXT
    )
    assert config.log_dirs == ("/data/a", "/data/b")
    assert config.metadata_log_dir == "/data/a"


def test_cordoned_directories():
    assert BrokerConfig(SHIPPED).cordoned_log_dirs == frozenset()
    assert BrokerConfig({**SHIPPED, "cordoned.log.dirs": "/data/b"}).cordoned_log_dirs == {"/data/b"}
    assert BrokerConfig({**SHIPPED, "cordoned.log.dirs": "*"}).cordoned_log_dirs == {"/data/a", "/data/b"}


def test_a_static_quorum():
    given = {**SHIPPED, "controller.quorum.voters": "1@localhost:9093"}
    assert BrokerConfig(given).voters == (Voter(1, "localhost", 9093),)


def test_a_node_that_is_told_nothing_is_a_cluster_of_its_own():
    config = BrokerConfig.single_node()
    assert config.node_id == 1
    assert config.log_dirs == ("./ottla-data",)
    assert config.controller_listeners == ()
    assert config.advertised("PLAINTEXT") is None


def test_connections_are_bounded_unless_someone_says_otherwise():
    assert BrokerConfig.single_node()["max.connections"] == limits.MAX_CONNECTIONS
    unlimited = BrokerConfig.single_node({"max.connections": "2147483647"})
    assert unlimited.int("max.connections") == 2147483647


def test_typed_access():
    config = BrokerConfig.single_node({"log.cleanup.policy": "compact,delete"})
    assert config.int("num.partitions") == 1
    assert config.bool("auto.create.topics.enable") is True
    assert config.float("log.cleaner.min.cleanable.ratio") == 0.5
    assert config.list("log.cleanup.policy") == ("compact", "delete")
    assert config.opt_int("log.retention.ms") is None
    assert config.opt_str("broker.rack") is None
    assert config.str("compression.type") == "producer"


def test_an_unknown_key_is_refused_with_a_hint():
    with pytest.raises(
        ConfigError, match=r"Unknown configuration key num\.partition: did you mean num\.partitions"
    ):
        BrokerConfig.single_node({"num.partition": "3"})
    with pytest.raises(ConfigError, match=r"Unknown configuration key zookeeper\.connect"):
        BrokerConfig.single_node({"zookeeper.connect": "localhost:2181"})


def test_keys_of_one_listener_and_of_plugins_are_known():
    config = BrokerConfig.single_node(
        {
            "listener.name.plaintext.max.connections": "5",
            "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": "secret",
            "super.users": "User:admin",
        }
    )
    assert config.find_int("listener.name.plaintext.max.connections") == 5
    with pytest.raises(ConfigError, match=r"Unknown configuration key listener\.name\.plaintext\.nonsense"):
        BrokerConfig.single_node({"listener.name.plaintext.nonsense": "1"})
    with pytest.raises(ConfigError, match=r"listener\.name\.plaintext\.max\.connections"):
        BrokerConfig.single_node({"listener.name.plaintext.max.connections": "few"})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"process.roles": "brokr"}, "process.roles: expected one of broker, controller"),
        ({"process.roles": ""}, "process.roles"),
        ({"node.id": "-1"}, "'-1' for configuration node.id: expected at least 0"),
        ({"broker.id": "2"}, "the same value as node.id, 1"),
        ({"controller.quorum.voters": "2@localhost:9093"}, "one of the ids in controller.quorum.voters"),
        ({"controller.quorum.voters": "1@localhost"}, "ID@HOST:PORT"),
        ({"controller.quorum.bootstrap.servers": "localhost"}, "HOST:PORT"),
        ({"controller.quorum.bootstrap.servers": ""}, "controller.quorum.bootstrap.servers or"),
        ({"controller.listener.names": "OTHER"}, "OTHER"),
        ({"cordoned.log.dirs": "/data/a,/data/c"}, "only directories of log.dirs, which are /data/a,/data/b"),
        ({"cordoned.log.dirs": "*,/data/a"}, "or * alone"),
        ({"listeners": "PLAINTEXT://:9092,CONTROLLER://:9092"}, "a different port for each listener"),
        (
            {"listeners": "PLAINTEXT://:9092,PLAINTEXT://:9094,CONTROLLER://:9093"},
            "a different name for each listener",
        ),
        ({"listeners": "PLAINTEXT://:99999"}, "NAME://HOST:PORT"),
        (
            {"listeners": "CONTROLLER://:9093"},
            "at least one listener that is not in controller.listener.names",
        ),
        ({"listeners": "PLAINTEXT://:9092,X://:9094,CONTROLLER://:9093"}, "a protocol for listener X"),
        ({"listener.security.protocol.map": "PLAINTEXT:NONE"}, "NAME:PROTOCOL"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "a routable address"),
        ({"advertised.listeners": "SSL://localhost:9092"}, "one of the listeners"),
        ({"inter.broker.listener.name": "INTERNAL"}, "one of the listeners PLAINTEXT"),
        (
            {"security.inter.broker.protocol": "PLAINTEXT"},
            "only one of it and security.inter.broker.protocol",
        ),
        ({"log.roll.ms": "0"}, "log.roll.ms: expected at least 1"),
        ({"log.retention.ms": "0"}, "at least 1, or -1"),
        ({"log.cleaner.min.compaction.lag.ms": "5", "log.cleaner.max.compaction.lag.ms": "4"}, "at most"),
        ({"log.cleaner.threads": "200"}, "more than 1 MiB"),
        ({"queued.max.request.bytes": "10"}, "at least socket.request.max.bytes"),
        ({"max.connections.per.ip": "0"}, "max.connections.per.ip.overrides"),
        ({"max.connections.per.ip.overrides": "localhost"}, "HOST:COUNT"),
        ({"connections.max.idle.ms": "50"}, "more than connection.failed.authentication.delay.ms"),
        ({"replica.lag.time.max.ms": "100"}, "at least replica.fetch.wait.max.ms"),
    ],
)
def test_what_does_not_fit_together_is_refused(changes, message):
    with pytest.raises(ConfigError) as caught:
        BrokerConfig({**SHIPPED, **changes})
    assert message in caught.value.message


def test_node_id_and_roles_are_required():
    with pytest.raises(ConfigError, match=r"node\.id"):
        BrokerConfig({"process.roles": "broker,controller"})
    with pytest.raises(ConfigError, match=r"process\.roles"):
        BrokerConfig({"node.id": "1"})


def test_connection_overrides():
    config = BrokerConfig.single_node({"max.connections.per.ip.overrides": "127.0.0.1:20, [::1]:5"})
    assert connection_overrides(config) == {"127.0.0.1": 20, "::1": 5}


def test_dynamic_changes_are_stronger_than_static_ones_and_the_own_stronger_than_all():
    config = BrokerConfig.single_node({"log.retention.bytes": "1", "num.partitions": "3"})
    changed = config.with_dynamic(
        {"log.retention.bytes": "2", "message.max.bytes": "10"}, {"log.retention.bytes": "3"}
    )
    assert changed["log.retention.bytes"] == 3
    assert changed["message.max.bytes"] == 10
    assert changed["num.partitions"] == 3
    assert changed.with_dynamic({}, {})["log.retention.bytes"] == 1


def test_dynamic_changes_that_cannot_be_in_force_are_left_out(caplog):
    changed = BrokerConfig.single_node().with_dynamic(
        {"node.id": "7", "message.max.bytes": "many", "listeners": "PLAINTEXT://:1"}, {}
    )
    assert changed.node_id == 1
    assert changed["message.max.bytes"] == 1048588
    assert len(caplog.records) == 3


def test_dynamic_changes_that_do_not_fit_together_are_left_out(caplog):
    config = BrokerConfig.single_node({"log.cleaner.max.compaction.lag.ms": "5"})
    changed = config.with_dynamic({"log.cleaner.min.compaction.lag.ms": "9"}, {})
    assert changed["log.cleaner.min.compaction.lag.ms"] == 0
    assert "contradict" in caplog.text
