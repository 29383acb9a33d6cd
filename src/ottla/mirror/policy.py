"""Names of topics at the target: MirrorMaker 2's two replication policies, and the names of its internal topics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

SEPARATOR: Final = "."
HEARTBEATS: Final = "heartbeats"


class ReplicationPolicy(Protocol):
    """What a flow asks its policy."""

    def remote_topic(self, source: str, topic: str) -> str:
        """The name at the target of a topic of the source."""

    def topic_source(self, topic: str) -> str | None:
        """The cluster that a topic came from; None for one of this cluster's own."""

    def upstream_topic(self, topic: str) -> str | None:
        """The name at the cluster that it came from."""

    def original_topic(self, topic: str) -> str:
        """The name at the first cluster of all."""

    def is_heartbeats(self, topic: str) -> bool:
        """Whether it holds heartbeats, of whichever cluster."""

    def is_checkpoints(self, topic: str) -> bool:
        """Whether it holds checkpoints."""

    def is_internal(self, topic: str) -> bool:
        """Whether it is never mirrored."""

    def offset_syncs_topic(self, alias: str) -> str:
        """The topic of offset syncs with a cluster."""

    def checkpoints_topic(self, alias: str) -> str:
        """The topic of checkpoints of a cluster."""

    def runs_topic(self, alias: str) -> str:
        """The topic of the map of runs of a cluster."""


@dataclass(frozen=True, slots=True)
class DefaultReplicationPolicy:
    """`<source>.<topic>`."""

    separator: str = SEPARATOR
    internal_separator: bool = True

    def remote_topic(self, source: str, topic: str) -> str:
        return source + self.separator + topic

    def topic_source(self, topic: str) -> str | None:
        words = topic.split(self.separator)
        # As Java splits: empty words at the end do not count.
        while words and not words[-1]:
            words.pop()
        return words[0] if len(words) > 1 else None

    def upstream_topic(self, topic: str) -> str | None:
        source = self.topic_source(topic)
        return None if source is None else topic[len(source) + len(self.separator) :]

    def original_topic(self, topic: str) -> str:
        upstream = self.upstream_topic(topic)
        return topic if upstream is None or upstream == topic else self.original_topic(upstream)

    def is_heartbeats(self, topic: str) -> bool:
        return self.original_topic(topic) == HEARTBEATS

    def is_checkpoints(self, topic: str) -> bool:
        return topic.endswith(self._checkpoints_suffix)

    def is_internal(self, topic: str) -> bool:
        ours = topic.startswith("mm2") and topic.endswith(self._internal_suffix)
        return ours or self.is_checkpoints(topic) or topic.startswith(("__", "."))

    def offset_syncs_topic(self, alias: str) -> str:
        return f"mm2-offset-syncs{self._separator}{alias}{self._internal_suffix}"

    def checkpoints_topic(self, alias: str) -> str:
        return alias + self._checkpoints_suffix

    def runs_topic(self, alias: str) -> str:
        # Internal by MirrorMaker 2's rule, too: neither mirror copies it.
        return f"mm2-ottla-runs{self._separator}{alias}{self._internal_suffix}"

    @property
    def _separator(self) -> str:
        return self.separator if self.internal_separator else SEPARATOR

    @property
    def _internal_suffix(self) -> str:
        return f"{self._separator}internal"

    @property
    def _checkpoints_suffix(self) -> str:
        return f"{self._separator}checkpoints{self._internal_suffix}"


@dataclass(frozen=True, slots=True)
class IdentityReplicationPolicy(DefaultReplicationPolicy):
    """Topics keep their names; only heartbeats get the source's name, so that they do not go round for ever."""

    source: str = ""

    def remote_topic(self, source: str, topic: str) -> str:
        return f"{source}{self.separator}{topic}" if self._is_heartbeat(topic) else topic

    def topic_source(self, topic: str) -> str | None:
        if self._is_heartbeat(topic):
            return DefaultReplicationPolicy.topic_source(self, topic)
        return self.source or None

    def upstream_topic(self, topic: str) -> str | None:
        return DefaultReplicationPolicy.upstream_topic(self, topic) if self._is_heartbeat(topic) else topic

    @staticmethod
    def _is_heartbeat(topic: str) -> bool:
        return topic.endswith(HEARTBEATS)


def is_cycle(policy: ReplicationPolicy, topic: str, target: str) -> bool:
    """Whether a topic came from the target, directly or through other clusters: it is not sent back."""
    source = policy.topic_source(topic)
    if source is None:
        return False
    if source == target:
        return True
    upstream = policy.upstream_topic(topic)
    return upstream is not None and upstream != topic and is_cycle(policy, upstream, target)
