"""Error tolerance: which failures stop a connector, which are tried again, logged or reported as dead letters."""

from __future__ import annotations

import enum
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from ottla.connect.config.definitions import ConfigValues
from ottla.connect.data.record import ConnectRecord, SinkRecord, SourceRecord
from ottla.connect.failures import ConnectError, DataError, Retriable, TaskFailed

_logger = logging.getLogger(__name__)

T = TypeVar("T")

_FIRST_DELAY_MS: Final = 300
MOST_FAILURES_BYTES: Final = 1 << 20
"""Dead letters of one cycle; a cycle that has more is cut."""


class Stage(enum.StrEnum):
    """Where a record failed, by Kafka's names."""

    TASK_PUT = "TASK_PUT"
    TASK_POLL = "TASK_POLL"
    KAFKA_CONSUME = "KAFKA_CONSUME"
    KAFKA_PRODUCE = "KAFKA_PRODUCE"
    TRANSFORMATION = "TRANSFORMATION"
    KEY_CONVERTER = "KEY_CONVERTER"
    VALUE_CONVERTER = "VALUE_CONVERTER"
    HEADER_CONVERTER = "HEADER_CONVERTER"


@dataclass(frozen=True, slots=True)
class Failure:
    """A record that was skipped, and why."""

    stage: Stage
    class_name: str
    java_exception: str
    message: str
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    schema_id: int | None = None
    """The id of the schema that the record names, if that failed."""

    @property
    def size(self) -> int:
        """Bytes of the dead letter, about."""
        return len(self.key or b"") + len(self.value or b"") + len(self.message) + 500


class ToleranceExceeded(TaskFailed):
    """A record failed, and the connector does not tolerate that."""


@dataclass(slots=True)
class Tolerance:
    """The settings `errors.*` of a connector, and the failures of the current cycle."""

    connector: str
    tolerate: bool = False
    retry_timeout_ms: int = 0
    retry_delay_max_ms: int = 60_000
    log: bool = False
    log_records: bool = False
    failures: list[Failure] = field(default_factory=list)
    failed_bytes: int = 0
    skipped: int = 0
    keep_failures: bool = False
    """Whether failures are kept for dead letters."""

    @classmethod
    def of(cls, connector: str, config: ConfigValues) -> Tolerance:
        """From the parsed keys of a connector."""
        return cls(
            connector,
            config.get("errors.tolerance") == "all",
            config.get("errors.retry.timeout") or 0,
            config.get("errors.retry.delay.max.ms") or 60_000,
            bool(config.get("errors.log.enable")),
            bool(config.get("errors.log.include.messages")),
            keep_failures=bool(config.get("errors.deadletterqueue.topic.name")),
        )

    def call(
        self, stage: Stage, class_name: str, record: object, action: Callable[[], T]
    ) -> tuple[bool, T | None]:
        """The result of an action on a record: (True, result), or (False, None) if the record is skipped."""
        try:
            return True, self._retried(action)
        except ConnectError as error:
            self.failed(stage, class_name, record, error)
        except Exception as error:  # noqa: BLE001 - a transform or converter may raise anything
            self.failed(stage, class_name, record, DataError(f"{type(error).__name__}: {error}"))
        return False, None

    def _retried(self, action: Callable[[], T]) -> T:
        deadline = time.monotonic() + self.retry_timeout_ms / 1000
        delay_ms = _FIRST_DELAY_MS
        while True:
            try:
                return action()
            except Retriable:
                if self.retry_timeout_ms >= 0 and time.monotonic() + delay_ms / 1000 > deadline:
                    raise
            time.sleep(random.uniform(0.8, 1.2) * delay_ms / 1000)
            delay_ms = min(2 * delay_ms, self.retry_delay_max_ms)

    def failed(self, stage: Stage, class_name: str, record: object, error: Exception) -> None:
        """Takes note of a failure; raises if it is not tolerated."""
        failure = _failure(stage, class_name, record, error)
        where = (
            f"{failure.topic}-{failure.partition} offset {failure.offset}"
            if failure.offset >= 0
            else "a record"
        )
        text = f"{where} failed in {stage} with class '{class_name}': {failure.message}"
        if self.log:
            shown = f"; the record is {record}" if self.log_records else ""
            _logger.error("connector %s: %s%s", self.connector, text, shown)
        if not self.tolerate:
            raise ToleranceExceeded(f"Tolerance exceeded in error handler: {text}") from error
        self.skipped += 1
        if self.keep_failures:
            self.failures.append(failure)
            self.failed_bytes += failure.size

    def take_failures(self) -> list[Failure]:
        """The failures since the last call."""
        found, self.failures, self.failed_bytes = self.failures, [], 0
        return found


def _failure(stage: Stage, class_name: str, record: object, error: Exception) -> Failure:
    java = getattr(error, "java_class", f"{type(error).__module__}.{type(error).__name__}")
    if isinstance(record, SinkRecord):
        return Failure(
            stage,
            class_name,
            java,
            str(error),
            record.original_topic,
            record.original_partition,
            record.offset,
            record.original_key,
            record.original_value,
            record.original_headers,
            getattr(error.__cause__, "schema_id", None),
        )
    topic = record.topic if isinstance(record, ConnectRecord) else ""
    text = (
        str(record.value).encode() if isinstance(record, SourceRecord) and record.value is not None else None
    )
    return Failure(stage, class_name, java, str(error), topic, -1, -1, None, text)
