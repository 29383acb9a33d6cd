"""Automatic creation of topics through the controller.

`auto_create_topics` creates topics that clients name, and Kafka's internal topics, with their configs. The internal
topics of streams groups are created on each heartbeat; `InternalTopicCreations` keeps those requests from repeating.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from ottla.errors import ApiException, ErrorCode
from ottla.ids import TopicName
from ottla.metadata.topic_names import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC, why_invalid
from ottla.wire import messages

if TYPE_CHECKING:
    from ottla.broker.services import Broker
    from ottla.config.broker import BrokerConfig

_logger = logging.getLogger(__name__)

_USE_DEFAULT: Final = -1
MAX_FAILURES: Final = 1000
"""Failures of internal topics that are remembered; the oldest are dropped first."""

Results = dict[TopicName, ErrorCode]


def auto_create_topics(
    broker: Broker, names: Iterable[TopicName], done: Callable[[Results], None] | None = None
) -> Results:
    """Start to create topics that do not exist.

    Returns at once the error of each name for the Metadata response: INVALID_TOPIC_EXCEPTION, or
    UNKNOWN_TOPIC_OR_PARTITION, after which clients try again. `done` is called when the controller has answered, with
    the result of each name: NONE, or TOPIC_ALREADY_EXISTS when another creation came first. Topics that are being
    created already do not delay it.
    """
    wanted = list(dict.fromkeys(names))
    results = {
        name: ErrorCode.INVALID_TOPIC_EXCEPTION if why_invalid(name) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for name in wanted
    }
    creatable = [
        name
        for name in wanted
        if results[name] is not ErrorCode.INVALID_TOPIC_EXCEPTION and name not in broker.auto_creating
    ]
    outcome = dict(results)

    def created(response: messages.CreateTopicsResponse) -> None:
        broker.auto_creating.difference_update(creatable)
        for topic in response.topics:
            outcome[topic.name] = ErrorCode(topic.error_code)
            if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                _logger.warning(
                    "The automatic creation of topic %s failed: %s", topic.name, topic.error_message
                )
        if done is not None:
            done(outcome)

    def failed(error: ApiException) -> None:
        broker.auto_creating.difference_update(creatable)
        _logger.warning("The automatic creation of topics %s failed: %s", ", ".join(creatable), error.message)
        outcome.update(dict.fromkeys(creatable, error.code))
        if done is not None:
            done(outcome)

    if creatable:
        broker.auto_creating.update(creatable)
        timeout_ms = broker.config.int("request.timeout.ms")
        request = messages.CreateTopicsRequest(
            topics=[_new_topic(broker, name) for name in creatable], timeout_ms=timeout_ms
        )
        broker.to_controller.send(request, created, failed, timeout_s=timeout_ms / 1000)
    elif done is not None:
        done(outcome)
    return results


def _new_topic(broker: Broker, name: TopicName) -> messages.CreateTopicsRequest.CreatableTopic:
    config = broker.config
    if name == OFFSETS_TOPIC:
        return _topic(
            name,
            config.int("offsets.topic.num.partitions"),
            _replication_factor(broker, "offsets.topic.replication.factor"),
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.int("offsets.topic.segment.bytes")),
            },
        )
    if name == TRANSACTIONS_TOPIC:
        factor = _replication_factor(broker, "transaction.state.log.replication.factor")
        return _topic(
            name,
            config.int("transaction.state.log.num.partitions"),
            factor,
            {
                "unclean.leader.election.enable": "false",
                "compression.type": "uncompressed",
                "cleanup.policy": "compact",
                "min.insync.replicas": _min_isr(config, "transaction.state.log.min.isr", factor),
                "segment.bytes": str(config.int("transaction.state.log.segment.bytes")),
            },
        )
    if name == SHARE_STATE_TOPIC:
        factor = _replication_factor(broker, "share.coordinator.state.topic.replication.factor")
        return _topic(
            name,
            config.int("share.coordinator.state.topic.num.partitions"),
            factor,
            {
                "cleanup.policy": "delete",
                "compression.type": "producer",
                "segment.bytes": str(config.int("share.coordinator.state.topic.segment.bytes")),
                "min.insync.replicas": _min_isr(config, "share.coordinator.state.topic.min.isr", factor),
                "retention.ms": "-1",
            },
        )
    # A default in this broker's file takes precedence over the controller's.
    return _topic(
        name,
        config.int("num.partitions") if config.is_set("num.partitions") else _USE_DEFAULT,
        config.int("default.replication.factor")
        if config.is_set("default.replication.factor")
        else _USE_DEFAULT,
        {},
    )


def _topic(
    name: TopicName, partitions: int, replication_factor: int, configs: dict[str, str]
) -> messages.CreateTopicsRequest.CreatableTopic:
    request = messages.CreateTopicsRequest
    return request.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[request.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )


def _replication_factor(broker: Broker, key: str) -> int:
    """The configured factor. A single-node cluster cannot have Kafka's default of 3: it has as many as brokers."""
    config = broker.config
    factor = config.int(key)
    alone = not config.voters and not config.list("controller.quorum.bootstrap.servers")
    if alone and not config.is_set(key):
        return min(factor, max(len(broker.image.brokers), 1))
    return factor


def _min_isr(config: BrokerConfig, key: str, replication_factor: int) -> str:
    wanted = config.int(key)
    return str(wanted if config.is_set(key) else min(wanted, replication_factor))


class InternalTopicCreations:
    """The creations of streams groups' internal topics: those in flight, and those that failed recently."""

    __slots__ = ("_failures", "_in_flight")

    def __init__(self) -> None:
        self._in_flight: set[TopicName] = set()
        self._failures: dict[TopicName, tuple[str, float]] = {}

    def begin(self, names: Iterable[TopicName], now_s: float) -> list[TopicName]:
        """The topics to create now; the others are in flight or have failed recently."""
        begun = [name for name in names if name not in self._in_flight and self._failure(name, now_s) is None]
        self._in_flight.update(begun)
        return begun

    def end(self, names: Iterable[TopicName]) -> None:
        """The controller has answered for these topics."""
        self._in_flight.difference_update(names)

    def failed(self, name: TopicName, why: str, until_s: float) -> None:
        """Remember a failure. The topic is not tried again before `until_s`."""
        self._failures.pop(name, None)
        self._failures[name] = (why, until_s)
        while len(self._failures) > MAX_FAILURES:
            del self._failures[next(iter(self._failures))]

    def failures(self, names: Iterable[TopicName], now_s: float) -> dict[TopicName, str]:
        """Why the last creation of each topic failed, for those that failed."""
        found = {name: self._failure(name, now_s) for name in names}
        return {name: why for name, why in found.items() if why is not None}

    def _failure(self, name: TopicName, now_s: float) -> str | None:
        why, until_s = self._failures.get(name, (None, 0))
        if until_s <= now_s:
            self._failures.pop(name, None)
            return None
        return why
