"""Twins in Python of the connectors and converters that Kafka's own tests bring along in Java.

They have the names and keys of the Java classes. What those report to the test inside its JVM has no counterpart.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from ottla.connect.config.definitions import ConfigDef, ConfigKey
from ottla.connect.converters.simple import StringConverter
from ottla.connect.data.record import SinkRecord, SourceRecord
from ottla.connect.spi import (
    Offsets,
    Place,
    ReadLimit,
    Refuse,
    SinkConnector,
    SinkCycle,
    SinkWriter,
    SourceConnector,
    SourceReader,
    partition_key,
)
from ottla.json_types import Json

_PACKAGE = "org.apache.kafka.connect.integration"


class _SequenceReader(SourceReader):
    """Each task gives records with growing numbers, `messages.per.poll` at a time, up to `max.messages`."""

    def __init__(self, config: Mapping[str, str]) -> None:
        self._topic = config.get("topic", "sequential-topic")
        self._most = int(config.get("max.messages", str(2**62)))
        self._together = int(config.get("messages.per.poll", "1"))
        tasks = int(config.get("num.tasks") or config.get("tasks.max", "1"))
        self._tasks = [f"{config['name']}-{number}" for number in range(tasks)]

    def _saved(self, offsets: Offsets, task: str) -> int:
        return int(str(offsets.get(partition_key({"task.id": task}), {}).get("saved", 0)))

    def latest_offsets(self, start: Offsets, limit: ReadLimit) -> Offsets:
        ends = {one: min(self._saved(start, one) + self._together, self._most) for one in self._tasks}
        return {
            **start,
            **{partition_key({"task.id": one}): {"saved": ends[one]} for one in self._tasks if ends[one]},
        }

    def splits(self, start: Offsets, end: Offsets, max_splits: int) -> Sequence[tuple[str, int, int]]:
        return [(one, self._saved(start, one), self._saved(end, one)) for one in self._tasks]

    def read(self, split: tuple[str, int, int]) -> Iterator[SourceRecord]:
        task, start, end = split
        for number in range(start + 1, end + 1):
            yield SourceRecord(self._topic, f"value-{task}-{number}", key=f"key-{task}-{number}")


class TestableSourceConnector(SourceConnector):
    """Kafka's source of numbered records."""

    java_classes: ClassVar[tuple[str, ...]] = (f"{_PACKAGE}.TestableSourceConnector",)

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef()

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [dict(self.config) for _ in range(int(self.config.get("num.tasks", max_tasks)))]

    def reader(self) -> SourceReader:
        return _SequenceReader(self.config)

    def alters_offsets(self) -> bool:
        return self.config.get("alter.offsets.result") == "true"

    def check_offset(self, partition: Mapping[str, Json] | None, offset: Mapping[str, Json] | None) -> None:
        """Any offset will do."""


class _DroppingWriter(SinkWriter):
    idempotent = True

    def write(self, cycle: SinkCycle, records: Iterator[SinkRecord], refuse: Refuse) -> int:
        return sum(1 for _ in records)


class TestableSinkConnector(SinkConnector):
    """Kafka's sink that counts records."""

    java_classes: ClassVar[tuple[str, ...]] = (f"{_PACKAGE}.TestableSinkConnector",)

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef()

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [dict(self.config) for _ in range(max_tasks)]

    def writer(self) -> SinkWriter:
        return _DroppingWriter()

    def alters_offsets(self) -> bool:
        return self.config.get("alter.offsets.result") == "true"

    def check_offsets(self, offsets: Mapping[Place, int | None]) -> None:
        """Any offsets will do."""


class _BlockingWriter(_DroppingWriter):
    """Its `stop` never returns: the worker must live with it."""

    def stop(self) -> None:
        threading.Event().wait()


class BlockingSinkConnector(TestableSinkConnector):
    """Kafka's sink whose task blocks when it is stopped; the only one of its places that the tests here use."""

    java_classes: ClassVar[tuple[str, ...]] = (f"{_PACKAGE}.BlockingConnectorTest$BlockingSinkConnector",)

    def writer(self) -> SinkWriter:
        return _BlockingWriter() if self.config.get("block") == "Task::stop" else _DroppingWriter()


class InnocuousSinkConnector(TestableSinkConnector):
    """A sink of the folder of badly packaged plugins that is in order."""

    java_classes: ClassVar[tuple[str, ...]] = ("test.plugins.InnocuousSinkConnector",)


class TestConverterWithSinglePropertyConfigDef(StringConverter):
    """A converter with one key."""

    java_classes: ClassVar[tuple[str, ...]] = (
        f"{_PACKAGE}.ConnectorValidationIntegrationTest$TestConverterWithSinglePropertyConfigDef",
    )

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef([ConfigKey("prop", "BOOLEAN")])


class TestConverterWithNoConfigDef(StringConverter):
    """A converter without keys."""

    java_classes: ClassVar[tuple[str, ...]] = (
        f"{_PACKAGE}.ConnectorValidationIntegrationTest$TestConverterWithNoConfigDef",
    )
