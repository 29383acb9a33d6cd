"""Values from files, directories and the environment, within the limits that the static file sets."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli.settings import node_config
from ottla.config.acted_on import unused_keys
from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.config.providers import MAX_BYTES, is_reference, resolved
from ottla.credentials.secret import Secret

PACKAGE = "org.apache.kafka.common.config.provider."
PROVIDERS = {
    "config.providers": "file,dir,env",
    "config.providers.file.class": PACKAGE + "FileConfigProvider",
    "config.providers.dir.class": PACKAGE + "DirectoryConfigProvider",
    "config.providers.env.class": PACKAGE + "EnvVarConfigProvider",
}


@pytest.fixture
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "secrets"
    folder.mkdir()
    (folder / "passwords.properties").write_text("store=from file\n")
    (folder / "key").write_text("from directory")
    monkeypatch.setenv("OTTLA_TEST_SECRET", "from environment")
    return folder


def test_each_provider_gives_its_value(secrets: Path) -> None:
    found = resolved(
        {
            **PROVIDERS,
            "a": f"${{file:{secrets}/passwords.properties:store}}",
            "b": f"<${{dir:{secrets}:key}}>",
            "c": 'x required password="${env:OTTLA_TEST_SECRET}";',
            "d": "${vault:x:y} ${no",
        }
    )
    assert found["a"] == "from file"
    assert found["b"] == "<from directory>"
    assert found["c"] == 'x required password="from environment";'
    assert found["d"] == "${vault:x:y} ${no"


def test_without_providers_nothing_is_replaced() -> None:
    assert resolved({"a": "${env:HOME}"}) == {"a": "${env:HOME}"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${file:FOLDER/passwords.properties:other}", "no key other"),
        ("${file:FOLDER/none:x}", "No such file"),
        ("${file:x}", "names no path"),
        ("${dir:FOLDER:../secrets/key}", "not the name of a file"),
        ("${dir:FOLDER:..}", "not the name of a file"),
        ("${env:OTTLA_TEST_NOTHING}", "no environment variable"),
        ("${dir:FOLDER:large}", "larger than"),
        ("${dir:FOLDER:binary}", "not UTF-8"),
    ],
)
def test_a_reference_to_nothing_is_refused_with_its_key(secrets: Path, text: str, expected: str) -> None:
    (secrets / "large").write_bytes(b"x" * (MAX_BYTES + 1))
    (secrets / "binary").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=expected) as refused:
        resolved({**PROVIDERS, "some.key": text.replace("FOLDER", str(secrets))})
    assert refused.value.key == "some.key"


def test_paths_and_names_outside_of_what_is_allowed(secrets: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("a=b\n")
    (secrets / "link").symlink_to(tmp_path / "elsewhere")
    limits = {
        **PROVIDERS,
        "config.providers.file.param.allowed.paths": str(secrets),
        "config.providers.dir.param.allowed.paths": str(secrets),
        "config.providers.env.param.allowlist.pattern": "OTTLA_.*",
    }
    assert resolved({**limits, "k": f"${{dir:{secrets}:key}}"})["k"] == "from directory"
    for text in (
        f"${{file:{tmp_path}/elsewhere:a}}",
        f"${{file:{secrets}/../elsewhere:a}}",
        f"${{file:{secrets}/link:a}}",
        f"${{dir:{secrets}:link}}",
        "${env:HOME}",
    ):
        with pytest.raises(ConfigError, match="does not allow it"):
            resolved({**limits, "k": text})


def test_a_class_that_is_no_provider_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"config\.providers\.x\.class"):
        resolved({"config.providers": "x", "config.providers.x.class": "com.example.Vault"})


def test_a_node_reads_its_passwords_from_a_file(secrets: Path, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    lines = [f"{key}={text}" for key, text in PROVIDERS.items()]
    file.write_text("\n".join([*lines, f"ssl.keystore.password=${{dir:{secrets}:key}}"]))
    config = node_config(str(file))
    assert config["ssl.keystore.password"] == Secret("from directory")
    assert unused_keys(config.static) == []


def test_dynamic_passwords_may_be_references_and_other_values_may_not(secrets: Path) -> None:
    """Who may change a setting that can be described must not read files by it (CVE-2024-31141)."""
    reference = f"${{dir:{secrets}:key}}"
    config = BrokerConfig.single_node(PROVIDERS).with_dynamic(
        {},
        {
            "listener.name.x.ssl.keystore.password": reference,
            "listener.name.x.ssl.keystore.location": reference,
        },
    )
    assert config["listener.name.x.ssl.keystore.password"] == Secret("from directory")
    assert config["listener.name.x.ssl.keystore.location"] == reference


def test_what_is_a_reference() -> None:
    assert is_reference("${file:/x:y}")
    assert is_reference(" ${env:Y} ")
    assert not is_reference("${env:Y}x")
    assert not is_reference("secret")
