"""Passwords of a configuration are in no `repr`, no pickle and no description."""

from __future__ import annotations

import pickle

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.definitions import text_of
from ottla.config.describe import describe_broker
from ottla.config.secrets import is_secret
from ottla.credentials.secret import Secret

SECRETS = {
    "ssl.keystore.password": "s3cret-1",
    "listener.name.plaintext.ssl.key.password": "s3cret-2",
    "listener.name.plaintext.plain.sasl.jaas.config": 'x required password="s3cret-3";',
}


def test_no_secret_is_shown() -> None:
    config = BrokerConfig.single_node(SECRETS).with_dynamic(
        {}, {"listener.name.plaintext.ssl.keystore.password": "s3cret-4"}
    )
    shown = [
        repr(config.static),
        str(config.dynamic),
        f"{config.dynamic_default}",
        *(repr(config[key]) for key in SECRETS),
        *(str(text_of(config[key])) for key in SECRETS),
        repr(describe_broker(config)),
    ]
    assert "s3cret" not in "".join(shown)
    assert config["ssl.keystore.password"] == Secret("s3cret-1")
    assert config.dynamic["listener.name.plaintext.ssl.keystore.password"] == "s3cret-4"


def test_a_configuration_is_not_pickled() -> None:
    config = BrokerConfig.single_node(SECRETS)
    with pytest.raises(TypeError):
        pickle.dumps(config.static)
    with pytest.raises(TypeError):
        pickle.dumps(config["ssl.keystore.password"])


def test_which_keys_are_secret() -> None:
    assert all(map(is_secret, SECRETS))
    assert not is_secret("ssl.keystore.location")
    assert not is_secret("ottla.security.profile")
