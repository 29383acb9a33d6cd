"""The settings of the quorum, read from the node's configuration."""

from __future__ import annotations

import msgspec

from ottla.config.broker import BrokerConfig
from ottla.config.topic import TopicConfig
from ottla.raft.node import NodeConfig
from ottla.raft.types import MAX_BATCH_BYTES


class RaftConfig(msgspec.Struct, frozen=True):
    """Settings of the metadata log and of elections."""

    log: TopicConfig
    """The topic configuration of the metadata log. It has no retention: snapshots decide what is deleted."""
    max_retention_bytes: int
    max_retention_ms: int
    node: NodeConfig
    request_timeout_ms: int
    retry_backoff_ms: int
    fetch_max_bytes: int
    fetch_snapshot_max_bytes: int
    auto_join: bool
    """A controller that is not a voter asks to become one."""

    @classmethod
    def of(cls, config: BrokerConfig) -> RaftConfig:
        segment_bytes = config.int("metadata.log.segment.bytes")
        return cls(
            log=TopicConfig.build(
                config,
                {
                    "cleanup.policy": "delete",
                    "retention.ms": "-1",
                    "retention.bytes": "-1",
                    "max.message.bytes": str(MAX_BATCH_BYTES),
                    "segment.bytes": str(segment_bytes),
                    "segment.ms": str(config.int("metadata.log.segment.ms")),
                    "compression.type": "producer",
                    "message.timestamp.type": "CreateTime",
                    "flush.messages": str((1 << 63) - 1),
                    "flush.ms": str((1 << 63) - 1),
                    # The broker's defaults for topics do not apply to this log.
                    "preallocate": "false",
                    "segment.jitter.ms": "0",
                    "segment.index.bytes": str(10 << 20),
                    "index.interval.bytes": "4096",
                    "remote.storage.enable": "false",
                },
            ),
            max_retention_bytes=config.int("metadata.max.retention.bytes"),
            max_retention_ms=config.int("metadata.max.retention.ms"),
            node=NodeConfig(
                election_timeout_ms=config.int("controller.quorum.election.timeout.ms"),
                election_backoff_max_ms=config.int("controller.quorum.election.backoff.max.ms"),
                fetch_timeout_ms=config.int("controller.quorum.fetch.timeout.ms"),
            ),
            request_timeout_ms=config.int("controller.quorum.request.timeout.ms"),
            retry_backoff_ms=config.int("controller.quorum.retry.backoff.ms"),
            fetch_max_bytes=config.int("controller.quorum.fetch.max.bytes"),
            fetch_snapshot_max_bytes=config.int("controller.quorum.fetch.snapshot.max.bytes"),
            auto_join=config.bool("controller.quorum.auto.join.enable"),
        )
