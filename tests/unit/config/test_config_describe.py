"""What DescribeConfigs says: values, sources and synonyms in Kafka's order."""

from ottla import __version__
from ottla.config.broker import BrokerConfig
from ottla.config.describe import (
    VERSION_KEY,
    SynonymEntry,
    describe_broker,
    describe_broker_defaults,
    describe_topic,
)
from ottla.wire.enums import ConfigSource

CONFIG = BrokerConfig.single_node(
    {
        "log.retention.hours": "5",
        "message.max.bytes": "1000",
        "listener.name.internal.ssl.keystore.password": "secret",
        "super.users": "User:admin",
    }
).with_dynamic({"log.segment.bytes": "2000000"}, {"log.retention.ms": "1000"})


def one(entries):
    assert len(entries) == 1
    return entries[0]


def test_all_public_keys_are_described_in_order():
    entries = describe_broker(CONFIG)
    names = [entry.name for entry in entries]
    assert names == sorted(names)
    assert "unstable.api.versions.enable" not in names
    assert len(describe_topic(CONFIG, {})) == 33


def test_a_static_key():
    entry = one(describe_broker(CONFIG, ["message.max.bytes"]))
    assert (entry.value, entry.source, entry.type) == ("1000", ConfigSource.STATIC_BROKER_CONFIG, 3)
    assert not entry.read_only and not entry.sensitive
    assert entry.synonyms == (
        SynonymEntry("message.max.bytes", "1000", ConfigSource.STATIC_BROKER_CONFIG),
        SynonymEntry("message.max.bytes", "1048588", ConfigSource.DEFAULT_CONFIG),
    )


def test_synonyms_begin_with_the_key_that_was_asked_for():
    entry = one(describe_broker(CONFIG, ["log.retention.hours"]))
    assert entry.read_only
    assert [item.name for item in entry.synonyms] == ["log.retention.hours", "log.retention.hours"]
    strongest = one(describe_broker(CONFIG, ["log.retention.ms"]))
    assert [(item.name, item.source) for item in strongest.synonyms] == [
        ("log.retention.ms", ConfigSource.DYNAMIC_BROKER_CONFIG),
        ("log.retention.hours", ConfigSource.STATIC_BROKER_CONFIG),
        ("log.retention.hours", ConfigSource.DEFAULT_CONFIG),
    ]


def test_secrets_and_unknown_keys_show_no_value():
    for key in ("listener.name.internal.ssl.keystore.password", "super.users", "ssl.key.password"):
        entry = one(describe_broker(CONFIG, [key]))
        assert entry.sensitive and entry.value is None
        assert all(item.value is None for item in entry.synonyms)


def test_cluster_wide_defaults_are_only_what_was_changed():
    entry = one(describe_broker_defaults(CONFIG))
    assert (entry.name, entry.value) == ("log.segment.bytes", "2000000")
    assert entry.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    assert len(entry.synonyms) == 1


def test_a_topic_key_of_its_own_and_one_from_the_broker():
    own = one(describe_topic(CONFIG, {"segment.bytes": "3000000"}, ["segment.bytes"]))
    assert (own.value, own.source) == ("3000000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert [item.value for item in own.synonyms] == ["3000000", "2000000", "1073741824"]
    inherited = one(describe_topic(CONFIG, {}, ["segment.bytes"]))
    assert (inherited.value, inherited.source) == ("2000000", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)


def test_a_key_whose_default_comes_by_another_unit_has_no_synonyms_as_in_kafka():
    entry = one(describe_topic(BrokerConfig.single_node(), {}, ["retention.ms"]))
    assert (entry.value, entry.source, entry.synonyms) == ("604800000", ConfigSource.DEFAULT_CONFIG, ())


def test_an_internal_key_shows_only_where_it_is_set():
    assert describe_topic(CONFIG, {}, ["internal.segment.bytes"]) == []
    assert (
        one(describe_topic(CONFIG, {"internal.segment.bytes": "9"}, ["internal.segment.bytes"])).value == "9"
    )


def test_the_version_is_described_only_if_asked_for_by_name() -> None:
    config = BrokerConfig.single_node({"log.dirs": "/data"})
    (entry,) = describe_broker(config, [VERSION_KEY])
    assert (entry.name, entry.value, entry.read_only) == ("ottla.version", __version__, True)
    assert VERSION_KEY not in {each.name for each in describe_broker(config)}
