"""Which broker keys have an effect in this version. The others are accepted, with a warning that names them.

`tests/unit/config/test_config_acted_on.py` keeps the table true: each key must be read by some module.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ottla.config.synonyms import TOPIC_SYNONYMS

_NODE: Final = frozenset(
    {
        "advertised.listeners",
        "broker.id",
        "controller.listener.names",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
        "listeners",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
        "node.id",
        "process.roles",
        "security.inter.broker.protocol",
    }
)

_BROKER: Final = frozenset(
    {
        "auto.create.topics.enable",
        "default.replication.factor",
        "delete.topic.enable",
        "num.partitions",
    }
)

_TOPIC_DEFAULTS: Final = frozenset(synonym.name for keys in TOPIC_SYNONYMS.values() for synonym in keys)

ACTED_ON: Final = _NODE | _BROKER | _TOPIC_DEFAULTS


def unused_keys(given: Iterable[str]) -> list[str]:
    """Those of the given keys that have no effect."""
    return sorted(key for key in given if key not in ACTED_ON)
