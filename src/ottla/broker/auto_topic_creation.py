"""Automatic creation of topics: those that a client's Metadata request names, and Kafka's internal ones.

Decides the partitions, replicas and configs; the controller creates the topics.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from ottla.errors import ApiException, ErrorCode
from ottla.ids import TopicName
from ottla.metadata.topic_names import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC, why_invalid
from ottla.wire.messages import CreateTopicsRequest

if TYPE_CHECKING:
    from ottla.broker.services import Broker
    from ottla.config.broker import BrokerConfig
    from ottla.wire.messages import CreateTopicsResponse

_logger = logging.getLogger(__name__)

_USE_DEFAULT: Final = -1

Results = dict[TopicName, ErrorCode]


def auto_create_topics(
    broker: Broker, names: Iterable[TopicName], done: Callable[[Results], None] | None = None
) -> Results:
    """Start to create topics that do not exist.

    Returns at once the error of each name in a Metadata response: INVALID_TOPIC_EXCEPTION, or
    UNKNOWN_TOPIC_OR_PARTITION, after which clients retry. `done` is called with all results when the controller has
    answered (NONE, or TOPIC_ALREADY_EXISTS if another creation came first). It is called at once if all of the topics
    are being created already.
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

    def created(response: CreateTopicsResponse) -> None:
        broker.auto_creating.difference_update(creatable)
        for topic in response.topics:
            outcome[topic.name] = ErrorCode(topic.error_code)
            if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                _logger.warning("Topic %s was not created automatically: %s", topic.name, topic.error_message)
        if done is not None:
            done(outcome)

    def failed(error: ApiException) -> None:
        broker.auto_creating.difference_update(creatable)
        _logger.warning("Topics %s were not created automatically: %s", ", ".join(creatable), error.message)
        outcome.update(dict.fromkeys(creatable, error.code))
        if done is not None:
            done(outcome)

    if creatable:
        broker.auto_creating.update(creatable)
        timeout_ms = broker.config.int("request.timeout.ms")
        request = CreateTopicsRequest(
            topics=[_new_topic(broker, name) for name in creatable], timeout_ms=timeout_ms
        )
        broker.to_controller.send(request, created, failed, timeout_s=timeout_ms / 1000)
    elif done is not None:
        done(outcome)
    return results


def _new_topic(broker: Broker, name: TopicName) -> CreateTopicsRequest.CreatableTopic:
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
    # A default in this broker's configuration file goes with the request; else the controller's default applies.
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
) -> CreateTopicsRequest.CreatableTopic:
    return CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()
        ],
    )


def _replication_factor(broker: Broker, key: str) -> int:
    """Kafka's default of 3 cannot be met by a node that is a cluster of its own: there, as many as there are."""
    config = broker.config
    factor = config.int(key)
    alone = not config.voters and not config.list("controller.quorum.bootstrap.servers")
    if alone and not config.is_set(key):
        return min(factor, max(len(broker.image.brokers), 1))
    return factor


def _min_isr(config: BrokerConfig, key: str, replication_factor: int) -> str:
    wanted = config.int(key)
    return str(wanted if config.is_set(key) else min(wanted, replication_factor))
