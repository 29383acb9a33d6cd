"""Lookups of topics and leaders through any of librdkafka's clients."""

from __future__ import annotations

import re
import time
import uuid
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as EnginePartition

from ottla.client.errors import KafkaTimeoutError, NoBrokersAvailable, RetriableError, from_engine
from ottla.client.settings import Settings, common_engine_settings, with_engine_config
from ottla.errors import ErrorCode

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer

    from ottla.client.engine_log import EngineLog

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_MAX_TOPIC_NAME = 249
_AGAIN_S = 0.02
_NOT_THERE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE)


def check_topic_name(topic: object) -> None:
    if not isinstance(topic, str):
        raise TypeError(f"a topic is named by a str, not by {topic!r}")
    if not topic or topic in (".", "..") or len(topic) > _MAX_TOPIC_NAME or not _TOPIC_NAME.fullmatch(topic):
        raise ValueError(
            f"{topic!r} is no name for a topic: 1 to {_MAX_TOPIC_NAME} letters, digits, '.', '_' and '-'"
        )


def wait_for_cluster(engine: Producer | Consumer, settings: Settings, log: EngineLog) -> None:
    """Wait until a bootstrap server has answered; the engine's log has the reason if none does."""
    timeout_s = settings["bootstrap_timeout_ms"] / 1000
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            # Of one topic that is there or not: all that is wanted is an answer.
            engine.list_topics(
                "__consumer_offsets", timeout=min(1.0, max(0.001, deadline - time.monotonic()))
            )
            return
        except KafkaException as problem:
            error = from_engine(problem.args[0])
            if not isinstance(error, RetriableError):
                raise error from None
            time.sleep(_AGAIN_S)
            # A consumer's log messages arrive while it polls; it reads nothing yet.
            engine.poll(0)
    reason = getattr(log, "problem", None)
    raise NoBrokersAvailable(
        f"no broker answered at {settings['bootstrap_servers']} within {timeout_s:g} s"
        + (f" ({reason})" if reason else "")
        + "; is it running there, and does it listen for this security_protocol?"
    )


def leaders(engine: Producer | Consumer, topic: str, timeout_s: float) -> dict[int, int] | None:
    """The leader of each partition, or None if there is no such topic."""
    try:
        found = engine.list_topics(topic, timeout=max(timeout_s, 0.001)).topics.get(topic)
    except KafkaException as problem:
        raise from_engine(problem.args[0]) from None
    if found is None or (found.error is not None and found.error.code() in _NOT_THERE):
        return None
    if found.error is not None:
        raise from_engine(found.error)
    return {number: one.leader for number, one in found.partitions.items()} or None


def all_topics(engine: Producer | Consumer, timeout_s: float) -> dict[str, list[int]]:
    """Every topic that this client may see, with its partitions."""
    try:
        found = engine.list_topics(timeout=timeout_s).topics
    except KafkaException as problem:
        raise from_engine(problem.args[0]) from None
    return {name: sorted(one.partitions) for name, one in found.items() if one.error is None}


def wait_for_topic(
    engine: Producer | Consumer, topic: str, settings: Settings, timeout_s: float
) -> dict[int, int]:
    """The leaders of a topic's partitions; a topic that is not there is asked for, if the settings allow it."""
    deadline = time.monotonic() + timeout_s
    found = leaders(engine, topic, timeout_s)
    if found is not None:
        return found
    asking = ask_for_topic(topic, settings) if settings["allow_auto_create_topics"] else None
    try:
        while (left := deadline - time.monotonic()) > 0:
            if asking is not None:
                asking.poll(0)
            time.sleep(min(_AGAIN_S, left))
            if (found := leaders(engine, topic, left)) is not None:
                return found
    finally:
        if asking is not None:
            asking.close()
    raise KafkaTimeoutError(f"topic {topic} was not there within {timeout_s:g} s")


def ask_for_topic(topic: str, settings: Settings) -> Consumer:
    """Have the broker create a topic, if it does so on demand: only an interest in reading it makes librdkafka
    ask for that."""
    engine = common_engine_settings(settings)
    engine.pop("max.in.flight.requests.per.connection", None)
    engine["group.id"] = f"ottla-no-group-{uuid.uuid4()}"
    engine["allow.auto.create.topics"] = True
    asking = Consumer(with_engine_config(engine, settings))
    asking.assign([EnginePartition(topic, 0, 0)])
    return asking
