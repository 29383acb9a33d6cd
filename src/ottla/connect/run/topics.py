"""Topics that sources write to: made before the first record, by the groups `topic.creation.*` (KIP-158)."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Final

from ottla.admin.cluster import Cluster
from ottla.admin.errors import raise_for
from ottla.admin.topics import NewTopic, create_topics
from ottla.connect.config.definitions import parse_type
from ottla.errors import ApiException, ErrorCode
from ottla.pipeline.tasks import count_partitions

_logger = logging.getLogger(__name__)

_PREFIX: Final = "topic.creation."
_DEFAULT: Final = "default"
_OWN_KEYS: Final = ("include", "exclude", "replication.factor", "partitions")


class TopicMaker:
    """Makes the topics of one connector."""

    def __init__(self, brokers: Cluster, config: Mapping[str, str], *, enabled: bool = True) -> None:
        self._brokers = brokers
        self.known: set[str] = set()
        names = parse_type("topic.creation.groups", config.get(f"{_PREFIX}groups", ""), "LIST")
        self._enabled = enabled and f"{_PREFIX}{_DEFAULT}.replication.factor" in config
        self._groups = {name: _group(config, name) for name in [*names, _DEFAULT]}

    def ensure(self, topic: str) -> bool:
        """Makes a topic unless it exists; True if this connector had not used it yet."""
        if topic in self.known:
            return False
        if self._enabled:
            self._make(topic)
        count_partitions(self._brokers, topic)
        self.known.add(topic)
        return True

    def _make(self, topic: str) -> None:
        try:
            self._brokers.leaders(topic)
            return
        except ApiException as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        name = next((one for one in self._groups if one == _DEFAULT or self._matches(one, topic)), _DEFAULT)
        group, default = self._groups[name], self._groups[_DEFAULT]
        settings = {key: value for key, value in group.items() if key not in _OWN_KEYS}
        wanted = NewTopic(
            topic,
            int(group.get("partitions", default.get("partitions", -1))),
            int(group.get("replication.factor", default.get("replication.factor", -1))),
            topic_configs=settings,
        )
        result = create_topics(self._brokers, [wanted]).topics[0]
        if result.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise_for(result.error_code, result.error_message, f"topic {topic}")
            _logger.info("made topic %s by the group %s", topic, name)

    def _matches(self, name: str, topic: str) -> bool:
        group = self._groups[name]
        included = any(re.fullmatch(one, topic) for one in group.get("include", "").split(",") if one)
        return included and not any(
            re.fullmatch(one, topic) for one in group.get("exclude", "").split(",") if one
        )


def _group(config: Mapping[str, str], name: str) -> dict[str, str]:
    prefix = f"{_PREFIX}{name}."
    return {key[len(prefix) :]: value for key, value in config.items() if key.startswith(prefix)}
