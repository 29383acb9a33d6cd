"""The configuration of one node: static keys, what was changed while it runs, and the values in force.

A `BrokerConfig` never changes; a change of a dynamic key makes a new one. Topic keys are `topic.py`'s.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType

from ottla.config import checks
from ottla.config.definitions import BROKER_KEYS, ConfigDef, Value
from ottla.config.dynamic import usable_dynamic
from ottla.config.errors import ConfigError
from ottla.config.listeners import Listener, Voter, parse_listeners, parse_protocol_map, parse_voters
from ottla.config.synonyms import base_of_listener_key
from ottla.config.values import TypedValues
from ottla.ids import BrokerId

log = logging.getLogger(__name__)

_NOTHING: Mapping[str, str] = MappingProxyType({})

SINGLE_NODE: Mapping[str, str] = MappingProxyType({"process.roles": "broker,controller", "node.id": "1"})
"""What a node is told to be when nothing else is: a cluster of its own."""


class BrokerConfig(TypedValues):
    """Typed values by key: `config["log.segment.bytes"]`, or `config.int(...)` and its kin for mypy."""

    __slots__ = (
        "advertised_listeners",
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
        self.static: Mapping[str, str] = MappingProxyType(static)
        self.dynamic_default: Mapping[str, str] = MappingProxyType(dict(dynamic_default))
        self.dynamic: Mapping[str, str] = MappingProxyType(dict(dynamic))
        given = {**static, **dynamic_default, **dynamic}
        values = {name: _value(definition, given) for name, definition in BROKER_KEYS.items()}
        for name, text in given.items():
            if name not in BROKER_KEYS:
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
        """Only what is written in `advertised.listeners`; empty where it is left unset."""
        self.voters: tuple[Voter, ...] = parse_voters(self.list("controller.quorum.voters"))
        self.inter_broker_listener_name: str = checks.inter_broker_listener_name(self)
        self.log_dirs: tuple[str, ...] = self.list("log.dirs") or self.list("log.dir")
        self.metadata_log_dir: str = self.opt_str("metadata.log.dir") or next(iter(self.log_dirs), "")
        checks.check_all(self)

    @classmethod
    def single_node(cls, overrides: Mapping[str, str] = _NOTHING) -> BrokerConfig:
        """A node that is broker and controller in one; roles and id filled in where they are not given."""
        return cls({**SINGLE_NODE, **overrides})

    def with_overrides(self, overrides: Mapping[str, str]) -> BrokerConfig:
        """The same with other static values."""
        return BrokerConfig({**self.static, **overrides}, self.dynamic_default, self.dynamic)

    def with_dynamic(self, default: Mapping[str, str], own: Mapping[str, str]) -> BrokerConfig:
        """The same with these dynamic changes in place of the earlier ones.

        Changes that may not be made at run time, or whose value does not fit, are left out: what stands in
        the metadata log must never keep a broker from running.
        """
        usable = usable_dynamic(default, per_broker=False)
        usable_own = usable_dynamic(own, per_broker=True)
        try:
            return BrokerConfig(self.static, usable, usable_own)
        except ConfigError as error:
            log.error("Dynamic changes do not fit the file and are not put in force: %s", error.message)
            return BrokerConfig(self.static)

    def is_set(self, key: str) -> bool:
        """Someone gave the key a value, statically or dynamically."""
        return key in self.static or key in self.dynamic_default or key in self.dynamic

    @property
    def cordoned_log_dirs(self) -> frozenset[str]:
        """The log directories that get nothing new, as `log.dirs` names them."""
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
        """The endpoint to tell clients of this listener; None where they keep the address they came by."""
        return next((item for item in self.advertised_listeners if item.name == listener_name), None)


def _value(definition: ConfigDef, given: Mapping[str, str]) -> Value:
    text = given.get(definition.name)
    value: Value = definition.parse(definition.default if text is None else text)
    return value


def _prefixed_value(name: str, text: str) -> Value:
    base = base_of_listener_key(name)
    if base is None or base not in BROKER_KEYS:
        return text
    try:
        value: Value = BROKER_KEYS[base].parse(text)
    except ConfigError as error:
        raise ConfigError(error.message.replace(base, name, 1), key=name) from None
    return value
