"""The plugins of a worker by name: Java's class names, their short forms, entry points and folders of `plugin.path`.

A plugin's module is imported when it is first used, so that a worker needs only the libraries of its own connectors.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import logging
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final, TypeGuard

from ottla.connect.converters.base import Converter
from ottla.connect.failures import BadRequest, ConnectError, NotFound
from ottla.connect.spi import Connector, SinkConnector, SourceConnector
from ottla.connect.transforms.base import Predicate, Transformation

_logger = logging.getLogger(__name__)

_KAFKA: Final = "org.apache.kafka.connect"
_VERSION: Final = "4.3.1"
ENTRY_POINTS: Final = "ottla.connect"
_DEBEZIUM: Final = (
    ("io.debezium.connector.sqlserver.SqlServerConnector", "3.6.1"),
    ("io.debezium.connector.oracle.OracleConnector", "3.6.1"),
    ("io.debezium.connector.db2.Db2Connector", "3.6.1"),
    ("io.debezium.connector.mongodb.MongoDbConnector", "3.6.1"),
    ("io.debezium.connector.informix.InformixConnector", "3.5.0"),
    ("io.debezium.connector.db2as400.As400RpcConnector", "3.5.0"),
    ("io.debezium.connector.vitess.VitessConnector", "3.5.0"),
    ("io.debezium.connector.spanner.SpannerConnector", "3.6.3"),
    ("ottla.connect.DebeziumSource", "3.6.1"),
)
"""Debezium's engine runs them."""


@dataclass(frozen=True, slots=True)
class PluginSpec:
    """A plugin: the name that users give, and where its class is (`module:Class`)."""

    name: str
    kind: str
    where: str
    version: str | None = _VERSION
    aliases: tuple[str, ...] = ()
    extra: str | None = None

    @property
    def simple_name(self) -> str:
        """The class's name without its package."""
        return self.name.rpartition(".")[2]

    def matches(self, name: str) -> bool:
        """Whether a user means this plugin: full name, simple name, or simple name without its ending."""
        simple = self.simple_name
        short = {simple, simple.replace("$", "."), simple.removesuffix("Connector"), *self.aliases}
        if self.kind == "converter":
            short.add(simple.removesuffix("Converter"))
        return name == self.name or name in short

    def load(self) -> Any:
        """The class; ConnectError with the extra to install if a library is missing."""
        module, _, attribute = self.where.partition(":")
        try:
            return getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as error:
            hint = f": pip install 'ottla[{self.extra}]'" if self.extra else ""
            raise BadRequest(f"{self.simple_name} needs the library {error.name}{hint}") from None


def _transforms() -> Iterable[PluginSpec]:
    both = (
        *("Cast", "ExtractField", "Flatten", "HeaderFrom", "HoistField", "InsertField", "MaskField"),
        *("ReplaceField", "SetSchemaMetadata", "TimestampConverter"),
    )
    for name in both:
        for side in ("Key", "Value"):
            where = f"ottla.connect.transforms.registry:{name}{side}"
            yield PluginSpec(f"{_KAFKA}.transforms.{name}${side}", "transformation", where)
    for name in ("DropHeaders", "Filter", "InsertHeader", "RegexRouter", "TimestampRouter", "ValueToKey"):
        where = f"ottla.connect.transforms.registry:{name}"
        yield PluginSpec(f"{_KAFKA}.transforms.{name}", "transformation", where)
    for name in ("HasHeaderKey", "RecordIsTombstone", "TopicNameMatches"):
        where = f"ottla.connect.transforms.predicates:{name}"
        yield PluginSpec(f"{_KAFKA}.transforms.predicates.{name}", "predicate", where)


def _converters() -> Iterable[PluginSpec]:
    simple = "ottla.connect.converters.simple"
    places = {
        f"{_KAFKA}.json.JsonConverter": "ottla.connect.converters.json_converter:JsonConverter",
        f"{_KAFKA}.storage.StringConverter": f"{simple}:StringConverter",
        f"{_KAFKA}.storage.SimpleHeaderConverter": "ottla.connect.converters.simple_header:SimpleHeaderConverter",
    }
    for name, module in (
        ("avro.AvroConverter", "avro_converter"),
        ("json.JsonSchemaConverter", "json_schema_converter"),
        ("protobuf.ProtobufConverter", "protobuf_converter"),
    ):
        where = f"ottla.connect.converters.{module}:{name.rpartition('.')[2]}"
        places[f"io.confluent.connect.{name}"] = where
    for name in ("ByteArray", "Boolean", "Short", "Integer", "Long", "Float", "Double"):
        places[f"{_KAFKA}.converters.{name}Converter"] = f"{simple}:{name}Converter"
    for name, where in places.items():
        if "SimpleHeader" not in name:
            yield PluginSpec(name, "converter", where)
        yield PluginSpec(name, "header_converter", where)


