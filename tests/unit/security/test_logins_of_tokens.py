"""A JAAS entry of OAUTHBEARER that changes while the node runs: for those who come in, and for the node itself."""

from __future__ import annotations

import time

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.credentials.oauth import OAuthLogin
from ottla.security.listener_security import ClientSecurity, ListenerSecurity
from ottla.security.sasl.jwt_validation import InvalidToken

KEY = "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerUnsecuredValidatorCallbackHandler"
MECHANISM_KEY = "sasl.mechanism.inter.broker.protocol"


def jaas(**options: str) -> str:
    return MODULE + "".join(f' {key}="{text}"' for key, text in options.items()) + ";"


@pytest.fixture
def config() -> BrokerConfig:
    return BrokerConfig.single_node(
        {
            "log.dirs": "data",
            "listeners": "SASL_PLAINTEXT://localhost:9093",
            "inter.broker.listener.name": "SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            MECHANISM_KEY: "OAUTHBEARER",
            "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class": HANDLER,
            KEY: jaas(unsecuredLoginStringClaim_sub="node-1"),
        }
    )


def token_of(security: ClientSecurity) -> str:
    assert isinstance(security.login, OAuthLogin)
    return security.login.source.token().value.reveal()


def test_a_node_logs_in_with_the_new_entry_and_listeners_judge_by_it(config: BrokerConfig) -> None:
    (listener,) = config.broker_listeners
    inside = ListenerSecurity(config, listener)
    outside = ClientSecurity(config, listener.name, listener.protocol, MECHANISM_KEY)
    now_s = time.time()
    assert inside._tokens is not None
    assert inside._tokens.validate(token_of(outside), now_s).subject == "node-1"
    changed = config.with_dynamic(
        {}, {KEY: jaas(unsecuredLoginStringClaim_sub="node-2", unsecuredValidatorPrincipalClaimName="who")}
    )
    inside.update(changed)
    outside.update(changed)
    with pytest.raises(InvalidToken):
        inside._tokens.validate(token_of(outside), now_s)
    again = changed.with_dynamic(
        {},
        {
            KEY: jaas(
                unsecuredLoginStringClaim_sub="node-3",
                unsecuredLoginStringClaim_who="node-4",
                unsecuredValidatorPrincipalClaimName="who",
            )
        },
    )
    outside.update(again)
    assert inside._tokens.validate(token_of(outside), now_s).subject == "node-4"


def test_stores_of_connections_to_an_issuer_do_not_change_at_run_time(config: BrokerConfig) -> None:
    (listener,) = config.broker_listeners
    inside = ListenerSecurity(config, listener)
    outside = ClientSecurity(config, listener.name, listener.protocol, MECHANISM_KEY)
    options = {"unsecuredLoginStringClaim_sub": "node-1", "ssl.truststore.location": "/etc/passwd"}
    changed = config.with_dynamic({}, {KEY: jaas(**options)})
    for side in (inside, outside):
        with pytest.raises(ConfigError, match="with a restart only"):
            side.update(changed)
    assert token_of(outside)
