"""The configuration of a node from a command line: the file, then --set, then the other flags."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ottla.cli.properties_file import read_properties
from ottla.config.broker import SINGLE_NODE, BrokerConfig
from ottla.config.definitions import DATA_DIRECTORY
from ottla.config.errors import ConfigError
from ottla.config.listeners import format_address, parse_address
from ottla.config.providers import resolved

DEFAULT_LISTEN: Final = "localhost:9092"


def parse_assignments(words: Iterable[str], flag: str) -> dict[str, str]:
    """The pairs of a repeated `--set key=value`."""
    pairs: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"Invalid value '{word}' for {flag}: expected key=value")
        pairs[key.strip()] = value.strip()
    return pairs


def http_address(text: str) -> tuple[str, int]:
    """The value of --http: a port of localhost, or HOST:PORT."""
    address = parse_address(text if ":" in text else f"localhost:{text}")
    if address is None:
        raise ConfigError(f"Invalid value '{text}' for --http: expected PORT or HOST:PORT")
    return address


def node_config(
    file: str | None = None,
    settings: Mapping[str, str] | None = None,
    data: str | None = None,
    listen: str | None = None,
) -> BrokerConfig:
    """The configuration in force. The defaults make a single node on localhost with data in ./ottla-data."""
    given = read_properties(file) if file is not None else {}
    given.update(settings or {})
    given = resolved(given)
    if "process.roles" not in given:
        own_id = {"node.id": given["broker.id"]} if "broker.id" in given else {}
        given = {**SINGLE_NODE, **own_id, **given}
    if data is not None:
        given.pop("log.dir", None)
        given["log.dirs"] = data
    elif not given.get("log.dirs") and not given.get("log.dir"):
        given["log.dirs"] = DATA_DIRECTORY
    if listen is not None:
        # What a file advertises belongs to where that file listens; what --set advertises is meant for this run.
        _listen_on(given, listen, keep_advertised="advertised.listeners" in (settings or {}))
    elif file is None and "listeners" not in given:
        _listen_on(given, DEFAULT_LISTEN)
    return BrokerConfig(given)


def _listen_on(given: dict[str, str], listen: str, *, keep_advertised: bool = False) -> None:
    """Put one client listener in the place of those given; the controllers' listeners stay."""
    address = parse_address(listen)
    if address is None:
        raise ConfigError(f"Invalid value '{listen}' for --listen: expected HOST:PORT")
    names = given.get("controller.listener.names", "").split(",")
    controllers = {word.strip().upper() for word in names if word.strip()}
    name = given.get("inter.broker.listener.name") or given.get("security.inter.broker.protocol", "PLAINTEXT")
    replaced: dict[str, list[str]] = {"listeners": [f"{name}://{format_address(*address)}"]}
    if not keep_advertised:
        replaced["advertised.listeners"] = []
    for key, own in replaced.items():
        kept = [entry.strip() for entry in given.get(key, "").split(",") if _name_of(entry) in controllers]
        entries = own + kept
        given.pop(key, None)
        if entries:
            given[key] = ",".join(entries)


def _name_of(entry: str) -> str:
    return entry.partition("://")[0].strip().upper()
