"""A topic's configuration: overrides on top of broker keys of another name and another unit."""

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.config.topic import TopicConfig
from ottla.errors import ErrorCode

HOUR_MS = 3_600_000


def build(broker=None, overrides=None):
    return TopicConfig.build(BrokerConfig.single_node(broker or {}), overrides or {})


def test_defaults():
    config = build()
    assert config.segment_bytes == 1 << 30
    assert config.retention_ms == 168 * HOUR_MS
    assert config.cleanup_policy == {"delete"}
    assert config.delete and not config.compact
    assert not config.log_append_time


@pytest.mark.parametrize(
    ("broker", "retention_ms"),
    [
        ({"log.retention.hours": "2"}, 2 * HOUR_MS),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_the_finer_unit_wins(broker, retention_ms):
    assert build(broker).retention_ms == retention_ms


def test_other_synonyms():
    config = build(
        {
            "log.roll.hours": "1",
            "log.flush.scheduler.interval.ms": "7",
            "log.cleaner.min.cleanable.ratio": "0.1",
        }
    )
    assert (config.segment_ms, config.flush_ms, config.min_cleanable_dirty_ratio) == (HOUR_MS, 7, 0.1)
    assert build({"log.flush.interval.ms": "5", "log.flush.scheduler.interval.ms": "7"}).flush_ms == 5


def test_a_topic_override_wins():
    overrides = {
        "retention.ms": "5",
        "cleanup.policy": "compact,delete",
        "message.timestamp.type": "LogAppendTime",
    }
    config = build({"log.retention.ms": "9"}, overrides)
    assert config.retention_ms == 5
    assert config.compact and config.delete and config.log_append_time


def test_small_segments_for_tests_come_by_kafkas_internal_key():
    assert build(overrides={"internal.segment.bytes": "1000"}).segment_bytes == 1000


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"retention": "5"}, "Unknown topic config name: retention"),
        (
            {"segment.bytes": "5"},
            "Invalid value '5' for configuration segment.bytes: expected at least 1048576",
        ),
        ({"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"}, "at most max.compaction.lag.ms, 8"),
        ({"remote.storage.enable": "true"}, "Tiered Storage functionality is disabled in the broker"),
    ],
)
def test_a_bad_override_is_refused_with_kafkas_code(overrides, message):
    with pytest.raises(ConfigError) as caught:
        build(overrides=overrides)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"cleanup.policy": "compact"}, "false for a compacted topic"),
        ({"local.retention.ms": "20", "retention.ms": "10"}, "at most retention.ms, 10"),
        ({"local.retention.bytes": "-1", "retention.bytes": "10"}, "at most retention.bytes, 10"),
        ({"remote.log.copy.disable": "true", "local.retention.ms": "5", "retention.ms": "10"}, "the same as"),
    ],
)
def test_remote_storage_must_fit_retention(overrides, message):
    with pytest.raises(ConfigError, match=message):
        build({"remote.log.storage.system.enable": "true"}, {"remote.storage.enable": "true", **overrides})


def test_what_is_stored_never_keeps_a_broker_from_running(caplog):
    stored = {"message.downconversion.enable": "true", "retention.ms": "5", "segment.bytes": "many"}
    config = TopicConfig.in_force(BrokerConfig.single_node(), stored)
    assert (config.retention_ms, config.segment_bytes) == (5, 1 << 30)
    assert "many" in caplog.text
    together = {"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"}
    assert TopicConfig.in_force(BrokerConfig.single_node(), together) == build()
