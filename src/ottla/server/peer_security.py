"""How this node secures the connections that it opens: to controllers by their listener, to brokers by theirs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ottla.config.errors import ConfigError
from ottla.config.listeners import SecurityProtocol, parse_protocol_map
from ottla.raft.contacts import FETCHES, VOTES

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.security.listener_security import ClientSecurity
    from ottla.security.tls_material import TlsEndpoint

_logger = logging.getLogger(__name__)

_TO_CONTROLLERS: Final = frozenset({FETCHES, VOTES, "to-controller"})
"""Purposes of connections to the controllers' listener."""


class PeerSecurity:
    """The security of connections by their purpose."""

    def __init__(self, to_controllers: ClientSecurity | None, to_brokers: ClientSecurity | None) -> None:
        self._to_controllers = to_controllers
        self._to_brokers = to_brokers

    def of(self, purpose: str) -> ClientSecurity | None:
        return self._to_controllers if purpose in _TO_CONTROLLERS else self._to_brokers

    def update(self, config: BrokerConfig) -> None:
        """Log in with changed JAAS configurations from now on; one that cannot work changes nothing."""
        for each in (self._to_controllers, self._to_brokers):
            try:
                if each is not None:
                    each.update(config)
            except ConfigError as error:
                _logger.error("%s. This node logs in to others as before", error.message)

    def tls_endpoints(self) -> list[TlsEndpoint]:
        """The TLS of both, as far as they use it."""
        both = (self._to_controllers, self._to_brokers)
        return [each.tls for each in both if each is not None and each.tls is not None]


def peer_security(config: BrokerConfig) -> PeerSecurity:
    """How this node opens connections. Raises ConfigError for settings that cannot work."""
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
    return PeerSecurity(to_controllers, to_brokers)


def _client(
    config: BrokerConfig, name: str, protocol: SecurityProtocol, mechanism_key: str
) -> ClientSecurity | None:
    if protocol is SecurityProtocol.PLAINTEXT:
        return None
    # Loaded where a listener needs it: cryptography takes 50 ms.
    from ottla.security.listener_security import ClientSecurity

    return ClientSecurity(config, name, protocol, mechanism_key)
