"""Debezium's connectors for databases whose logs Ottla does not read itself: Debezium's engine reads them.

The engine runs in a process of its own, one for each connector. Its offsets are those of its records: they are stored
in the transaction of the records, and only then the engine goes on and tells the database.
"""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from ottla.connect.config.definitions import ConfigDef, ConfigKey
from ottla.connect.data.record import SourceRecord
from ottla.connect.failures import ConnectError, TaskFailed
from ottla.connect.formats import offset_key, offset_value
from ottla.connect.offset_file import write_offset_file
from ottla.connect.sources.debezium.host import Batch, EngineHost, Verdict
from ottla.connect.sources.debezium.program import PRODUCTS, Product, command, product_of
from ottla.connect.spi import Offsets, ReadLimit, SourceConnector, SourceReader
from ottla.json_types import Json, JsonObject

_OURS: Final = "ottla.debezium."
_NUMBER: Final = "ottla_batch"
"""Counts batches that leave an offset as it was, which those of a snapshot do."""
_CHECK_S: Final = 60.0
_PAUSE_S: Final = 0.1
_NOT_FOR_ENGINE: Final = (
    *("transforms", "predicates", "key.converter", "value.converter", "header.converter", "topic.creation."),
    *(
        "producer.override.",
        "errors.tolerance",
        "errors.log.",
        "errors.retry.timeout",
        "errors.deadletterqueue.",
    ),
    *("exactly.once.support", "transaction.boundary", "offsets.storage.topic", "config.action.reload", _OURS),
)


class DebeziumSource(SourceConnector):
    """`io.debezium.connector.sqlserver.SqlServerConnector` and others; any class by `ottla.debezium.class`."""

    java_classes = tuple(one.class_name for one in PRODUCTS)
    version = "3.6.1"
    extra = "spark"
    free_prefixes = ("",)
    """Debezium checks its keys itself."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Only what is not Debezium's."""
        return ConfigDef(
            [
                ConfigKey("topic.prefix", importance="HIGH", documentation="In front of the topics"),
                ConfigKey(f"{_OURS}class", default="", documentation="The connector's class in Java"),
                ConfigKey(f"{_OURS}version", default="", documentation="Another version of Debezium"),
                ConfigKey(
                    f"{_OURS}jars", "LIST", [], documentation="More jars: group:artifact:version, or files"
                ),
                ConfigKey(
                    f"{_OURS}java.options", default="-Xmx512m -XX:+UseSerialGC", documentation="Of the engine"
                ),
            ]
        )

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> Mapping[str, list[str]]:
        """The class, and coordinates of jars."""
        found: dict[str, list[str]] = {}
        name = config.get(f"{_OURS}class", "")
        if product_of(config.get("connector.class", "")) is None and not name:
            found[f"{_OURS}class"] = ["name a class of Debezium, like io.debezium.connector.db2.Db2Connector"]
        elif name and product_of(name) is None and not config.get(f"{_OURS}jars"):
            found[f"{_OURS}jars"] = [f"name the jars of {name}: they are not known"]
        for one in filter(None, map(str.strip, config.get(f"{_OURS}jars", "").split(","))):
            if not one.endswith(".jar") and len(one.split(":")) != 3:
                found[f"{_OURS}jars"] = [
                    f"{one} is neither group:artifact:version nor a file that ends in .jar"
                ]
        try:
            shlex.split(config.get(f"{_OURS}java.options", ""))
        except ValueError as error:
            found[f"{_OURS}java.options"] = [f"these are no words of a command line: {error}"]
        return found

    def product(self) -> Product:
        """Debezium's connector."""
        name = self.values[f"{_OURS}class"] or self.config["connector.class"]
        version = self.values[f"{_OURS}version"]
        known = product_of(name)
        if known is None:
            return Product(name, "", version or PRODUCTS[0].version)
        return Product(known.class_name, known.artifact, version or known.version, known.driver)

    @property
    def task_class(self) -> str:
        """Debezium's name of it."""
        return self.product().class_name.removesuffix("Connector") + "ConnectorTask"

    def reader(self) -> SourceReader:
        """A reader with a process of its own."""
        options = shlex.split(self.values[f"{_OURS}java.options"])
        return DebeziumReader(self.config, self.product(), self.values[f"{_OURS}jars"], options)


