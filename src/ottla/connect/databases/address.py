"""JDBC addresses, as connectors of Java write them, and what Python's drivers need of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, unquote

from ottla.connect.failures import ConfigInvalid

_SERVER: Final = re.compile(
    r"//(?:(?P<host>\[[0-9a-fA-F:]+\]|[^/:?;,]*)(?::(?P<port>\d{1,5}))?)?(?:/(?P<database>[^?;]*))?(?:\?(?P<options>.*))?"
)
_PORTS: Final = {"postgresql": 5432, "mysql": 3306}
_KINDS: Final = {
    "sqlite": "sqlite",
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "mysql": "mysql",
    "mariadb": "mysql",
}


@dataclass(frozen=True, slots=True)
class Address:
    """Where a database is. `user` and `password` are those of the connector, or of the address itself."""

    kind: str
    database: str
    host: str = ""
    port: int = 0
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        return self.database if self.kind == "sqlite" else f"{self.host}:{self.port}/{self.database}"


def parse_address(url: str, user: str | None = None, password: str | None = None) -> Address:
    """The address of a JDBC URL; ConfigInvalid with what is understood.

    >>> str(parse_address("jdbc:postgresql://db.example/shop"))
    'db.example:5432/shop'
    """
    scheme, colon, rest = url.removeprefix("jdbc:").partition(":")
    kind = _KINDS.get(scheme.lower())
    if not colon or kind is None:
        shown = scheme if colon and scheme.isalnum() else "this address"
        raise ConfigInvalid(
            f"connection.url: there is no driver for {shown}. Addresses begin with jdbc:sqlite:, jdbc:postgresql:, "
            "jdbc:mysql: or jdbc:mariadb:"
        )
    if kind == "sqlite":
        path = rest.partition("?")[0].removeprefix("//")
        if not path:
            raise ConfigInvalid(
                "connection.url: the address of SQLite needs a file: jdbc:sqlite:/path/file.db"
            )
        return Address(kind, path)
    match = _SERVER.fullmatch(rest)
    if match is None or int(match["port"] or 0) > 65_535:
        raise ConfigInvalid(f"connection.url: write jdbc:{scheme}://host:port/database, with one host")
    options = dict(parse_qsl(match["options"] or ""))
    return Address(
        kind,
        unquote(match["database"] or ""),
        (match["host"] or "localhost").strip("[]"),
        int(match["port"] or _PORTS[kind]),
        user or options.pop("user", None),
        password or options.pop("password", None),
        options,
    )
