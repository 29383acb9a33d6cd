"""Parses listeners and quorum voters of a configuration."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum

import msgspec

from ottla.config.errors import ConfigError


class SecurityProtocol(Enum):
    """How a listener's connections are secured, with Kafka's number for each."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3


class Listener(msgspec.Struct, frozen=True):
    """One endpoint. An empty host means every address of the machine; port 0 any free port."""

    name: str
    host: str
    port: int
    protocol: SecurityProtocol

    @property
    def address(self) -> str:
        return format_address(self.host, self.port)


class Voter(msgspec.Struct, frozen=True):
    """A member of the controller quorum, from `controller.quorum.voters`."""

    id: int
    host: str
    port: int


_ENDPOINT = re.compile(
    r"(?P<name>[^:/]+)://(?P<host>\[[0-9a-zA-Z\-%._:]*\]|[0-9a-zA-Z\-%._]*):(?P<port>-?[0-9]+)$"
)
_ADDRESS = re.compile(r"(?P<host>\[[0-9a-zA-Z\-%._:]+\]|[0-9a-zA-Z\-%._]*):(?P<port>[0-9]+)$")
_VOTER = re.compile(r"(?P<id>[0-9]+)@(?P<address>.+)$")
_MAX_PORT = 65535


def format_address(host: str, port: int) -> str:
    """`host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_address(text: str) -> tuple[str, int] | None:
    """Host and port of `host:port` or `[v6]:port`; None if it is neither."""
    found = _ADDRESS.match(text.strip())
    if found is None or int(found["port"]) > _MAX_PORT:
        return None
    return found["host"].strip("[]"), int(found["port"])


def parse_protocol_map(text: str, key: str = "listener.security.protocol.map") -> dict[str, SecurityProtocol]:
    """The security protocol of each listener name."""
    protocols: dict[str, SecurityProtocol] = {}
    for pair in (part.strip() for part in text.split(",") if part.strip()):
        name, _, protocol = pair.partition(":")
        try:
            protocols[name.strip().upper()] = SecurityProtocol[protocol.strip().upper()]
        except KeyError:
            expected = "NAME:PROTOCOL pairs with a protocol of " + ", ".join(SecurityProtocol.__members__)
            raise ConfigError.bad_value(key, text, expected) from None
    return protocols


def parse_listeners(
    key: str, entries: Iterable[str], protocols: dict[str, SecurityProtocol], controllers: Iterable[str] = ()
) -> tuple[Listener, ...]:
    """The endpoints of `listeners` or `advertised.listeners`."""
    shown = ",".join(entries)
    found: list[Listener] = []
    controller_names = {name.upper() for name in controllers}
    for entry in entries:
        match = _ENDPOINT.match(entry)
        if match is None or not -1 <= int(match["port"]) <= _MAX_PORT:
            raise ConfigError.bad_value(key, shown, "NAME://HOST:PORT, separated by commas")
        name = match["name"].upper()
        protocol = protocols.get(name)
        # As in Kafka: controller listeners use PLAINTEXT unless the map has another protocol.
        if protocol is None and name in controller_names:
            protocol = SecurityProtocol.PLAINTEXT
        if protocol is None:
            raise ConfigError.bad_value(
                key, shown, f"a protocol for listener {name} in listener.security.protocol.map"
            )
        found.append(Listener(name, match["host"].strip("[]"), int(match["port"]), protocol))
    _check_distinct(key, shown, found)
    return tuple(found)


def _check_distinct(key: str, shown: str, found: list[Listener]) -> None:
    if len({listener.name for listener in found}) != len(found):
        raise ConfigError.bad_value(key, shown, "a different name for each listener")
    if key != "listeners":
        return
    # One port can serve one IPv4 and one IPv6 address; conflicts between those show when they are bound.
    taken = [(listener.host, listener.port) for listener in found if listener.port != 0]
    if len(set(taken)) != len(taken):
        raise ConfigError.bad_value(key, shown, "a different port for each listener")


def parse_voters(entries: Iterable[str], key: str = "controller.quorum.voters") -> tuple[Voter, ...]:
    """The members of a static quorum: `id@host:port`."""
    found: list[Voter] = []
    for entry in entries:
        match = _VOTER.match(entry)
        address = parse_address(match["address"]) if match else None
        if match is None or address is None or not address[0]:
            raise ConfigError.bad_value(key, ",".join(entries), "ID@HOST:PORT, separated by commas")
        found.append(Voter(int(match["id"]), *address))
    if len({voter.id for voter in found}) != len(found):
        raise ConfigError.bad_value(key, ",".join(entries), "each voter once")
    return tuple(found)
