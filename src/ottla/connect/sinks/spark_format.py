"""Spark sink: records as rows of anything that Spark writes, by its DataFrame writer.

With `cycle.folder` a cycle has a folder of its own, which a repeated cycle replaces: each record is there once. Without
it, rows are appended at least once, because Spark's writers have no place for offsets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import pyarrow as pa

from ottla.connect.config.definitions import ConfigDef, ConfigKey, ConfigValues
from ottla.connect.data.record import SinkRecord
from ottla.connect.failures import Retriable, TaskFailed
from ottla.connect.run.runner import passes
from ottla.connect.sinks.lake import TOPIC, LakeWriter, TableState, widened
from ottla.connect.spark_options import COMMON, OPTIONS, first_line, options_of, place_errors
from ottla.connect.spi import Finding, Place, SinkConnector, SinkCycle, SinkWriter

# Spark has no time of day: milliseconds since midnight, as a number.
_TYPES: Final = {pa.time32("ms"): pa.int32(), pa.timestamp("ms", "UTC"): pa.timestamp("us", "UTC")}


class SparkSink(SinkConnector):
    """`ottla.connect.SparkSink`."""

    java_classes = ("ottla.connect.SparkSink",)
    version = "0.1.0"
    extra = "spark"
    needs_jvm = True
    free_prefixes = (OPTIONS,)

    @classmethod
    def config_def(cls) -> ConfigDef:
        """The format and where it is written."""
        return ConfigDef(
            [
                *COMMON,
                ConfigKey("partition.by", "LIST", [], documentation="Columns of folders"),
                ConfigKey(
                    "cycle.folder",
                    default="",
                    documentation="A name: each cycle has the folder name=..., and each record is there once",
                ),
            ]
        )

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> Mapping[str, list[str]]:
        """Folders need a path."""
        found = place_errors(config)
        folder = config.get("cycle.folder", "")
        if folder and not config.get("path"):
            found["cycle.folder"] = ["a cycle has a folder only below a path: set path"]
        if "/" in folder or "=" in folder:
            found["cycle.folder"] = ["write a plain name, like cycle"]
        return found

    def check(self) -> list[Finding]:
        """What is promised."""
        if self.values["cycle.folder"]:
            return [Finding(True, "each record is written once")]
        return [
            Finding(True, "each record is written at least once; with cycle.folder=cycle once, below a path")
        ]

    def writer(self) -> SinkWriter:
        """A writer of frames."""
        return SparkWriter(self.config["name"], self.values, options_of(self.config))


class SparkWriter(LakeWriter):
    """Makes a frame of a cycle's rows, and writes it."""

    idempotent = False  # a cycle is repeated with the ranges that it had

    def __init__(self, connector: str, values: ConfigValues, options: Mapping[str, str]) -> None:
        super().__init__(connector, routed=True)
        self._values = dict(values)
        self._options = dict(options)

    def as_stored(self, kind: pa.DataType) -> pa.DataType:
        """Spark keeps microseconds, and times of day as numbers."""
        return widened(kind, _TYPES)

    def tables_of(self, record: SinkRecord) -> Sequence[str]:
        """One, by the name of the topic."""
        return [self.table_of_topic(record.topic)]

    def table_of_topic(self, topic: str) -> str:
        """The path or the table; empty where the options say it all."""
        where = self._values["path"] or self._values["table"]
        return str(where).replace(TOPIC, topic if topic.strip(".") else "_")

    def state(self, table: str, lineage: int, places: Iterable[Place]) -> TableState:
        """Spark's writers hold no offsets."""
        return TableState()

    def append(self, table: str, rows: pa.Table, cycle: SinkCycle) -> None:
        """One write of Spark."""
        try:
            self._write(table, rows, cycle)
        except Exception as error:
            kind = Retriable if passes(error) else TaskFailed
            raise kind(f"Spark does not write {self._values['format']}: {first_line(error)}") from error

    def _write(self, name: str, rows: pa.Table, cycle: SinkCycle) -> None:
        assert self.session is not None
        frame = self.session().createDataFrame(rows)
        writer = frame.write.format(self._values["format"]).options(**self._options)
        if self._values["partition.by"]:
            writer = writer.partitionBy(*self._values["partition.by"])
        folder = self._values["cycle.folder"]
        if folder:
            writer.mode("overwrite").save(f"{name.rstrip('/')}/{folder}={_cycle_name(cycle)}")
        elif self._values["table"]:
            writer.mode("append").saveAsTable(name)
        elif name:
            writer.mode("append").save(name)
        else:
            writer.mode("append").save()


def _cycle_name(cycle: SinkCycle) -> str:
    """The same for a cycle that is repeated, and for no other, though numbers begin again where a group was deleted."""
    ranges = hashlib.sha256(repr(cycle.ranges).encode()).hexdigest()[:12]
    return f"{cycle.lineage}-{cycle.number}-{ranges}"
