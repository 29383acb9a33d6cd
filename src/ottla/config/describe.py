"""The entries of DescribeConfigs for broker and topic keys: value, source, and synonyms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from ottla import __version__
from ottla.config.broker import BrokerConfig
from ottla.config.definitions import BROKER_KEYS, TOPIC_KEYS, ConfigDef, text_of
from ottla.config.dynamic import definition_of
from ottla.config.synonyms import TOPIC_SYNONYMS, base_of_listener_key, broker_synonyms
from ottla.config.topic import topic_value, usable_overrides
from ottla.wire.enums import ConfigSource, ConfigType

VERSION_KEY: Final = "ottla.version"
"""Asked for by this name, a node of Ottla describes its version. Apache Kafka has no such key."""

_PUBLIC_TOPIC_KEYS: Final = frozenset(name for name, each in TOPIC_KEYS.items() if not each.internal)


class SynonymEntry(msgspec.Struct, frozen=True):
    """A key that sets the same thing, with its own value."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(msgspec.Struct, frozen=True):
    """One key of a resource."""

    name: str
    value: str | None
    """None if it is unset, and for secrets."""
    source: ConfigSource
    synonyms: tuple[SynonymEntry, ...]
    """All values that are configured for it; the first one is effective."""
    type: int
    read_only: bool
    sensitive: bool


_VERSION: Final = ConfigEntry(
    name=VERSION_KEY,
    value=__version__,
    source=ConfigSource.DEFAULT_CONFIG,
    synonyms=(),
    type=ConfigType.STRING.value,
    read_only=True,
    sensitive=False,
)


def describe_broker(config: BrokerConfig, keys: Iterable[str] | None = None) -> list[ConfigEntry]:
    """The entries of one broker, by name; all of them, or those of `keys` that exist."""
    given = config.static.keys() | config.dynamic_default.keys() | config.dynamic.keys()
    public = {name for name, definition in BROKER_KEYS.items() if not definition.internal}
    keys = None if keys is None else set(keys)
    names = _chosen(given | public, keys)
    entries = [_broker_entry(config, name, text_of(config[name]), per_broker=True) for name in names]
    # Only who asks for it by name gets it: a list of all keys is the same as Kafka's.
    return [*entries, _VERSION] if keys is not None and VERSION_KEY in keys else entries


def describe_broker_defaults(config: BrokerConfig, keys: Iterable[str] | None = None) -> list[ConfigEntry]:
    """The entries of the cluster-wide default: only the keys that were changed for all brokers."""
    changed = config.dynamic_default
    return [_broker_entry(config, name, changed[name], per_broker=False) for name in _chosen(changed, keys)]


def describe_topic(
    config: BrokerConfig, overrides: Mapping[str, str], keys: Iterable[str] | None = None
) -> list[ConfigEntry]:
    """The entries of one topic with these stored overrides."""
    own = usable_overrides(overrides)
    entries: list[ConfigEntry] = []
    # Only the values that are asked for: a console asks for one key of thousands of topics.
    for name in _chosen(own.keys() | _PUBLIC_TOPIC_KEYS, keys):
        value = text_of(topic_value(config, own, name))
        synonyms = [SynonymEntry(name, value, ConfigSource.DYNAMIC_TOPIC_CONFIG)] if name in own else []
        if broker_keys := TOPIC_SYNONYMS.get(name):
            synonyms += _broker_synonyms(config, broker_keys[0].name, sensitive=False)
        entries.append(_entry(name, value, TOPIC_KEYS[name], tuple(synonyms), read_only=False))
    return entries


def _chosen(names: Iterable[str], keys: Iterable[str] | None) -> list[str]:
    return sorted(names if keys is None else set(names).intersection(keys))


def _broker_entry(config: BrokerConfig, name: str, value: str | None, *, per_broker: bool) -> ConfigEntry:
    definition = definition_of(name)
    sensitive = definition is None or definition.sensitive
    synonyms = tuple(
        item
        for item in _broker_synonyms(config, name, sensitive=sensitive)
        if per_broker or item.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    )
    plain = BROKER_KEYS.get(name)
    return _entry(name, value, definition, synonyms, read_only=plain is None or plain.read_only)


def _entry(
    name: str,
    value: str | None,
    definition: ConfigDef | None,
    synonyms: tuple[SynonymEntry, ...],
    *,
    read_only: bool,
) -> ConfigEntry:
    # As in Kafka: the value of an unknown key may be a secret.
    sensitive = definition is None or definition.sensitive
    return ConfigEntry(
        name=name,
        value=None if sensitive else value,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        synonyms=synonyms,
        type=ConfigType.UNKNOWN.value if definition is None else definition.type.value,
        read_only=read_only,
        sensitive=sensitive,
    )


def _broker_synonyms(config: BrokerConfig, name: str, *, sensitive: bool) -> list[SynonymEntry]:
    base = base_of_listener_key(name)
    names = broker_synonyms(name) if base is None else (name, base)
    found = [
        SynonymEntry(key, None if sensitive else text, source)
        for source, values in _layers(config, names)
        for key, text in values.items()
    ]
    # As in Kafka: the list begins with the requested key, even if another one takes precedence.
    start = next((index for index, item in enumerate(found) if item.name == name), len(found))
    return found[start:]


def _layers(config: BrokerConfig, names: tuple[str, ...]) -> Iterator[tuple[ConfigSource, dict[str, str]]]:
    """The values of these keys by source, in order of precedence."""
    defaults = {name: text for name in names if (text := _default_text(name)) is not None}
    yield ConfigSource.DYNAMIC_BROKER_CONFIG, _picked(config.dynamic, names)
    yield ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, _picked(config.dynamic_default, names)
    yield ConfigSource.STATIC_BROKER_CONFIG, _picked(config.static, names)
    yield ConfigSource.DEFAULT_CONFIG, defaults


def _picked(values: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    return {name: values[name] for name in names if name in values}


def _default_text(name: str) -> str | None:
    definition = BROKER_KEYS.get(name)
    return None if definition is None else text_of(definition.parse(definition.default))
