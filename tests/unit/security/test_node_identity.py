"""Who may speak for which node: by certificate, by principal, by listener."""

from __future__ import annotations

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.security.node_identity import NOBODY, NodeIdentity, certified_nodes


def identity(**settings: str) -> NodeIdentity:
    keys = {key.replace("_", "."): text for key, text in settings.items()}
    return NodeIdentity.of(BrokerConfig.single_node({"log.dirs": "data"} | keys))


def test_without_settings_rights_alone_decide() -> None:
    rule = identity()
    assert rule.may_send("User:ANONYMOUS", NOBODY, [3])
    assert rule.serves_nodes("PLAINTEXT") and not rule.serves_nodes("CLIENTS")


def test_a_certificate_binds_its_node() -> None:
    rule = identity()
    assert rule.may_send("User:x", frozenset({3}), [3, 3, -1])
    assert not rule.may_send("User:x", frozenset({3}), [3, 4])


def test_a_principal_binds_its_nodes_and_keeps_others_away() -> None:
    rule = identity(ottla_node_principals="1=User:CN=a,O=b; 2=User:CN=a,O=b;3=User:c")
    assert rule.may_send("User:CN=a,O=b", NOBODY, [1, 2])
    assert not rule.may_send("User:CN=a,O=b", NOBODY, [3])
    assert not rule.may_send("User:d", NOBODY, [3])
    assert rule.may_send("User:d", NOBODY, [4])


def test_only_digits_after_the_prefix_name_a_node() -> None:
    uris = ["ottla:node:12", "ottla:node:", "ottla:node:-1", "ottla:node:1x", "ottla:node:²", "https://a/1"]
    assert certified_nodes(uris) == {12}


@pytest.mark.parametrize("text", ["User:a", "x=User:a", "1=a", "-1=User:a", "1="])
def test_a_mapping_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="separated by semicolons"):
        identity(ottla_node_principals=text)


def test_required_needs_nodes_that_authenticate() -> None:
    with pytest.raises(ConfigError, match="listener PLAINTEXT"):
        identity(ottla_node_identity="required")
    with pytest.raises(ConfigError, match="ifpresent or required"):
        identity(ottla_node_identity="sometimes")
