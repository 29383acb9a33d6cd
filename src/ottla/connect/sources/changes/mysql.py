"""MySQL and MariaDB changes: a snapshot of the tables, then every change from the binary log, in Debezium's shape.

Offsets are Debezium's: `{"server": prefix}` has `file`, `pos`, `gtids`, `ts_sec`, `server_id`, `event` and `row`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from ottla.connect.config.definitions import ConfigDef, ConfigKey
from ottla.connect.databases.tls import KEYS
from ottla.connect.failures import ConnectError
from ottla.connect.sources.changes.keys import CHANGES, DATABASE_LISTS, pattern_errors
from ottla.connect.sources.changes.mysql_reader import MySqlReader
from ottla.connect.spi import SourceConnector, SourceReader
from ottla.json_types import Json

_NO_HISTORY: Final = "Has no effect: the binary log describes its tables itself"


class MySqlChanges(SourceConnector):
    """`io.debezium.connector.mysql.MySqlConnector`."""

    java_classes = ("io.debezium.connector.mysql.MySqlConnector",)
    version = "3.6.3"
    extra = "mysql"
    connector: ClassVar[str] = "mysql"

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Debezium's keys."""
        return (
            CHANGES
            | KEYS
            | ConfigDef(
                [
                    ConfigKey("database.port", "INT", 3306, "HIGH", "The port", valid="[1,...,65535]"),
                    ConfigKey(
                        "database.server.id",
                        "LONG",
                        0,
                        "HIGH",
                        "This reader's number among replicas; 0 draws one",
                    ),
                    *(
                        ConfigKey(name, "LIST", [], documentation="Patterns of names")
                        for name in DATABASE_LISTS
                    ),
                    ConfigKey(
                        "snapshot.mode",
                        default="initial",
                        valid="[initial, initial_only, no_data, never, schema_only, when_needed]",
                    ),
                    ConfigKey(
                        "time.precision.mode",
                        default="adaptive_time_microseconds",
                        valid="[adaptive, adaptive_time_microseconds, connect]",
                    ),
                    ConfigKey("bigint.unsigned.handling.mode", default="long", valid="[long, precise]"),
                    ConfigKey(
                        "binary.handling.mode", default="bytes", valid="[bytes, base64, base64-url-safe, hex]"
                    ),
                    ConfigKey(
                        "schema.history.internal.kafka.topic",
                        default="",
                        importance="LOW",
                        documentation=_NO_HISTORY,
                    ),
                    ConfigKey(
                        "schema.history.internal.kafka.bootstrap.servers",
                        default="",
                        importance="LOW",
                        documentation=_NO_HISTORY,
                    ),
                    ConfigKey(
                        "include.schema.changes",
                        "BOOLEAN",
                        True,
                        documentation="Statements about tables, in the topic that is named as topic.prefix",
                    ),
                ]
            )
        )

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> Mapping[str, list[str]]:
        """Patterns that cannot be read."""
        return pattern_errors(config)

    def reader(self) -> SourceReader:
        """A reader of the snapshot and of the log."""
        return MySqlReader(self.values, self.connector)

    def check_offset(self, partition: Mapping[str, Json] | None, offset: Mapping[str, Json] | None) -> None:
        """An offset needs a position in the log."""
        if partition is not None and set(partition) != {"server"}:
            raise ConnectError('the partition of a source of changes is {"server": topic.prefix}')
        if offset is not None and not (
            isinstance(offset.get("file"), str) and isinstance(offset.get("pos"), int)
        ):
            raise ConnectError('the offset of a MySQL source has a text "file" and a number "pos"')


class MariaDbChanges(MySqlChanges):
    """`io.debezium.connector.mariadb.MariaDbConnector`."""

    java_classes = ("io.debezium.connector.mariadb.MariaDbConnector",)
    connector = "mariadb"
