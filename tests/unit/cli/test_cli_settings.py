"""From a command line to a configuration."""

import pytest

from ottla.cli.settings import node_config, parse_assignments
from ottla.config.errors import ConfigError

SHIPPED = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs=/var/kafka
"""


@pytest.fixture
def shipped(tmp_path):
    path = tmp_path / "server.properties"
    path.write_text(SHIPPED)
    return str(path)


def addresses(config):
    return [f"{listener.name}://{listener.address}" for listener in config.listeners]


def test_nothing_given():
    config = node_config()
    assert addresses(config) == ["PLAINTEXT://localhost:9092"]
    assert config.log_dirs == ("./ottla-data",)
    assert (config.node_id, config.roles) == (1, {"broker", "controller"})


def test_flags_alone():
    config = node_config(None, {"num.partitions": "3"}, "data", "[::1]:7000")
    assert addresses(config) == ["PLAINTEXT://[::1]:7000"]
    assert config.log_dirs == ("data",)
    assert config["num.partitions"] == 3


def test_a_file(shipped):
    config = node_config(shipped)
    assert addresses(config) == ["PLAINTEXT://:9092", "CONTROLLER://:9093"]
    assert config.log_dirs == ("/var/kafka",)


def test_set_is_stronger_than_the_file_and_flags_stronger_than_set(shipped):
    config = node_config(shipped, {"node.id": "5", "log.dirs": "/a"}, "/b")
    assert config.node_id == 5
    assert config.log_dirs == ("/b",)


def test_listen_leaves_the_controllers_listener(shipped):
    config = node_config(shipped, listen="0.0.0.0:7000")
    assert addresses(config) == ["PLAINTEXT://0.0.0.0:7000", "CONTROLLER://:9093"]
    assert config.advertised("PLAINTEXT") is None
    assert config.advertised("CONTROLLER") is not None


def test_a_file_that_says_little_makes_a_single_node(tmp_path):
    path = tmp_path / "small.properties"
    path.write_text("broker.id=7\nlog.retention.hours=1\n")
    config = node_config(str(path))
    assert (config.node_id, config.roles) == (7, {"broker", "controller"})
    assert config.log_dirs == ("./ottla-data",)


@pytest.mark.parametrize("listen", ["9092", "localhost", "localhost:many", "localhost:99999", "a:b:1"])
def test_a_bad_address_to_listen_on(listen):
    with pytest.raises(ConfigError, match="expected HOST:PORT"):
        node_config(listen=listen)


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match=r"Cannot read the configuration file .*No such file"):
        node_config(str(tmp_path / "missing.properties"))
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        node_config(str(tmp_path / "binary"))


def test_assignments():
    assert parse_assignments(["a=1", " b = x=y "], "--set") == {"a": "1", "b": "x=y"}
    with pytest.raises(ConfigError, match="Invalid value 'a' for --set: expected key=value"):
        parse_assignments(["a"], "--set")


def test_what_is_set_to_be_advertised_is_advertised_wherever_the_node_listens(tmp_path):
    advertised = {"advertised.listeners": "PLAINTEXT://broker.example:19092"}
    config = node_config(settings=advertised, listen="127.0.0.1:0")
    assert (config.broker_listeners[0].host, config.broker_listeners[0].port) == ("127.0.0.1", 0)
    assert config.static["advertised.listeners"] == "PLAINTEXT://broker.example:19092"
    file = tmp_path / "server.properties"
    file.write_text("advertised.listeners=PLAINTEXT://elsewhere:9092\n")
    assert "advertised.listeners" not in node_config(str(file), {}, listen="127.0.0.1:0").static
    assert node_config(str(file), advertised, listen="127.0.0.1:0").static == config.static
