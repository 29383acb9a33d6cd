"""The keys that connectors of databases share, with Confluent's names."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.connect.config.definitions import ConfigDef, ConfigKey, ConfigValues
from ottla.connect.databases.address import Address, parse_address
from ottla.connect.databases.dialect import Dialect, dialect_of
from ottla.connect.failures import ConfigInvalid

CONNECTION = ConfigDef(
    [
        ConfigKey("connection.url", importance="HIGH", documentation="The JDBC address of the database"),
        ConfigKey("connection.user", default=None, importance="HIGH", documentation="The user"),
        ConfigKey("connection.password", "PASSWORD", None, "HIGH", "The password"),
        ConfigKey("connection.attempts", "INT", 3, "LOW", "Has no effect: attempts go on until one succeeds"),
        ConfigKey(
            "connection.backoff.ms", "LONG", 10_000, "LOW", "Has no effect: see ottla.restart.backoff.ms"
        ),
        ConfigKey(
            "dialect.name", default="", importance="LOW", documentation="Has no effect: the address decides"
        ),
        ConfigKey(
            "db.timezone", default="UTC", documentation="The zone of times that have none of their own"
        ),
        ConfigKey("quote.sql.identifiers", default="always", documentation="Has no effect: names are quoted"),
    ]
)


def dialect_for(values: ConfigValues) -> Dialect:
    """The database of a connector's values."""
    return dialect_of(address_of(values))


def address_of(values: ConfigValues) -> Address:
    """The address of a connector's values."""
    return parse_address(
        values["connection.url"] or "", values["connection.user"], values["connection.password"]
    )


def address_errors(config: Mapping[str, str]) -> dict[str, list[str]]:
    """What is wrong with the address, by key."""
    url = config.get("connection.url", "")
    if not url or "${" in url:
        return {}
    try:
        parse_address(url)
    except ConfigInvalid as error:
        return {"connection.url": [str(error)]}
    return {}