def _connectors() -> Iterable[PluginSpec]:
    yield PluginSpec(
        f"{_KAFKA}.file.FileStreamSourceConnector",
        "source",
        "ottla.connect.sources.file_stream:FileStreamSource",
    )
    yield PluginSpec(
        f"{_KAFKA}.file.FileStreamSinkConnector", "sink", "ottla.connect.sinks.file_stream:FileStreamSink"
    )
    yield PluginSpec(
        "io.confluent.kafka.connect.datagen.DatagenConnector",
        "source",
        "ottla.connect.sources.datagen:Datagen",
        version="0.1.0",
    )
    for part in ("Source", "Checkpoint", "Heartbeat"):
        where = f"ottla.mirror.connectors:Mirror{part}"
        yield PluginSpec(f"{_KAFKA}.mirror.Mirror{part}Connector", "source", where)
    for vendor in ("confluent", "aiven"):
        name = f"io.{vendor}.connect.jdbc.JdbcSourceConnector"
        yield PluginSpec(name, "source", "ottla.connect.sources.jdbc:JdbcSource", version="10.8.0")
    for package in ("io.confluent.connect", "io.aiven.connect", "io.debezium.connector"):
        name = f"{package}.jdbc.JdbcSinkConnector"
        yield PluginSpec(name, "sink", "ottla.connect.sinks.jdbc:JdbcSink", version="10.8.0")
    for name in (
        "ottla.connect.FilesSink",
        "io.confluent.connect.s3.S3SinkConnector",
        "io.confluent.connect.hdfs.HdfsSinkConnector",
    ):
        yield PluginSpec(name, "sink", "ottla.connect.sinks.files:FilesSink", version="10.5.0", extra="s3")
    for name in (
        "com.github.jcustenborder.kafka.connect.redis.RedisSinkConnector",
        "com.redis.kafka.connect.RedisSinkConnector",
    ):
        yield PluginSpec(name, "sink", "ottla.connect.sinks.redis:RedisSink", version="0.0.9", extra="redis")
    for name in (
        "io.confluent.connect.elasticsearch.ElasticsearchSinkConnector",
        "io.aiven.kafka.connect.opensearch.OpensearchSinkConnector",
    ):
        yield PluginSpec(
            name, "sink", "ottla.connect.sinks.search:SearchSink", version="14.1.0", extra="search"
        )
    yield PluginSpec(
        "ottla.connect.DeltaSink",
        "sink",
        "ottla.connect.sinks.delta:DeltaSink",
        version="0.1.0",
        extra="delta",
    )
    for name in (
        "org.apache.iceberg.connect.IcebergSinkConnector",
        "io.tabular.iceberg.connect.IcebergSinkConnector",
    ):
        where = "ottla.connect.sinks.iceberg:IcebergSink"
        yield PluginSpec(name, "sink", where, version="1.9.0", extra="iceberg")
    for kind in ("Source", "Sink"):
        where = f"ottla.connect.{kind.lower()}s.spark_format:Spark{kind}"
        name = f"ottla.connect.Spark{kind}"
        yield PluginSpec(name, kind.lower(), where, version="0.1.0", extra="spark")
        where = f"ottla.connect.{kind.lower()}s.mongodb:Mongo{kind}"
        name = f"com.mongodb.kafka.connect.Mongo{kind}Connector"
        yield PluginSpec(name, kind.lower(), where, version="1.16.0", extra="mongodb")
    for vendor in ("aiven.kafka", "confluent"):
        name = f"io.{vendor}.connect.http.HttpSinkConnector"
        yield PluginSpec(name, "sink", "ottla.connect.sinks.http:HttpSink", version="0.8.0")
    yield PluginSpec(
        "com.github.castorm.kafka.connect.http.HttpSourceConnector",
        "source",
        "ottla.connect.sources.http:HttpSource",
        version="0.8.11",
    )
    for kind, where in (
        ("Csv", "SpoolDirCsv"),
        ("Json", "SpoolDirJson"),
        ("SchemaLessJson", "SpoolDirSchemaLessJson"),
        ("LineDelimited", "SpoolDirLines"),
    ):
        yield PluginSpec(
            f"com.github.jcustenborder.kafka.connect.spooldir.SpoolDir{kind}SourceConnector",
            "source",
            f"ottla.connect.sources.spool_dir:{where}",
            version="2.0.67",
        )
    for name, where, extra in (
        ("postgresql.PostgresConnector", "postgres:PostgresChanges", "postgres"),
        ("mysql.MySqlConnector", "mysql:MySqlChanges", "mysql"),
        ("mariadb.MariaDbConnector", "mysql:MariaDbChanges", "mysql"),
    ):
        yield PluginSpec(
            f"io.debezium.connector.{name}",
            "source",
            f"ottla.connect.sources.changes.{where}",
            version="3.6.3",
            extra=extra,
        )
    for class_name, version in _DEBEZIUM:
        where = "ottla.connect.sources.debezium.source:DebeziumSource"
        yield PluginSpec(class_name, "source", where, version=version, extra="spark")


