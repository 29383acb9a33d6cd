"""JDBC sink: records as rows of tables, inserted, changed or deleted, each once.

The offsets of a cycle are rows of `ottla_connect_offsets` in the same database, written in the transaction of the
data. Keys are those of Confluent's connector; Debezium's names for them work too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.connect.config.definitions import ConfigDef, ConfigKey
from ottla.connect.databases.keys import CONNECTION, address_errors, dialect_for
from ottla.connect.failures import ConnectError
from ottla.connect.sinks.jdbc_writer import JdbcWriter
from ottla.connect.spi import Finding, SinkConnector, SinkWriter

_DEBEZIUM: Final = {
    "connection.username": "connection.user",
    "primary.key.mode": "pk.mode",
    "primary.key.fields": "pk.fields",
    "collection.name.format": "table.name.format",
}


class JdbcSink(SinkConnector):
    """`io.confluent.connect.jdbc.JdbcSinkConnector`."""

    java_classes = (
        "io.confluent.connect.jdbc.JdbcSinkConnector",
        "io.aiven.connect.jdbc.JdbcSinkConnector",
        "io.debezium.connector.jdbc.JdbcSinkConnector",
    )
    version = "10.8.0"

    def __init__(self, config: Mapping[str, str]) -> None:
        super().__init__(config)
        for theirs, ours in _DEBEZIUM.items():
            if config.get(theirs):
                self.values[ours] = self.config_def().keys[ours].parse(config[theirs])
        if config.get("schema.evolution") == "basic":
            self.values["auto.create"] = self.values["auto.evolve"] = True

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Confluent's keys, and Debezium's names of some."""
        return CONNECTION | ConfigDef(
            [
                ConfigKey(
                    "insert.mode", default="insert", importance="HIGH", valid="[insert, upsert, update]"
                ),
                ConfigKey(
                    "pk.mode",
                    default="none",
                    importance="HIGH",
                    valid="[none, kafka, record_key, record_value]",
                ),
                ConfigKey("pk.fields", "LIST", [], documentation="The columns of the primary key"),
                ConfigKey("delete.enabled", "BOOLEAN", False, documentation="A null value deletes its row"),
                ConfigKey("table.name.format", default="${topic}", documentation="The table of a topic"),
                ConfigKey(
                    "fields.whitelist", "LIST", [], documentation="Fields of values to write; all for none"
                ),
                ConfigKey("auto.create", "BOOLEAN", False, documentation="Make tables that are missing"),
                ConfigKey("auto.evolve", "BOOLEAN", False, documentation="Add columns that are missing"),
                ConfigKey("batch.size", "INT", 3000, documentation="Rows of a statement", valid="[1,...]"),
                ConfigKey("max.retries", "INT", 10, documentation="Has no effect: attempts go on"),
                ConfigKey(
                    "retry.backoff.ms",
                    "INT",
                    3000,
                    documentation="Has no effect: see ottla.restart.backoff.ms",
                ),
                ConfigKey("schema.evolution", default="none", valid="[none, basic]"),
                *(
                    ConfigKey(name, default="", documentation=f"The same as {ours}")
                    for name, ours in _DEBEZIUM.items()
                ),
            ]
        )

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> Mapping[str, list[str]]:
        """Combinations that cannot work."""
        found = address_errors(config)
        mode = config.get("pk.mode") or config.get("primary.key.mode") or "none"
        insert = config.get("insert.mode", "insert")
        if config.get("delete.enabled", "").lower() == "true" and mode != "record_key":
            found["delete.enabled"] = ["deletions need pk.mode=record_key: a null value has only its key"]
        if insert in ("upsert", "update") and mode == "none":
            found["pk.mode"] = [f"insert.mode={insert} needs a primary key: set pk.mode"]
        return found

    def check(self) -> list[Finding]:
        """Logs in."""
        try:
            dialect = dialect_for(self.values)
            dialect.connect().close()
        except ConnectError as error:
            return [Finding(False, str(error))]
        return [Finding(True, f"{dialect.address} can be reached")]

    def writer(self) -> SinkWriter:
        """A writer with one connection."""
        return JdbcWriter(self.config["name"], self.values)
