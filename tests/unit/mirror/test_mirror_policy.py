"""Names at the target, and which names are mirrored. `tests/oracle` compares them with Kafka's classes."""

from __future__ import annotations

import pytest

from ottla.mirror.failures import MirrorError
from ottla.mirror.filters import GROUPS, GROUPS_EXCLUDE, TOPICS, TOPICS_EXCLUDE, name_filter
from ottla.mirror.policy import DefaultReplicationPolicy, IdentityReplicationPolicy, is_cycle


def test_the_default_policy_puts_the_cluster_before_the_name():
    policy = DefaultReplicationPolicy()
    assert policy.remote_topic("A", "orders") == "A.orders"
    assert policy.topic_source("A.orders") == "A"
    assert policy.upstream_topic("C.A.orders") == "A.orders"
    assert policy.original_topic("C.A.orders") == "orders"
    assert policy.topic_source("orders") is None
    assert policy.is_heartbeats("C.A.heartbeats")
    assert policy.offset_syncs_topic("B") == "mm2-offset-syncs.B.internal"
    assert policy.checkpoints_topic("A") == "A.checkpoints.internal"


def test_a_topic_that_came_from_the_target_is_not_sent_back():
    policy = DefaultReplicationPolicy()
    assert is_cycle(policy, "B.orders", "B")
    assert is_cycle(policy, "A.B.orders", "B")
    assert not is_cycle(policy, "A.orders", "B")
    assert not is_cycle(IdentityReplicationPolicy(source="A"), "B.orders", "B")


def test_the_identity_policy_keeps_names_but_for_heartbeats():
    policy = IdentityReplicationPolicy(source="A")
    assert policy.remote_topic("A", "orders") == "orders"
    assert policy.remote_topic("A", "heartbeats") == "A.heartbeats"
    assert policy.topic_source("orders") == "A"
    assert policy.topic_source("C.heartbeats") == "C"


@pytest.mark.parametrize(
    "topic",
    ["__consumer_offsets", "mm2-offsets.A.internal", "A.checkpoints.internal", ".hidden"],
)
def test_internal_topics_are_never_mirrored(topic):
    assert DefaultReplicationPolicy().is_internal(topic)


def test_filters_match_whole_names():
    topics = name_filter("topics", TOPICS, TOPICS_EXCLUDE)
    assert "orders" in topics
    assert "orders.replica" not in topics
    assert "__state" not in topics
    assert "team" not in name_filter("topics", ["te", "am"], [])
    assert "anything" not in name_filter("topics", [], [])
    groups = name_filter("groups", GROUPS, GROUPS_EXCLUDE)
    assert "console-consumer-123" not in groups
    assert "billing" in groups


def test_a_wrong_pattern_is_named():
    with pytest.raises(MirrorError, match=r"topics=\(a is not a regular expression"):
        name_filter("topics", ["(a"], [])