class Plugins:
    """All plugins that a worker can use."""

    def __init__(self, plugin_path: Iterable[str] = ()) -> None:
        self._specs: list[PluginSpec] = [*_connectors(), *_converters(), *_transforms()]
        for point in entry_points(group=ENTRY_POINTS):
            self._specs.append(PluginSpec(point.name, _kind(point.load()), point.value, version=None))
        for folder in plugin_path:
            self._scan(Path(folder))

    def _scan(self, folder: Path) -> None:
        """The connectors, converters, transforms and predicates of the .py files of a folder."""
        if not folder.is_dir():
            raise ConnectError(f"plugin.path: there is no folder {folder}")
        for file in sorted(folder.glob("*.py")):
            name = f"ottla_plugin_{file.stem}"
            spec = importlib.util.spec_from_file_location(name, file)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module
            try:
                spec.loader.exec_module(module)
            except Exception as error:
                raise ConnectError(f"plugin.path: {file} cannot be loaded: {error!r}") from error
            for attribute, found in vars(module).items():
                if not _is_plugin(found) or found.__module__ != name or attribute.startswith("_"):
                    continue
                for known in getattr(found, "java_classes", ()) or (attribute,):
                    for kind in _kinds(found):
                        self._specs.append(
                            PluginSpec(known, kind, f"{name}:{attribute}", version=None, aliases=(attribute,))
                        )
                _logger.info("plugin %s from %s", attribute, file)

    def specs(self, *kinds: str) -> list[PluginSpec]:
        """The plugins of some kinds, of all for none."""
        return [one for one in self._specs if not kinds or one.kind in kinds]

    def find(self, name: str, *kinds: str) -> PluginSpec:
        """The plugin of a name; NotFound names the nearest ones."""
        for one in self.specs(*kinds):
            if one.matches(name):
                return one
        known = [one.simple_name for one in self.specs(*kinds)]
        near = difflib.get_close_matches(name.rpartition(".")[2], known, n=3, cutoff=0.5)
        hint = f"; the nearest names are {', '.join(near)}" if near else ""
        if "source" in kinds and name.startswith("io.debezium.connector."):
            hint = (
                "; Debezium's engine runs other connectors of Debezium too: set connector.class to "
                "ottla.connect.DebeziumSource, ottla.debezium.class to this one, and ottla.debezium.jars to its jars"
            )
        elif "source" in kinds and "." in name and not near:
            hint = "; connectors in Java run in Apache Kafka Connect, which works on Ottla's brokers"
        what = "Connector" if "source" in kinds else kinds[0] if kinds else "plugin"
        listed = ", ".join(one.name for one in self.specs(*kinds))
        raise NotFound(
            f"Failed to find any class that implements {what} and which name matches {name}{hint}; "
            f"available are: {listed}"
        )

    def connector(self, name: str) -> type[SourceConnector] | type[SinkConnector]:
        """The class of a connector; BadRequest if there is none."""
        try:
            found: type[SourceConnector] | type[SinkConnector] = self.find(name, "source", "sink").load()
        except NotFound as error:
            raise BadRequest(str(error)) from None
        return found


def _is_plugin(found: object) -> TypeGuard[type]:
    return (
        isinstance(found, type)
        and issubclass(found, Connector | Converter | Transformation | Predicate)
        and not getattr(found, "__abstractmethods__", None)
    )


def _kind(found: object) -> str:
    return str(getattr(found, "kind", "transformation"))


def _kinds(found: type) -> tuple[str, ...]:
    if issubclass(found, Converter):
        return ("converter", "header_converter")
    if issubclass(found, Connector):
        return (_kind(found),)
    return ("predicate",) if issubclass(found, Predicate) else ("transformation",)
