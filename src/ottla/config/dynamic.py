"""Checks changes of broker keys at run time: which keys can change, for one broker or for all."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ottla.config.definitions import BROKER_KEYS, OWN_KEYS, ConfigDef, UpdateMode
from ottla.config.errors import ConfigError
from ottla.config.providers import is_reference
from ottla.config.synonyms import base_of_listener_key

_logger = logging.getLogger(__name__)

_JAAS_KEY = ".sasl.jaas.config"
_CLUSTER_WIDE_LISTENER_KEYS = frozenset(
    {"max.connections", "max.connection.creation.rate", "num.network.threads"}
)

_SECURITY_KEYS = frozenset(
    {
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
"""Can be changed only for one listener at a time."""


def is_security_key(name: str) -> bool:
    """Whether a listener's key names a key store or a trust store."""
    return base_of_listener_key(name) in _SECURITY_KEYS


def definition_of(name: str) -> ConfigDef | None:
    """The table's entry of a key, with or without a listener prefix."""
    return OWN_KEYS.get(name) or BROKER_KEYS.get(base_of_listener_key(name) or name)


def check_dynamic(name: str, value: str | None, *, per_broker: bool) -> None:
    """Refuse a change that cannot be made at run time. `value` None removes the key."""
    definition = definition_of(name)
    if definition is None:
        # As in Kafka: unknown keys are kept for plug-ins.
        return
    if definition.read_only:
        raise ConfigError(
            f"Cannot update these configs dynamically: [{name}]. Set it in the configuration file and restart.",
            key=name,
        )
    if name in _SECURITY_KEYS:
        raise ConfigError(
            f"Cannot change configuration {name} for all listeners: use listener.name.<listener>.{name}",
            key=name,
        )
    if _only_per_broker(name, definition) and not per_broker:
        raise ConfigError(
            f"Cannot change configuration {name} for all brokers: name the broker it is for", key=name
        )
    if value is not None:
        definition.parse(value)
        if definition.name.endswith(".jaas.config") and not is_reference(value):
            _check_login(name, value)


def _check_login(name: str, value: str) -> None:
    """Refuse login modules that are not known: a class that a client names is never loaded, here or later."""
    # Loaded where a login is configured at run time.
    from ottla.credentials.errors import CredentialsError
    from ottla.credentials.jaas import parse_modules

    listener, _, mechanism = name.removesuffix(_JAAS_KEY).rpartition(".")
    try:
        modules = parse_modules(value)
        for module in modules:
            # Raises for a module that is not known.
            if not mechanism.upper().startswith(module.mechanism) and listener:
                raise CredentialsError(f"the login module {module.name} is not for {mechanism.upper()}")
        if listener and len(modules) > 1:
            raise CredentialsError(f"expected one login module, found {len(modules)}")
    except CredentialsError as error:
        raise ConfigError(f"Invalid configuration {name}: {error}", key=name) from None


def _only_per_broker(name: str, definition: ConfigDef) -> bool:
    if base_of_listener_key(name) is not None:
        return definition.name not in _CLUSTER_WIDE_LISTENER_KEYS
    return definition.update_mode is UpdateMode.PER_BROKER


def usable_dynamic(changes: Mapping[str, str], *, per_broker: bool) -> dict[str, str]:
    """The changes that can be applied; the others are logged."""
    usable: dict[str, str] = {}
    for name, value in changes.items():
        try:
            check_dynamic(name, value, per_broker=per_broker)
        except ConfigError as error:
            _logger.error("A dynamic configuration change is ignored: %s", error.message)
        else:
            usable[name] = value
    return usable
