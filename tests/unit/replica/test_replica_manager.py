"""The replica manager follows the metadata: partitions come, change and go, their logs with them."""

from __future__ import annotations

import pytest

from ottla.config.broker import BrokerConfig
from ottla.errors import ApiException, ErrorCode
from ottla.log.types import TopicPartition


def code_of(call, *args) -> ErrorCode:
    with pytest.raises(ApiException) as caught:
        call(*args)
    return caught.value.code


def test_logs_of_a_new_topic_are_made_on_the_next_turn(scene):
    scene.create_topic("t", 3)
    assert not scene.log_manager.logs
    scene.turn()
    assert set(scene.log_manager.logs) == {TopicPartition("t", index) for index in range(3)}


def test_a_log_is_made_on_demand_when_a_record_comes_before(scene):
    scene.create_topic("t", 2)
    assert scene.append("t", 1, b"a") == 0
    assert set(scene.log_manager.logs) == {TopicPartition("t", 1)}
    scene.turn()
    assert len(scene.log_manager.logs) == 2
    assert scene.append("t", 1, b"b") == 1


def test_older_metadata_of_a_partition_does_not_replace_newer(scene):
    """The response to AlterPartition may come before the metadata record of the change before it."""
    scene.create_topic("t", replicas=(1, 2))
    scene.turn()
    scene.change_partition("t", 0, partition_epoch=7, isr=(1,))
    partition = scene.replicas.find(("t", 0))
    scene.change_partition("t", 0, partition_epoch=6, isr=(1, 2), leader=2, leader_epoch=0)
    assert (partition.partition_epoch, partition.is_leader, partition.in_sync.committed) == (7, True, (1,))
    scene.change_partition("t", 0, partition_epoch=8, isr=(2,), leader=2, leader_epoch=1)
    assert (partition.partition_epoch, partition.is_leader) == (8, False)


def test_lookups_by_name_and_id(scene):
    topic_id = scene.create_topic("t", 2)
    partition = scene.replicas.find(("t", 1))
    assert scene.replicas.find((topic_id, 1)) is partition
    assert len(list(scene.replicas.partitions())) == 2
    assert code_of(scene.replicas.find, ("t", 2)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code_of(scene.replicas.find, ("u", 0)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code_of(scene.replicas.find, (bytes(16), 0)) == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_partition_of_other_brokers_is_not_hosted_here(scene):
    scene.create_topic("t", replicas=(2, 3))
    assert code_of(scene.replicas.find, ("t", 0)) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_deleted_topic_is_gone_at_once_and_its_log_a_turn_later(scene):
    scene.create_topic("t")
    scene.turn()
    scene.delete_topic("t")
    assert code_of(scene.replicas.find, ("t", 0)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    scene.turn()
    assert not scene.log_manager.logs


def test_a_topic_deleted_before_its_log_was_made_leaves_none(scene):
    scene.create_topic("t")
    scene.delete_topic("t")
    scene.turn()
    assert not scene.log_manager.logs


def test_a_topic_made_anew_before_the_old_log_was_removed_begins_empty(scene):
    scene.create_topic("t")
    scene.append("t", 0, b"old")
    scene.delete_topic("t")
    new_id = scene.create_topic("t")
    assert scene.append("t", 0, b"new") == 0
    scene.turn()
    assert scene.log_manager.get(TopicPartition("t", 0)).topic_id == new_id
    assert scene.replicas.find(("t", 0)).log.log_end_offset == 1


def test_a_replica_that_is_assigned_elsewhere_leaves(scene):
    scene.create_topic("t", 2)
    scene.turn()
    scene.change_partition(
        "t", 0, replicas=(2,), isr=(2,), directories=(bytes(16),), leader=2, leader_epoch=1
    )
    scene.turn()
    assert set(scene.log_manager.logs) == {TopicPartition("t", 1)}
    assert code_of(scene.replicas.find, ("t", 0)) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_another_leader_takes_over(scene):
    scene.create_topic("t", replicas=(1, 2))
    partition = scene.replicas.find(("t", 0))
    scene.change_partition("t", 0, leader=2, leader_epoch=1)
    assert not partition.is_leader
    assert code_of(scene.append, "t", 0, b"a") == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_each_leader_epoch_is_noted_where_it_begins(scene):
    scene.create_topic("t")
    scene.append("t", 0, b"a", b"b")
    scene.change_partition("t", 0, leader_epoch=1)
    scene.append("t", 0, b"c")
    log = scene.replicas.find(("t", 0)).log
    assert log.end_offset_for_epoch(0) == (0, 2)
    assert log.end_offset_for_epoch(1) == (1, 3)


def test_topic_configs_take_effect_live(scene):
    scene.create_topic("t", configs={"max.message.bytes": "100"})
    assert code_of(scene.append, "t", 0, b"x" * 200) == ErrorCode.MESSAGE_TOO_LARGE
    scene.set_topic_config("t", {"max.message.bytes": "1000"})
    scene.turn()
    assert scene.append("t", 0, b"x" * 200) == 0


def test_broker_defaults_reach_topics_that_do_not_set_their_own(scene):
    scene.create_topic("plain")
    scene.create_topic("own", configs={"max.message.bytes": "5000"})
    scene.turn()
    scene.replicas.update_broker_config(
        BrokerConfig({**scene.broker.config.static, "message.max.bytes": "100"})
    )
    scene.turn()
    assert code_of(scene.append, "plain", 0, b"x" * 200) == ErrorCode.MESSAGE_TOO_LARGE
    assert scene.append("own", 0, b"x" * 200) == 0


def test_too_few_replicas_in_sync_refuse_acks_all_only(scene):
    scene.create_topic("t", replicas=(1, 2, 3), configs={"min.insync.replicas": "2"})
    scene.change_partition("t", 0, isr=(1,))
    partition = scene.replicas.find(("t", 0))
    now_ms = scene.clock.now_ms()
    assert code_of(partition.append, scene.batch(b"a"), -1, now_ms, 13) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert partition.append(scene.batch(b"a"), 1, now_ms, 13).first_offset == 0


def test_min_insync_replicas_asks_for_no_more_than_there_are(scene):
    scene.create_topic("t", configs={"min.insync.replicas": "3"})
    partition = scene.replicas.find(("t", 0))
    assert partition.append(scene.batch(b"a"), -1, scene.clock.now_ms(), 13).first_offset == 0


def test_a_shrunk_in_sync_set_moves_the_high_watermark(scene):
    scene.create_topic("t", replicas=(1, 2))
    scene.append("t", 0, b"a")
    log = scene.replicas.find(("t", 0)).log
    assert log.high_watermark == 0
    scene.change_partition("t", 0, isr=(1,))
    assert log.high_watermark == 1