class DebeziumReader(SourceReader):
    """Starts the engine where the stored offsets are, and takes a batch at a time."""

    def __init__(
        self, config: Mapping[str, str], product: Product, libraries: Sequence[str], options: Sequence[str]
    ) -> None:
        self._name = config["name"]
        self._product, self._libraries, self._options = product, tuple(libraries), tuple(options)
        self._config = {
            key: value for key, value in config.items() if not key.startswith(_NOT_FOR_ENGINE)
        } | {"connector.class": product.class_name, "tasks.max": "1"}
        # The worker tries again itself, and says why.
        self._config.setdefault("errors.max.retries", "0")
        self._host: EngineHost | None = None
        self._folder: str | None = None
        self._waiting: Batch | None = None
        self._planned: tuple[Offsets, Batch] | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_host": None, "_folder": None}

    def _started(self, start: Offsets) -> EngineHost:
        if self._host is None:
            words = command(self._product, self._libraries, self._options)
            self._folder = tempfile.mkdtemp(prefix="ottla-debezium-")
            file = Path(self._folder, "offsets")
            entries = {offset_key(self._name, key): offset_value(_plain(one)) for key, one in start.items()}
            write_offset_file(file, entries)
            store = {
                "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
                "offset.storage.file.filename": str(file),
                "offset.flush.interval.ms": "0",
            }
            self._host = EngineHost(words, "run", {**self._config, **store})
        return self._host

    def _take(self, timeout_s: float) -> bool:
        """Whether a batch is there."""
        if self._waiting is None and self._host is not None:
            found = self._host.next_found(timeout_s)
            if isinstance(found, Batch):
                self._waiting = found
        return self._waiting is not None

    def latest_offsets(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """The offsets behind the next batch."""
        self._started(start)
        try:
            if not self._take(0):
                return start
        except ConnectError as error:
            raise self._explained(error) from None
        batch, self._waiting = self._waiting, None
        assert batch is not None
        end: Offsets = dict(start)
        for key, offset in batch.offsets.items():
            before = start.get(key, {})
            end[key] = dict(offset)
            if _plain(before) == offset:
                end[key][_NUMBER] = int(str(before.get(_NUMBER) or 0)) + 1
        self._planned = end, batch
        return end

    def _explained(self, error: ConnectError) -> ConnectError:
        driver = self._product.driver
        if driver is not None and "ottla.debezium.jars" in str(error):
            return TaskFailed(f"{error}={driver}:<version>")
        return error

    def splits(self, start: Offsets, end: Offsets, max_splits: int) -> Sequence[int]:
        """One: the engine gives changes in order."""
        if self._planned is None or self._planned[0] != end:
            raise TaskFailed("the batch of Debezium's engine is gone: the connector must start again")
        return [0]

    def read(self, split: int) -> Iterator[SourceRecord]:
        """The records of the batch."""
        assert self._planned is not None
        yield from self._planned[1].records

    def commit(self, end: Offsets) -> None:
        """The engine goes on, and the database may forget."""
        if self._planned is not None and self._host is not None:
            self._host.stored()
        self._planned = None

    def wait(self, timeout_s: float, stopping: Callable[[float], bool]) -> None:
        """Waits for the engine's next batch."""
        try:
            if self._host is None or not self._take(min(timeout_s, _PAUSE_S)):
                stopping(0)
        except ConnectError as error:
            raise self._explained(error) from None

    def describe(self) -> list[str]:
        """Debezium's own check, which looks at the database."""
        words = command(self._product, self._libraries, self._options)
        host = EngineHost(words, "validate", self._config)
        try:
            found = host.next_found(_CHECK_S)
        except ConnectError as error:
            raise self._explained(error) from None
        finally:
            host.stop()
        if not isinstance(found, Verdict):
            raise ConnectError(f"Debezium's check did not end within {_CHECK_S:.0f} s")
        if found.errors:
            raise ConnectError("; ".join(found.errors))
        return [f"Debezium {found.version} finds {self._product.class_name} in order"]

    def stop(self) -> None:
        """Ends the process."""
        if self._host is not None:
            self._host.stop()
            self._host = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def _plain(offset: Mapping[str, Json]) -> JsonObject:
    """An offset as Debezium has it."""
    return {key: value for key, value in offset.items() if key != _NUMBER}
