"""Dead letters: records that were skipped, written to a topic of their own with headers that say why."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from ottla.admin.cluster import Cluster
from ottla.admin.errors import raise_for
from ottla.admin.topics import NewTopic, create_topics
from ottla.connect.errors.tolerance import Failure
from ottla.errors import ApiException, ErrorCode
from ottla.pipeline.columns import encode_sections
from ottla.pipeline.decoding import HEADERS
from ottla.pipeline.writer import BatchWriter, Place

if TYPE_CHECKING:
    from ottla.connect.run.context import RunContext

_PREFIX: Final = "__connect.errors."


def append_dead_letters(
    writer: BatchWriter, brokers: Cluster, context: RunContext, failures: Sequence[Failure]
) -> None:
    """Gives the dead letters of a cycle to its writer, so that they are committed with it."""
    topic = context.config.get("errors.deadletterqueue.topic.name")
    if not failures or not topic:
        return
    partitions = _partitions(brokers, topic, context)
    described = context.config.get("errors.deadletterqueue.context.headers.enable", "false").lower() == "true"
    now = time.time_ns() // 1_000_000
    for number, one in enumerate(failures):
        headers: list[dict[str, object]] = [{"key": key, "value": value} for key, value in one.headers]
        if described:
            headers += _described(one, context.name)
        place = Place(topic, number % partitions)
        sections = encode_sections(
            pa.array([one.key], pa.binary()),
            pa.array([one.value], pa.binary()),
            np.array([now], np.int64),
            pa.array([headers], HEADERS),
            1 << 20,
        )
        writer.add(place, sections)


def _described(failure: Failure, connector: str) -> list[dict[str, object]]:
    texts = {
        "topic": failure.topic,
        "partition": failure.partition,
        "offset": failure.offset,
        "connector.name": connector,
        "task.id": 0,
        "stage": failure.stage,
        "class.name": failure.class_name,
        "exception.class.name": failure.java_exception,
        "exception.message": failure.message,
        "exception.stacktrace": f"{failure.java_exception}: {failure.message}\n",
    }
    if failure.schema_id is not None:
        texts["schema.id"] = failure.schema_id
    return [{"key": _PREFIX + key, "value": str(value).encode()} for key, value in texts.items()]


def _partitions(brokers: Cluster, topic: str, context: RunContext) -> int:
    try:
        return len(brokers.leaders(topic))
    except ApiException as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
    wanted = int(context.config.get("errors.deadletterqueue.topic.replication.factor", "3"))
    replication = min(wanted, len(brokers.nodes()))
    result = create_topics(brokers, [NewTopic(topic, 1, replication)]).topics[0]
    if result.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
        raise_for(result.error_code, result.error_message, f"topic {topic}")
    return len(brokers.retrying(lambda: brokers.leaders(topic), 30.0))
