"""Which settings hold secrets: the list by names agrees with every table of Kafka's keys."""

from __future__ import annotations

import json
from importlib.resources import files

import pytest

from ottla.credentials.secret_keys import holds_secret

TABLES = ("ottla.config", "ottla.connect.config")


@pytest.mark.parametrize("package", TABLES)
def test_the_names_agree_with_the_types_of_kafkas_tables(package: str) -> None:
    lines = files(package).joinpath("configs.jsonl").read_text().splitlines()
    keys = [json.loads(line) for line in lines]
    passwords = {each["name"] for each in keys if each.get("type") == "PASSWORD"}
    assert passwords
    assert {name for name in passwords if not holds_secret(name)} == set()
    others = {each["name"] for each in keys if each.get("type") != "PASSWORD"} - passwords
    assert {name for name in others if holds_secret(name)} == set()


@pytest.mark.parametrize(
    "name",
    [
        *(
            "sasl.password",
            "ssl.key.pem",
            "sasl.oauthbearer.config",
            "sasl_plain_password",
            "ssl.keystore.key",
        ),
        *("listener.name.x.plain.sasl.jaas.config", "database.password", "aws.secret.access.key", "api_key"),
        *("auth.token", "sessionToken", "clientSecret", "gcs.credentials.json", "basic.auth.user.info"),
        *(
            "ssl.key.password",
            "confluent.license.api.key",
            "KAFKA_PASSWORD",
            "producer.override.sasl.jaas.config",
        ),
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert holds_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        *("ssl.keystore.location", "ssl.key.location", "sasl.oauthbearer.token.endpoint.url", "group.id", ""),
        *("delegation.token.max.lifetime.ms", "sasl.username", "keyword", "tokenizer", "passwords.file"),
        *("sasl.oauthbearer.client.credentials.client.id", "basic.auth.credentials.source", "key.converter"),
    ],
)
def test_names_that_are_none(name: str) -> None:
    assert not holds_secret(name)
