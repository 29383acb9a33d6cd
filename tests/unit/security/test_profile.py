"""The security profile: each row of what it looks at warns in `standard` and is refused in `strict`, by its key."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.security.profile import check_profile, is_loopback, report

AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}


def sasl(listener: str, mechanisms: str) -> dict[str, str]:
    return {
        "listeners": listener,
        "sasl.enabled.mechanisms": mechanisms,
        "security.inter.broker.protocol": listener.partition(":")[0],
        **AUTHORIZER,
    }


RISKS = {
    "listeners": {"listeners": "PLAINTEXT://0.0.0.0:9092"},
    "listeners ": sasl("SASL_PLAINTEXT://10.0.0.1:9092", "SCRAM-SHA-512"),
    "sasl.enabled.mechanisms": {
        **sasl("SASL_PLAINTEXT://:9092", "PLAIN,SCRAM-SHA-512"),
        "ottla.plaintext.listeners": "sasl_plaintext",
    },
    "sasl.enabled.mechanisms ": {
        **sasl("SASL_PLAINTEXT://:9092", "OAUTHBEARER"),
        "ottla.plaintext.listeners": "SASL_PLAINTEXT",
    },
    "authorizer.class.name": {**sasl("SASL_SSL://:9092", "SCRAM-SHA-512"), "authorizer.class.name": ""},
    "authorizer.class.name ": {
        "listeners": "SSL://:9092",
        "security.inter.broker.protocol": "SSL",
        "ssl.client.auth": "required",
    },
    "allow.everyone.if.no.acl.found": {
        **sasl("SASL_SSL://:9092", "SCRAM-SHA-512"),
        "allow.everyone.if.no.acl.found": "true",
    },
    "super.users": {**sasl("SASL_SSL://:9092", "SCRAM-SHA-512"), "super.users": "User:a;User:ANONYMOUS"},
}


@pytest.mark.parametrize("row", RISKS)
def test_standard_warns_and_strict_refuses_with_the_key(row: str, caplog: pytest.LogCaptureFixture) -> None:
    key, settings = row.strip(), RISKS[row]
    report(check_profile(BrokerConfig.single_node(settings)), strict=False)
    assert [record for record in caplog.records if key in record.getMessage()]
    with pytest.raises(ConfigError, match=r"ottla\.security.profile=strict refuses this") as refused:
        check_profile(BrokerConfig.single_node({**settings, "ottla.security.profile": "strict"}))
    assert refused.value.key == key


@pytest.mark.parametrize(
    "settings",
    [
        {"listeners": "PLAINTEXT://localhost:9092"},
        {"listeners": "PLAINTEXT://[::1]:9092"},
        {"listeners": "PLAINTEXT://:9092", "ottla.plaintext.listeners": "PLAINTEXT"},
        sasl("SASL_PLAINTEXT://127.0.0.1:9092", "PLAIN"),
        {**sasl("SASL_SSL://:9092", "PLAIN"), "super.users": "User:admin"},
    ],
)
def test_what_is_safe_passes_in_silence(settings: dict[str, str], tmp_path: Path) -> None:
    own = {**settings, "ottla.security.profile": "strict", "log.dirs": str(tmp_path / "none")}
    assert check_profile(BrokerConfig.single_node(own)) == []


def test_files_and_directories_that_others_can_read(tmp_path: Path) -> None:
    store, data = tmp_path / "key.pem", tmp_path / "data"
    store.write_text("-")
    store.chmod(0o640)
    data.mkdir(mode=0o700)
    settings = {"listener.name.x.ssl.keystore.location": str(store), "log.dirs": str(data)}
    settings["listeners"] = "PLAINTEXT://localhost:9092"
    found = check_profile(BrokerConfig.single_node(settings))
    assert [f"chmod 600 {store}" in finding.sentence for finding in found] == [True]
    strict = {**settings, "ottla.security.profile": "strict"}
    with pytest.raises(ConfigError, match=r"key\.pem"):
        check_profile(BrokerConfig.single_node(strict))
    store.chmod(0o600)
    check_profile(BrokerConfig.single_node(strict))
    data.chmod(0o750)
    with pytest.raises(ConfigError, match="chmod 700"):
        check_profile(BrokerConfig.single_node(strict))
    assert check_profile(BrokerConfig.single_node(settings)) == []


def test_strict_binds_nodes_to_their_ids(tmp_path: Path) -> None:
    cluster = {
        **sasl("SASL_SSL://:9092,CONTROLLER://:9093", "SCRAM-SHA-512"),
        "listener.security.protocol.map": "SASL_SSL:SASL_SSL,CONTROLLER:SASL_SSL",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "localhost:9093",
        "ottla.security.profile": "strict",
        "log.dirs": str(tmp_path / "none"),
    }
    with pytest.raises(ConfigError, match="pose as any node"):
        check_profile(BrokerConfig.single_node(cluster))
    check_profile(BrokerConfig.single_node({**cluster, "ottla.node.identity": "required"}))


def test_words_that_are_not_known() -> None:
    with pytest.raises(ConfigError, match="standard or strict"):
        check_profile(BrokerConfig.single_node({"ottla.security.profile": "loose"}))
    with pytest.raises(ConfigError, match=r"ottla.plaintext.listeners"):
        check_profile(BrokerConfig.single_node({"ottla.plaintext.listeners": "CLIENTS"}))


@pytest.mark.parametrize(
    ("host", "expected"), [("localhost", True), ("127.8.0.1", True), ("::1", True), ("", False), ("h", False)]
)
def test_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
