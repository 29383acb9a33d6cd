"""Which node a connection may speak for: by its certificate's `ottla:node:<id>` names, or by its principal.

Kafka lets every principal with CLUSTER_ACTION be any follower, voter or controller. Here a request with a node's
id must come from that node, on a listener that serves nodes. Connections without a known node are let in or not by
`ottla.node.identity`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from ottla.config.errors import ConfigError
from ottla.config.listeners import Listener, SecurityProtocol
from ottla.security.principal import parse_principal

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig

IDENTITY_KEY: Final = "ottla.node.identity"
PRINCIPALS_KEY: Final = "ottla.node.principals"
NODE_URI: Final = "ottla:node:"
"""A URI among the subject alternative names of a node's certificate: this, and the node's id."""
NOBODY: Final[frozenset[int]] = frozenset()

_MODES: Final = ("ifpresent", "required")


class NodeIdentity(msgspec.Struct, frozen=True):
    """A node's rule for the ids of other nodes."""

    required: bool
    """Only connections of known nodes may send requests of nodes."""
    by_principal: dict[str, frozenset[int]]
    bound: frozenset[int]
    """The ids that some principal has: nobody else may use them."""
    listeners: frozenset[str]
    """The listeners that serve nodes: those of controllers, and the one between brokers."""

    @classmethod
    def of(cls, config: BrokerConfig) -> NodeIdentity:
        """From `ottla.node.identity` and `ottla.node.principals`. Raises ConfigError."""
        mode = config.static.get(IDENTITY_KEY, _MODES[0]).strip().lower()
        if mode not in _MODES:
            raise ConfigError.bad_value(IDENTITY_KEY, mode, " or ".join(_MODES))
        by_principal = _principals(config.static.get(PRINCIPALS_KEY, ""))
        identity = cls(
            required=mode == "required",
            by_principal=by_principal,
            bound=NOBODY.union(*by_principal.values()),
            listeners=frozenset({*config.controller_listener_names, config.inter_broker_listener_name}),
        )
        if identity.required:
            for listener in config.listeners:
                if listener.name in identity.listeners and is_anonymous(config, listener):
                    raise ConfigError(
                        f"{IDENTITY_KEY}=required needs nodes that authenticate, and listener {listener.name} "
                        f"({listener.protocol.name}) does not ask for a client certificate or a login: set "
                        "ssl.client.auth=required, or use SASL",
                        key=IDENTITY_KEY,
                    )
        return identity

    def serves_nodes(self, listener_name: str) -> bool:
        return listener_name in self.listeners

    def may_send(self, principal: str, certified: frozenset[int], claimed: Iterable[int]) -> bool:
        """Whether a connection may send a request in the name of these nodes; negative ids name nobody.

        `certified` are the node ids of its certificate.
        """
        own = certified | self.by_principal.get(principal, NOBODY)
        if self.required and not own:
            return False
        return all(
            node_id < 0 or node_id in own or (not own and node_id not in self.bound) for node_id in claimed
        )


def certified_nodes(uris: Iterable[str]) -> frozenset[int]:
    """The node ids among the URIs of a certificate."""
    found = (uri.removeprefix(NODE_URI) for uri in uris if uri.startswith(NODE_URI))
    return frozenset(int(digits) for digits in found if digits.isascii() and digits.isdigit())


def is_anonymous(config: BrokerConfig, listener: Listener) -> bool:
    """Whether a listener lets clients in without knowing who they are."""
    if listener.protocol is SecurityProtocol.PLAINTEXT:
        return True
    own = f"listener.name.{listener.name.lower()}.ssl.client.auth"
    client_auth = config.static.get(own, config.static.get("ssl.client.auth", "none"))
    return listener.protocol is SecurityProtocol.SSL and client_auth.strip().lower() != "required"


def _principals(text: str) -> dict[str, frozenset[int]]:
    """`1=User:broker1;2=User:CN=broker2,O=Shop`: the node ids of each principal."""
    found: dict[str, frozenset[int]] = {}
    for entry in (part.strip() for part in text.split(";")):
        if not entry:
            continue
        digits, _, principal = entry.partition("=")
        digits, principal = digits.strip(), principal.strip()
        try:
            if not (digits.isascii() and digits.isdigit()):
                raise ValueError
            name = str(parse_principal(principal))
        except ValueError:
            raise ConfigError.bad_value(
                PRINCIPALS_KEY, text, "entries like 1=User:broker1, separated by semicolons"
            ) from None
        found[name] = found.get(name, NOBODY) | {int(digits)}
    return found
