"""Which keys may be changed while a broker runs."""

import pytest

from ottla.config.dynamic import check_dynamic
from ottla.config.errors import ConfigError


@pytest.mark.parametrize(
    ("key", "value", "per_broker"),
    [
        ("log.retention.ms", "5", False),
        ("log.retention.ms", None, True),
        ("listeners", "PLAINTEXT://:9092", True),
        ("listener.name.internal.ssl.keystore.location", "file", True),
        ("listener.name.internal.max.connections", "5", False),
        ("leader.replication.throttled.rate", "5", True),
        ("some.plugin.key", "anything", False),
    ],
)
def test_allowed(key, value, per_broker):
    check_dynamic(key, value, per_broker=per_broker)


@pytest.mark.parametrize(
    ("key", "value", "per_broker", "message"),
    [
        ("node.id", "5", True, r"Cannot update these configs dynamically: \[node.id\]\."),
        ("log.retention.hours", "5", True, "configuration file and restart"),
        ("listeners", "PLAINTEXT://:9092", False, "for all brokers"),
        ("listener.name.internal.ssl.keystore.location", "file", False, "for all brokers"),
        ("ssl.keystore.location", "file", True, "listener.name"),
        ("log.segment.bytes", "5", True, "at least 1048576"),
    ],
)
def test_refused(key, value, per_broker, message):
    with pytest.raises(ConfigError, match=message):
        check_dynamic(key, value, per_broker=per_broker)
