"""Files sink: records as Parquet, JSON, CSV or Avro files, on local disk, S3 or any file system that fsspec knows.

A file is named `<topic>+<partition>+<first offset>.<ext>`, as the usual sinks name them. The ranges of a cycle are
recorded before it is written, so that a cycle that is repeated writes the same files: each record is in one file.
"""

from __future__ import annotations

import zoneinfo
from collections.abc import Mapping
from typing import Final

from ottla.connect.config.definitions import ConfigDef, ConfigKey
from ottla.connect.failures import ConnectError
from ottla.connect.sinks.file_formats import FORMATS, format_of
from ottla.connect.sinks.file_writer import FilesWriter, target_of
from ottla.connect.spi import Finding, SinkConnector, SinkWriter

_PARTITIONERS: Final = (
    "DefaultPartitioner",
    "FieldPartitioner",
    "TimeBasedPartitioner",
    "DailyPartitioner",
    "HourlyPartitioner",
)


class FilesSink(SinkConnector):
    """`io.confluent.connect.s3.S3SinkConnector`, and the same for local disk."""

    java_classes = ("io.confluent.connect.s3.S3SinkConnector", "io.confluent.connect.hdfs.HdfsSinkConnector")
    version = "10.5.0"

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Confluent's keys."""
        return ConfigDef(
            [
                ConfigKey(
                    "store.url",
                    default="",
                    importance="HIGH",
                    documentation="A folder, s3://bucket, hdfs://...",
                ),
                ConfigKey("topics.dir", default="topics", documentation="The folder of all topics"),
                ConfigKey(
                    "format.class", default="json", importance="HIGH", documentation=", ".join(FORMATS)
                ),
                ConfigKey(
                    "flush.size", "INT", 0, "HIGH", "Records of a file at most; 0 for those of a cycle"
                ),
                ConfigKey(
                    "partitioner.class", default="DefaultPartitioner", documentation=", ".join(_PARTITIONERS)
                ),
                ConfigKey("partition.field.name", "LIST", [], documentation="Fields of FieldPartitioner"),
                ConfigKey("path.format", default="'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH"),
                ConfigKey("timestamp.extractor", default="Record", valid="[Record, RecordField]"),
                ConfigKey("timestamp.field", default="timestamp", documentation="The field of RecordField"),
                ConfigKey(
                    "partition.duration.ms", "LONG", -1, documentation="Has no effect: path.format decides"
                ),
                ConfigKey("timezone", default="UTC", documentation="The zone of paths"),
                ConfigKey("locale", default="en", documentation="Has no effect"),
                ConfigKey("parquet.codec", default="snappy", valid="[none, snappy, gzip, zstd, lz4, brotli]"),
                ConfigKey("s3.bucket.name", default="", documentation="The bucket, in place of store.url"),
                ConfigKey("s3.region", default="", documentation="The region of the bucket"),
                ConfigKey(
                    "s3.part.size", "INT", 26_214_400, "LOW", "Has no effect: parts have 5 MiB and more"
                ),
                ConfigKey("aws.access.key.id", default="", documentation="The key; else the machine's own"),
                ConfigKey("aws.secret.access.key", "PASSWORD", "", documentation="The secret of the key"),
                ConfigKey("storage.class", default="", documentation="Has no effect: the address decides"),
                ConfigKey(
                    "rotate.interval.ms", "LONG", -1, documentation="Has no effect: a cycle ends its files"
                ),
                ConfigKey("rotate.schedule.interval.ms", "LONG", -1, documentation="Has no effect"),
                ConfigKey(
                    "schema.compatibility",
                    default="NONE",
                    documentation="Has no effect: a new schema, a new file",
                ),
                ConfigKey("hdfs.url", default="", documentation="The same as store.url"),
            ]
        )

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> Mapping[str, list[str]]:
        """The format, the partitioner and where to write."""
        found: dict[str, list[str]] = {}
        if not (config.get("store.url") or config.get("s3.bucket.name") or config.get("hdfs.url")):
            found["store.url"] = ["write where the files go: store.url=/folder, or s3.bucket.name"]
        try:
            format_of(config.get("format.class", "json"))
        except ConnectError as error:
            found["format.class"] = [str(error)]
        partitioner = config.get("partitioner.class", _PARTITIONERS[0]).rpartition(".")[2]
        if partitioner not in _PARTITIONERS:
            found["partitioner.class"] = [f"there is no {partitioner}: known are {', '.join(_PARTITIONERS)}"]
        if partitioner == "FieldPartitioner" and not config.get("partition.field.name"):
            found["partition.field.name"] = ["FieldPartitioner needs the name of a field"]
        try:
            zoneinfo.ZoneInfo(config.get("timezone") or "UTC")
        except (zoneinfo.ZoneInfoNotFoundError, ValueError):
            found["timezone"] = ["there is no such time zone: write a name such as Europe/Berlin"]
        return found

    def check(self) -> list[Finding]:
        """Whether the place can be reached."""
        try:
            target = target_of(self.values)
            target.look()
        except ConnectError as error:
            return [Finding(False, str(error))]
        return [Finding(True, f"{target} can be reached")]

    def writer(self) -> SinkWriter:
        """A writer of files."""
        return FilesWriter(self.values)
