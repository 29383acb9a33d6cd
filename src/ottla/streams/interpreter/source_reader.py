"""Reads the records of a source: bytes to values, the time, and the rule for records that fail."""

from __future__ import annotations

from collections.abc import Callable

from ottla.streams.errors import ProcessingError, StreamsError
from ottla.streams.graph.operators import OnError, Source
from ottla.streams.graph.topology import Node
from ottla.streams.interpreter.context import RecordMetadata
from ottla.streams.interpreter.task import Task
from ottla.streams.records import Record
from ottla.streams.serdes import natural_serde

DeadLetter = Callable[[str, Record], None]


def read_source(
    task: Task,
    node: Node,
    source: Source,
    raw: Record,
    metadata: RecordMetadata,
    dead_letter: DeadLetter,
) -> None:
    """Decodes a record and processes it at its source node; the source's rule decides about errors."""
    try:
        record = decode(source, raw)
        if record.timestamp >= 0:
            task.process(node.name, record, metadata)
    except Exception as problem:
        # A registry that is down is no fault of the record, which must not be lost for it.
        its_fault = not _about(problem, "says_nothing_about_the_record")
        if its_fault and source.on_error is OnError.SKIP:
            return
        if its_fault and source.on_error is OnError.DEAD_LETTER and source.dead_letter_topic is not None:
            dead_letter(source.dead_letter_topic, _with_reason(raw, problem, metadata))
            return
        if isinstance(problem, StreamsError):
            raise
        where = f"{metadata.topic}-{metadata.partition} at offset {metadata.offset}"
        raise ProcessingError(f"a record of {where} failed: {type(problem).__name__}: {problem}") from problem


def decode(source: Source, raw: Record) -> Record:
    """A record with its values and its time, by the serdes and the time extractor of its source."""
    key = (source.key_serde or natural_serde).deserialize(raw.key)
    value = (source.value_serde or natural_serde).deserialize(raw.value)
    timestamp = raw.timestamp if source.timestamp_of is None else source.timestamp_of(value, raw.timestamp)
    return Record(key, value, timestamp, raw.headers)


def _about(problem: Exception, name: str) -> object:
    """What an error, or the one that it comes from, says about itself; a serde's own error comes from a registry's."""
    found: object = getattr(problem, name, None)
    return found or getattr(problem.__cause__, name, None)


def _with_reason(raw: Record, problem: Exception, metadata: RecordMetadata) -> Record:
    reason: tuple[tuple[str, bytes], ...] = (
        ("__streams.errors.exception", type(problem).__name__.encode()),
        ("__streams.errors.message", str(problem).encode()),
        ("__streams.errors.topic", metadata.topic.encode()),
        ("__streams.errors.partition", str(metadata.partition).encode()),
        ("__streams.errors.offset", str(metadata.offset).encode()),
    )
    schema_id = _about(problem, "schema_id")
    if schema_id is not None:
        reason = (*reason, ("__streams.errors.schema.id", str(schema_id).encode()))
    return raw.with_headers((*raw.headers, *reason))
