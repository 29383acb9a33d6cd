"""Client overrides of connectors: which the worker's policy lets through, and what becomes of them."""

import pytest

pytest.importorskip("pyarrow", reason="Connect needs pyarrow")

from ottla.connect.config.connector import validate_connector
from ottla.connect.config.overrides import ALLOWLIST, POLICY, ClientTuning, client_settings, client_tuning
from ottla.connect.config.worker import worker_config
from ottla.connect.failures import ConfigInvalid
from ottla.connect.plugins import Plugins

SOURCE = {"name": "s", "connector.class": "FileStreamSource", "topic": "t", "file": "/f"}


@pytest.mark.parametrize(
    ("policy", "refused"),
    [
        ({}, []),
        ({POLICY: "All"}, []),
        ({POLICY: "None"}, ["batch.size", "sasl.mechanism"]),
        ({POLICY: "Principal"}, ["batch.size"]),
        ({POLICY: "Allowlist", ALLOWLIST: "batch.size, acks"}, ["sasl.mechanism"]),
        ({POLICY: "Allowlist"}, ["batch.size", "sasl.mechanism"]),
    ],
)
def test_a_policy_names_what_it_refuses(policy, refused):
    config = {**SOURCE, "producer.override.batch.size": "1", "producer.override.sasl.mechanism": "PLAIN"}
    name = policy.get(POLICY, "All")
    assert validate_connector(Plugins(), config, policy).errors() == [
        f"The '{name}' policy does not allow '{key}' to be overridden in the connector configuration."
        for key in refused
    ]


def test_a_policy_in_java_is_refused_at_the_start():
    with pytest.raises(ConfigInvalid, match="All, None, Principal or Allowlist"):
        validate_connector(Plugins(), SOURCE, {POLICY: "com.example.Mine"})


def test_a_connectors_overrides_come_before_the_workers_keys():
    worker = worker_config(
        {
            "bootstrap.servers": "a:1",
            "security.protocol": "SSL",
            "producer.ssl.truststore.location": "/trust.jks",
            "producer.ssl.truststore.password": "t",
            "consumer.request.timeout.ms": "7000",
        }
    )
    config = {**SOURCE, "producer.override.bootstrap.servers": "b:2,c:3"}
    source = client_settings(worker, config, "source")
    assert source.bootstrap == (("b", 2), ("c", 3))
    assert source.client_id == "connector-producer-s-0"
    assert dict(source.security.stores)["ssl.truststore.password"] == "t"
    sink = client_settings(worker, {"name": "s"}, "sink")
    assert (sink.bootstrap, sink.request_timeout_s, sink.security.stores) == ((("a", 1),), 7.0, ())


def test_batches_compression_and_fetches_are_tuned_by_kafkas_keys():
    worker = worker_config(
        {"bootstrap.servers": "a:1", "consumer.fetch.min.bytes": "1000", "producer.compression.type": "lz4"}
    )
    given = {"producer.override.batch.size": "16384", "producer.override.max.request.size": "8000"}
    assert client_tuning(worker, given, "source") == ClientTuning(compression=3, batch_bytes=8000)
    given = {"consumer.override.fetch.max.wait.ms": "50", "consumer.override.max.partition.fetch.bytes": "99"}
    assert client_tuning(worker, given, "sink") == ClientTuning(
        fetch_min_bytes=1000, fetch_max_wait_ms=50, partition_fetch_bytes=99
    )
    for key, value in (("batch.size", "-1"), ("batch.size", "x"), ("compression.type", "rar")):
        with pytest.raises(ConfigInvalid, match=f"Invalid value {value} for configuration {key}"):
            client_tuning(worker, {f"producer.override.{key}": value}, "source")


def test_keys_that_mirrormaker_gives_its_workers_are_taken():
    policy = {"replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"}
    assert worker_config(policy).originals["replication.policy.class"] == policy["replication.policy.class"]
    with pytest.raises(ConfigInvalid, match=r"no key 'replication\.policies'"):
        worker_config({"replication.policies": "x"})
