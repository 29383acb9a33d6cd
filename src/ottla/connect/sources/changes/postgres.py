"""PostgreSQL changes: a snapshot of the tables, then every change from the server's log, in Debezium's shape.

Offsets are Debezium's: `{"server": prefix}` has `lsn`, `lsn_proc`, `lsn_commit`, `txId`, `ts_usec`.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.connect.config.definitions import ConfigDef, ConfigKey
from ottla.connect.failures import ConnectError
from ottla.connect.sources.changes.keys import CHANGES, pattern_errors
from ottla.connect.sources.changes.pg_reader import PostgresReader
from ottla.connect.spi import SourceConnector, SourceReader
from ottla.json_types import Json


class PostgresChanges(SourceConnector):
    """`io.debezium.connector.postgresql.PostgresConnector`."""

    java_classes = ("io.debezium.connector.postgresql.PostgresConnector",)
    version = "3.6.3"
    extra = "postgres"

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Debezium's keys."""
        return CHANGES | ConfigDef(
            [
                ConfigKey("database.port", "INT", 5432, "HIGH", "The port", valid="[1,...,65535]"),
                ConfigKey("database.dbname", importance="HIGH", documentation="The database"),
                ConfigKey("database.sslmode", default="prefer", documentation="TLS to the database"),
                ConfigKey("plugin.name", default="pgoutput", valid="[pgoutput]"),
                ConfigKey("slot.name", default="debezium", documentation="The replication slot"),
                ConfigKey("slot.drop.on.stop", "BOOLEAN", False, documentation="Remove the slot at the end"),
                ConfigKey("publication.name", default="dbz_publication", documentation="The publication"),
                ConfigKey(
                    "publication.autocreate.mode",
                    default="all_tables",
                    valid="[all_tables, filtered, disabled]",
                ),
                ConfigKey(
                    "snapshot.mode",
                    default="initial",
                    valid="[initial, initial_only, no_data, never, always, when_needed]",
                ),
                ConfigKey("schema.include.list", "LIST", [], documentation="Schemas to read"),
                ConfigKey("schema.exclude.list", "LIST", [], documentation="Schemas to leave out"),
            ]
        )

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> Mapping[str, list[str]]:
        """Patterns, and names that PostgreSQL does not take."""
        found = pattern_errors(config)
        slot = config.get("slot.name", "debezium")
        if "${" not in slot and not (
            slot and len(slot) < 64 and slot.replace("_", "a").isalnum() and slot == slot.lower()
        ):
            found["slot.name"] = ["the name of a slot has up to 63 small letters, digits and underscores"]
        return found

    def reader(self) -> SourceReader:
        """A reader of the snapshot and of the slot."""
        return PostgresReader(self.values)

    def check_offset(self, partition: Mapping[str, Json] | None, offset: Mapping[str, Json] | None) -> None:
        """An offset needs a position in the log."""
        if partition is not None and set(partition) != {"server"}:
            raise ConnectError('the partition of a PostgreSQL source is {"server": topic.prefix}')
        if offset is not None and not isinstance(offset.get("lsn"), int):
            raise ConnectError('the offset of a PostgreSQL source has a number "lsn"')
