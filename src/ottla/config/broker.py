"""The configuration of one node: static keys, dynamic changes, and the effective values.

A `BrokerConfig` is immutable: a change of a dynamic key makes a new one. `topic.py` holds the topic keys.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType

from ottla.config import checks
from ottla.config.definitions import BROKER_KEYS, OWN_KEYS, ConfigDef
from ottla.config.dynamic import usable_dynamic
from ottla.config.errors import ConfigError
from ottla.config.listeners import Listener, Voter, parse_listeners, parse_protocol_map, parse_voters
from ottla.config.providers import Providers
from ottla.config.secrets import ConfigTexts, is_secret
from ottla.config.synonyms import base_of_listener_key
from ottla.config.values import TypedValues, Value
from ottla.ids import BrokerId

_logger = logging.getLogger(__name__)

_NOTHING: Mapping[str, str] = MappingProxyType({})

SINGLE_NODE: Mapping[str, str] = MappingProxyType({"process.roles": "broker,controller", "node.id": "1"})
"""The default roles and id: a node that is a cluster by itself."""


class BrokerConfig(TypedValues):
    """Typed values by key: `config.int("log.segment.bytes")` and similar, or `config[...]` for any type."""

    __slots__ = (
        "advertised_listeners",
        "bootstrap_listeners",
        "controller_listener_names",
        "dynamic",
        "dynamic_default",
        "inter_broker_listener_name",
        "listeners",
        "log_dirs",
        "metadata_log_dir",
        "node_id",
        "roles",
        "static",
        "voters",
    )

    def __init__(
        self,
        static: Mapping[str, str],
        dynamic_default: Mapping[str, str] = _NOTHING,
        dynamic: Mapping[str, str] = _NOTHING,
    ) -> None:
        """`dynamic_default` are the cluster-wide changes, `dynamic` those of this broker alone."""
        checks.check_names(static)
        static = checks.with_both_ids(static)
        self.static: Mapping[str, str] = ConfigTexts(static)
        self.dynamic_default: Mapping[str, str] = ConfigTexts(dynamic_default)
        self.dynamic: Mapping[str, str] = ConfigTexts(_resolved_secrets(static, dynamic))
        given = {**static, **dynamic_default, **self.dynamic}
        values = {name: _value(definition, given) for name, definition in BROKER_KEYS.items()}
        values.update((name, _value(definition, given)) for name, definition in OWN_KEYS.items())
        for name, text in given.items():
            if name not in BROKER_KEYS and name not in OWN_KEYS:
                values[name] = _prefixed_value(name, text)

        super().__init__(values)
        self.node_id = BrokerId(checks.node_id(self))
        self.roles: frozenset[str] = frozenset(self.list("process.roles"))
        self.controller_listener_names: tuple[str, ...] = tuple(
            name.upper() for name in self.list("controller.listener.names")
        )
        protocols = parse_protocol_map(self.str("listener.security.protocol.map"))
        names = self.controller_listener_names
        self.listeners: tuple[Listener, ...] = parse_listeners(
            "listeners", self.list("listeners"), protocols, names
        )
        self.advertised_listeners: tuple[Listener, ...] = parse_listeners(
            "advertised.listeners", self.list("advertised.listeners"), protocols, names
        )
        """Only the entries of `advertised.listeners`; empty if it is unset."""
        self.bootstrap_listeners: tuple[Listener, ...] = parse_listeners(
            "ottla.bootstrap.listeners", self.list("ottla.bootstrap.listeners"), protocols
        )
        """More addresses of listeners, which the processes of a machine share (`ottla.processes`)."""
        self.voters: tuple[Voter, ...] = parse_voters(self.list("controller.quorum.voters"))
        self.inter_broker_listener_name: str = checks.inter_broker_listener_name(self)
        self.log_dirs: tuple[str, ...] = self.list("log.dirs") or self.list("log.dir")
        self.metadata_log_dir: str = self.opt_str("metadata.log.dir") or next(iter(self.log_dirs), "")
        checks.check_all(self)

    @classmethod
    def single_node(cls, overrides: Mapping[str, str] = _NOTHING) -> BrokerConfig:
        """A node that is broker and controller. Roles and id have defaults."""
        return cls({**SINGLE_NODE, **overrides})

    def with_dynamic(self, default: Mapping[str, str], own: Mapping[str, str]) -> BrokerConfig:
        """A copy with these dynamic changes in place of the earlier ones.

        Changes that cannot be made at run time and invalid values are ignored: the content of the metadata log must
        never stop a broker.
        """
        usable = usable_dynamic(default, per_broker=False)
        usable_own = usable_dynamic(own, per_broker=True)
        try:
            return BrokerConfig(self.static, usable, usable_own)
        except ConfigError as error:
            _logger.error(
                "Dynamic configuration is ignored, because its values contradict each other or the file: %s",
                error.message,
            )
            return BrokerConfig(self.static)

    def is_set(self, key: str) -> bool:
        """Whether the key was given a value, statically or dynamically."""
        return key in self.static or key in self.dynamic_default or key in self.dynamic

    @property
    def cordoned_log_dirs(self) -> frozenset[str]:
        """The log directories that get no new partitions, as `log.dirs` names them."""
        cordoned = self.list("cordoned.log.dirs")
        return frozenset(self.log_dirs if cordoned == checks.ALL_DIRECTORIES else cordoned)

    @property
    def is_broker(self) -> bool:
        return "broker" in self.roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.roles

    @property
    def broker_listeners(self) -> tuple[Listener, ...]:
        """The listeners for clients and other brokers."""
        return tuple(item for item in self.listeners if item.name not in self.controller_listener_names)

    @property
    def controller_listeners(self) -> tuple[Listener, ...]:
        return tuple(item for item in self.listeners if item.name in self.controller_listener_names)

    def advertised(self, listener_name: str) -> Listener | None:
        """The endpoint to advertise to clients of this listener; None if they keep the address that they used."""
        return next((item for item in self.advertised_listeners if item.name == listener_name), None)


def _resolved_secrets(static: Mapping[str, str], dynamic: Mapping[str, str]) -> Mapping[str, str]:
    """Dynamic passwords may be references to the file's providers. Values that can be described may not."""
    if not static.get("config.providers") or not dynamic:
        return dynamic
    providers = Providers(static)
    return {key: providers.resolve(key, text) if is_secret(key) else text for key, text in dynamic.items()}


def _value(definition: ConfigDef, given: Mapping[str, str]) -> Value:
    text = given.get(definition.name)
    return definition.parse(definition.default if text is None else text)


def _prefixed_value(name: str, text: str) -> Value:
    base = base_of_listener_key(name)
    if base is None or base not in BROKER_KEYS:
        return text
    try:
        return BROKER_KEYS[base].parse(text)
    except ConfigError as error:
        raise ConfigError(error.message.replace(base, name, 1), key=name) from None
