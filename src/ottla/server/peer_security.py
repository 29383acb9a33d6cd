"""How this node secures the connections that it opens: to controllers by their listener, to brokers by theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.config.listeners import SecurityProtocol, parse_protocol_map
from ottla.raft.contacts import FETCHES, VOTES

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.security.listener_security import ClientSecurity

_TO_CONTROLLERS: Final = frozenset({FETCHES, VOTES, "to-controller"})
"""Purposes of connections to the controllers' listener."""


def peer_security(config: BrokerConfig) -> Callable[[str], ClientSecurity | None]:
    """The security of connections for a purpose. Raises ConfigError for settings that cannot work."""
    protocols = parse_protocol_map(config.str("listener.security.protocol.map"))
    to_controllers = to_brokers = None
    if config.controller_listener_names:
        name = config.controller_listener_names[0]
        protocol = protocols.get(name, SecurityProtocol.PLAINTEXT)
        to_controllers = _client(config, name, protocol, "sasl.mechanism.controller.protocol")
    if config.is_broker:
        name = config.inter_broker_listener_name
        protocol = protocols.get(name, SecurityProtocol.PLAINTEXT)
        to_brokers = _client(config, name, protocol, "sasl.mechanism.inter.broker.protocol")

    def of(purpose: str) -> ClientSecurity | None:
        return to_controllers if purpose in _TO_CONTROLLERS else to_brokers

    return of


def _client(
    config: BrokerConfig, name: str, protocol: SecurityProtocol, mechanism_key: str
) -> ClientSecurity | None:
    if protocol is SecurityProtocol.PLAINTEXT:
        return None
    # Loaded where a listener needs it: cryptography takes 50 ms.
    from ottla.security.listener_security import ClientSecurity

    return ClientSecurity(config, name, protocol, mechanism_key)
