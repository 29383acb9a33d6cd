"""`mm2.properties`: flows, overrides, defaults, and sentences for mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.mirror.config import mirror_config, read_config
from ottla.mirror.failures import MirrorError

BASE = {
    "clusters": "A, B",
    "A.bootstrap.servers": "a:9092",
    "B.bootstrap.servers": "b:9092, b2:9093",
    "A->B.enabled": "true",
}


def test_a_flow_has_its_own_keys_over_those_for_all():
    config = mirror_config(BASE | {"topics": "x.*", "A->B.topics": "orders, payments.*", "tasks.max": "3"})
    flow = config.flow("A", "B")
    assert flow.words("topics") == ["orders", "payments.*"]
    assert flow.number("tasks.max") == 3
    assert flow.number("replication.factor") == 2
    assert flow.flag("sync.group.offsets.enabled")
    assert flow.target_settings.bootstrap == (("b", 9092), ("b2", 9093))
    assert flow.offsets_topic == "mm2-offsets.A.internal"
    assert flow.offset_syncs_topic == "mm2-offset-syncs.B.internal"


def test_settings_of_spark_are_passed_on_without_their_prefix():
    given = {
        "ottla.spark.conf.spark.executor.memory": "600m",
        "ottla.spark.conf.spark.cores.max": "4",
        "A->B.ottla.spark.conf.spark.cores.max": "2",
    }
    config = mirror_config(BASE | given)
    assert config.flow("A", "B").spark_settings == {"spark.executor.memory": "600m", "spark.cores.max": "2"}
    assert not config.warnings


def test_the_other_direction_only_sends_heartbeats():
    config = mirror_config(BASE)
    assert [(flow.name, flow.enabled) for flow in config.flows] == [("A->B", True), ("B->A", False)]
    quiet = mirror_config(BASE | {"emit.heartbeats.enabled": "false"})
    assert [flow.name for flow in quiet.flows] == ["A->B"]
    assert [flow.name for flow in config.flows_into(["B"])] == ["A->B"]


def test_enabled_belongs_to_a_flow():
    with pytest.raises(MirrorError, match="enables no flow"):
        mirror_config({key: value for key, value in BASE.items() if "->" not in key} | {"enabled": "true"})


def test_security_of_a_cluster_reaches_its_connections():
    given = BASE | {
        "A.security.protocol": "SASL_PLAINTEXT",
        "A.sasl.mechanism": "SCRAM-SHA-256",
        "A.sasl.jaas.config": 'org.apache.kafka.common.security.scram.ScramLoginModule required username="m"'
        ' password="hidden";',
    }
    flow = mirror_config(given).flow("A", "B")
    assert flow.source_settings.security.user == "m"
    assert flow.target_settings.security.protocol == "PLAINTEXT"
    assert "hidden" not in repr(flow.source_settings)


def test_values_come_from_providers(tmp_path: Path):
    (tmp_path / "where").write_text("servers=secret:1234\n")
    given = BASE | {
        "config.providers": "file",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        "A.bootstrap.servers": f"${{file:{tmp_path}/where:servers}}",
    }
    assert mirror_config(given).flow("A", "B").source_settings.bootstrap == (("secret", 1234),)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"clusters": ""}, "names no clusters"),
        ({"clusters": "A, B C"}, "the cluster name 'B C'"),
        ({"A.bootstrap.servers": ""}, "no A.bootstrap.servers"),
        ({"A->B.tasks.max": "many"}, r"A->B.tasks.max=many must be a whole number"),
        ({"tasks.max": "0"}, "must not be 0"),
        ({"sync.topic.acls.enabled": "yes"}, "must be true or false"),
        ({"offsets": "same"}, "must be translated or identical"),
        ({"replication.policy.class": "com.acme.Policy"}, "is Java's"),
        ({"topic.filter.class": "com.acme.Filter"}, "is a Java class"),
        ({"transforms": "route"}, "without transforms"),
        (
            {"B->A.enabled": "true", "replication.policy.class": "IdentityReplicationPolicy"},
            "both keep the names of topics",
        ),
    ],
)
def test_a_mistake_is_a_sentence(change, sentence):
    with pytest.raises(MirrorError, match=sentence):
        mirror_config(BASE | change)


def test_unknown_keys_are_named_with_the_nearest():
    (warning,) = mirror_config(BASE | {"topic.excludes": "x"}).warnings
    assert warning == "topic.excludes is not a key of a mirror; did you mean topics.exclude?"
    assert mirror_config(BASE | {"A.consumer.max.poll.records": "1"}).warnings == ()
    assert mirror_config(BASE | {"listeners": "x"}).warnings == ("listeners has no effect here",)


def test_a_file_that_is_not_there(tmp_path: Path):
    with pytest.raises(MirrorError, match="cannot be read: No such file"):
        read_config(tmp_path / "mm2.properties")
