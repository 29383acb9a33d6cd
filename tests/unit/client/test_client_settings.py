"""Settings with kafka-python's names: what librdkafka gets, and what is refused with a helpful sentence."""

import pytest

from ottla.client.consumer_settings import (
    CooperativeStickyAssignor,
    RangePartitionAssignor,
    consumer_engine_settings,
    consumer_settings,
)
from ottla.client.errors import KafkaConfigurationError
from ottla.client.producer_settings import producer_engine_settings, producer_settings
from ottla.client.settings import servers


def producer_engine(**given):
    return producer_engine_settings(producer_settings(given))


def consumer_engine(**given):
    return consumer_engine_settings(consumer_settings(given))


@pytest.mark.parametrize(
    ("given", "understood"),
    [
        ("broker", ["broker:9092"]),
        ("a:1, b", ["a:1", "b:9092"]),
        (["a:1", "b:2"], ["a:1", "b:2"]),
        ("[::1]:9093", ["[::1]:9093"]),
        ("[::1]", ["[::1]:9092"]),
    ],
)
def test_bootstrap_servers_come_in_many_forms(given, understood):
    assert servers(given) == understood


def test_no_bootstrap_servers_are_refused():
    with pytest.raises(KafkaConfigurationError, match="empty"):
        servers([])


def test_a_producer_is_safe_by_default():
    engine = producer_engine()
    assert engine["enable.idempotence"] is True
    assert engine["acks"] == -1
    assert engine["partitioner"] == "murmur2_random"


def test_acks_that_contradict_idempotence_switch_it_off_unless_it_was_asked_for():
    assert producer_engine(acks=1)["enable.idempotence"] is False
    with pytest.raises(KafkaConfigurationError, match="enable_idempotence contradicts acks=1"):
        producer_engine(acks=1, enable_idempotence=True)
    with pytest.raises(KafkaConfigurationError, match="max_in_flight_requests_per_connection=6"):
        producer_engine(max_in_flight_requests_per_connection=6, enable_idempotence=True)
    with pytest.raises(KafkaConfigurationError, match="transactional_id contradicts retries=0"):
        producer_engine(retries=0, transactional_id="t")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"acks": 2}, "acks must be 0, 1 or 'all'"),
        ({"compression_type": "rar"}, "compression_type must be one of"),
        ({"linger": 5}, "did you mean linger_ms"),
        ({"proxy_url": "socks5://p"}, "proxy_url is not supported"),
        ({"ssl_context": object()}, "ssl_cafile"),
        ({"security_protocol": "TLS"}, "security_protocol must be one of"),
        ({"security_protocol": "SASL_SSL"}, "needs a sasl_mechanism"),
    ],
)
def test_a_mistake_in_a_producers_settings_is_named(given, sentence):
    with pytest.raises(KafkaConfigurationError, match=sentence):
        producer_engine(**given)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"isolation_level": "serializable"}, "isolation_level must be"),
        ({"fetch_max_wait_ms": 40_000}, "must be below request_timeout_ms"),
        ({"group_instance_id": "i"}, "needs a group_id"),
        ({"group_id": "g", "group_instance_id": "a b"}, "1 to 249 letters"),
        ({"group_protocol": "newest"}, "classic or consumer"),
        (
            {
                "group_id": "g",
                "partition_assignment_strategy": [RangePartitionAssignor, CooperativeStickyAssignor],
            },
            "cannot be mixed",
        ),
        ({"partition_assignment_strategy": "fair"}, "is not one of range"),
    ],
)
def test_a_mistake_in_a_consumers_settings_is_named(given, sentence):
    with pytest.raises(KafkaConfigurationError, match=sentence):
        consumer_engine(**given)


def test_a_consumer_reads_what_is_not_committed_unless_told_otherwise():
    assert consumer_engine()["isolation.level"] == "read_uncommitted"
    assert consumer_engine(isolation_level="read_committed")["isolation.level"] == "read_committed"


def test_the_engine_commits_and_resets_nothing_on_its_own():
    engine = consumer_engine(group_id="g", auto_offset_reset="earliest")
    assert (engine["enable.auto.commit"], engine["enable.auto.offset.store"]) == (False, False)
    assert engine["auto.offset.reset"] == "error"


def test_the_new_group_protocol_leaves_timeouts_to_the_broker():
    engine = consumer_engine(group_id="g", group_protocol="consumer")
    assert engine["group.protocol"] == "consumer"
    assert "session.timeout.ms" not in engine
    assert "partition.assignment.strategy" not in engine


def test_engine_config_has_the_last_word():
    assert producer_engine(engine_config={"linger.ms": 77})["linger.ms"] == 77


def test_a_record_does_not_outlive_its_transaction():
    engine = producer_engine(transactional_id="t", transaction_timeout_ms=10_000)
    assert engine["delivery.timeout.ms"] == 10_000
