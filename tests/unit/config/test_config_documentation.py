"""Every key has its sentence."""

from __future__ import annotations

import pytest

from ottla.config.definitions import BROKER_KEYS, EXTENSION_KEYS, OWN_KEYS, TOPIC_KEYS
from ottla.config.documentation import _OTHER, _table, documentation
from ottla.controller.resource_configs import CLIENT_METRICS_KEYS, GROUP_KEYS

_KEYS = {
    "broker": BROKER_KEYS,
    "topic": TOPIC_KEYS,
    "group": GROUP_KEYS,
    "client-metrics": CLIENT_METRICS_KEYS,
}


@pytest.mark.parametrize("scope", _KEYS)
def test_every_key_has_a_sentence_and_every_sentence_a_key(scope):
    documented = {name for of, name in _table() if of == scope}
    extra = set(OWN_KEYS) | EXTENSION_KEYS if scope == "broker" else set()
    assert documented == set(_KEYS[scope]) | extra


def test_sentences_are_short_and_end_like_sentences():
    for (scope, name), sentence in _table().items():
        assert sentence[0].isupper() and sentence.endswith("."), (scope, name)
        assert len(sentence.split()) <= 25, (scope, name)


def test_a_key_of_a_listener_has_the_sentence_of_its_key():
    assert documentation("broker", "listener.name.internal.ssl.keystore.type") == documentation(
        "broker", "ssl.keystore.type"
    )
    assert documentation("broker", "listener.name.internal.plain.sasl.jaas.config") == documentation(
        "broker", "sasl.jaas.config"
    )


def test_a_key_that_nobody_knows_has_a_sentence_too():
    assert documentation("broker", "my.plugin.key") == _OTHER
