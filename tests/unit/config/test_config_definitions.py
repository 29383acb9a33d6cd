"""The key table: types, ranges and enumerations are enforced with an error that helps."""

import pytest

from ottla.config.definitions import BROKER_KEYS, TOPIC_KEYS, UpdateMode, text_of
from ottla.config.errors import ConfigError
from ottla.wire.enums import ConfigType


def test_every_default_is_valid_for_its_own_key():
    for table in (BROKER_KEYS, TOPIC_KEYS):
        for definition in table.values():
            if not definition.required:
                definition.parse(definition.default)


def test_the_table_is_whole():
    assert len(BROKER_KEYS) == 363
    assert len(TOPIC_KEYS) == 34 + 1, "Kafka's, and ottla.mirror.offsets"


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("num.partitions", "0", "at least 1"),
        ("num.partitions", "many", "a number of type INT"),
        ("num.partitions", "1_000", "a number of type INT"),
        ("num.partitions", "2147483648", "a number of type INT"),
        ("offsets.topic.replication.factor", "40000", "a number of type SHORT"),
        ("log.retention.bytes", "9223372036854775808", "a number of type LONG"),
        ("auto.create.topics.enable", "yes", "true or false"),
        ("log.cleaner.min.cleanable.ratio", "1.5", "between 0 and 1"),
        ("log.cleaner.min.cleanable.ratio", "NaN", "a number of type DOUBLE"),
        ("log.cleanup.policy", "keep", "one of compact, delete"),
        ("log.cleanup.policy", "compact,,delete", "a list without empty elements"),
        ("compression.gzip.level", "0", "between 1 and 9 or -1"),
        ("compression.type", "GZIP", "one of uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("group.consumer.migration.policy", "never", "one of DISABLED, DOWNGRADE, UPGRADE, BIDIRECTIONAL"),
    ],
)
def test_a_bad_value_names_key_value_and_what_was_expected(key, text, expected):
    with pytest.raises(ConfigError) as caught:
        BROKER_KEYS[key].parse(text)
    assert caught.value.message == f"Invalid value '{text}' for configuration {key}: expected {expected}"
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("num.partitions", " +3 ", 3),
        ("auto.create.topics.enable", "TRUE ", True),
        ("log.cleaner.min.cleanable.ratio", "5e-1", 0.5),
        ("log.cleanup.policy", "compact , delete", ("compact", "delete")),
        ("log.cleanup.policy", "compact,compact", ("compact",)),
        ("log.cleanup.policy", "", ()),
        ("compression.gzip.level", "-1", -1),
        ("group.consumer.migration.policy", "upgrade", "upgrade"),
    ],
)
def test_values_are_read_as_kafka_reads_them(key, text, value):
    assert BROKER_KEYS[key].parse(text) == value


@pytest.mark.parametrize("text", ["*", "0:1,1:2", ""])
def test_throttled_replicas_are_a_star_or_pairs(text):
    TOPIC_KEYS["leader.replication.throttled.replicas"].parse(text)


def test_throttled_replicas_of_another_form_are_refused():
    with pytest.raises(ConfigError, match="partitionId"):
        TOPIC_KEYS["leader.replication.throttled.replicas"].parse("0-1")


def test_a_secret_is_not_in_the_error():
    definition = BROKER_KEYS["ssl.key.password"]
    assert definition.sensitive
    assert definition.type is ConfigType.PASSWORD


def test_how_keys_may_be_changed():
    assert BROKER_KEYS["log.retention.ms"].update_mode is UpdateMode.CLUSTER_WIDE
    assert BROKER_KEYS["listeners"].update_mode is UpdateMode.PER_BROKER
    assert BROKER_KEYS["node.id"].read_only


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        (True, "true"),
        (("a", "b"), "a,b"),
        (7, "7"),
        (0.5, "0.5"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (12345678.5, "1.23456785E7"),
        (1e7, "1.0E7"),
        (0.0001, "1.0E-4"),
    ],
)
def test_values_are_printed_as_java_prints_them(value, text):
    assert text_of(value) == text
