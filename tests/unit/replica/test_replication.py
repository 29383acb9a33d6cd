"""Leaders and followers: the replication chapter of a Kafka course, on real logs."""

from __future__ import annotations

import pytest

from ottla.errors import ErrorCode
from ottla.wire.messages import FetchRequest
from unit.replica.cluster_scene import ClusterScene

MIN_TWO = {"min.insync.replicas": "2"}


@pytest.fixture
def cluster() -> ClusterScene:
    return ClusterScene()


def isr(cluster: ClusterScene) -> set[int]:
    return set(cluster.registration().isr)


def test_followers_copy_their_leader(cluster):
    cluster.create_topic()
    for n in range(10):
        cluster.produce(b"%d" % n, acks=1)
    cluster.run(0.1)
    expected = [b"%d" % n for n in range(10)]
    assert [node.values() for node in cluster.node.values()] == [expected] * 3
    assert {node.partition().log.high_watermark for node in cluster.node.values()} == {10}


def test_acks_all_is_answered_when_every_replica_in_sync_has_the_record(cluster):
    cluster.create_topic()
    produced = cluster.produce(b"a")
    assert produced.code is None
    cluster.run(0.02)
    assert produced.code == ErrorCode.NONE
    assert [node.values() for node in cluster.node.values()] == [[b"a"]] * 3


def test_a_record_is_readable_only_once_the_replicas_in_sync_have_it(cluster):
    cluster.create_topic()
    cluster.network.cut(1, 2)
    cluster.produce(b"a", acks=1)
    cluster.run(1)
    assert not cluster.consume(1).records
    assert cluster.consume(1).high_watermark == 0
    cluster.network.heal()
    cluster.run(40)
    assert cluster.consume(1).records
    assert cluster.consume(1).high_watermark == 1


def test_a_follower_that_stops_fetching_leaves_the_set_and_returns(cluster):
    cluster.create_topic()
    cluster.network.isolate(3, [1, 2])
    produced = cluster.produce(b"a", timeout_ms=120_000)
    cluster.run(29)
    assert isr(cluster) == {1, 2, 3}
    assert produced.code is None
    cluster.run(20)
    assert isr(cluster) == {1, 2}
    assert produced.code == ErrorCode.NONE
    cluster.network.heal()
    cluster.run(40)
    assert isr(cluster) == {1, 2, 3}
    assert cluster.node[3].values() == [b"a"]


def test_an_idle_follower_stays_in_the_set_without_a_word_for_the_partition(cluster):
    cluster.create_topic()
    cluster.run(300)
    assert isr(cluster) == {1, 2, 3}
    produced = cluster.produce(b"a")
    cluster.run(0.02)
    assert produced.code == ErrorCode.NONE


def test_a_follower_that_fell_silent_long_before_the_append_leaves_soon_after_it(cluster):
    cluster.create_topic()
    cluster.network.isolate(3, [1, 2])
    cluster.run(100)
    assert isr(cluster) == {1, 2, 3}, "it has all that there is"
    cluster.produce(b"a", acks=1)
    cluster.run(16)
    assert isr(cluster) == {1, 2}


def test_a_producer_is_refused_with_too_few_replicas_in_sync(cluster):
    cluster.create_topic(configs=MIN_TWO)
    cluster.kill(2)
    cluster.kill(3)
    cluster.run(0.1)
    assert isr(cluster) == {1}
    refused = cluster.produce(b"a")
    cluster.run(0.1)
    assert refused.code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert cluster.produce(b"a", acks=1).code == ErrorCode.NONE
    cluster.restart(2)
    cluster.run(1)
    assert isr(cluster) == {1, 2}
    produced = cluster.produce(b"b")
    cluster.run(0.1)
    assert produced.code == ErrorCode.NONE
    assert cluster.node[2].values() == [b"a", b"b"]


def test_a_set_that_shrinks_too_far_after_the_append_is_told(cluster):
    cluster.create_topic(configs=MIN_TWO)
    cluster.node[2].kill()
    cluster.node[3].kill()
    produced = cluster.produce(b"a")
    assert produced.code is None
    cluster.fence(2)
    cluster.fence(3)
    cluster.run(0.1)
    assert produced.code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert cluster.node[1].partition().log.high_watermark == 0, "nobody else has it"


def test_a_killed_leader_is_followed_by_one_that_has_everything(cluster):
    cluster.create_topic()
    for n in range(5):
        cluster.produce(b"%d" % n)
    cluster.run(0.1)
    cluster.kill(1)
    cluster.run(0.5)
    assert cluster.leader() is not cluster.node[1]
    produced = cluster.produce(b"5")
    cluster.run(0.1)
    assert produced.code == ErrorCode.NONE
    cluster.restart(1)
    cluster.run(1)
    assert isr(cluster) == {1, 2, 3}
    assert [node.values() for node in cluster.node.values()] == [[b"%d" % n for n in range(6)]] * 3


def test_a_leader_that_was_cut_off_never_acknowledges_what_the_others_do_not_have(cluster):
    cluster.create_topic()
    old = cluster.node[1]
    old.deaf = True
    cluster.network.isolate(1, [2, 3])
    lost = cluster.produce(b"lost", timeout_ms=600_000)
    lone = cluster.produce(b"alone", acks=1)
    cluster.run(0.1)
    assert lone.code == ErrorCode.NONE, "acks=1 promises no more"
    cluster.fence(1)
    cluster.run(100)
    assert lost.code is None, "its own set cannot shrink without the controller"
    kept = cluster.produce(b"kept")
    cluster.run(0.1)
    assert kept.code == ErrorCode.NONE
    old.deaf = False
    cluster.network.heal()
    old.publish(cluster.image)
    cluster.run(0.1)
    assert lost.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    cluster.unfence(1)
    cluster.run(40)
    assert isr(cluster) == {1, 2, 3}
    assert [node.values() for node in cluster.node.values()] == [[b"kept"]] * 3


def test_a_consumer_that_poses_as_a_replica_moves_nothing(cluster):
    cluster.create_topic()
    cluster.network.isolate(1, [2, 3])
    produced = cluster.produce(b"a", timeout_ms=10_000)
    for replica in (2, 3):
        for epoch in (-1, 0):
            state = FetchRequest.ReplicaState(replica_id=replica, replica_epoch=epoch)
            cluster.consume(1, 1, replica_state=state)
    cluster.run(1)
    assert produced.code is None
    assert cluster.node[1].partition().log.high_watermark == 0


def test_a_follower_that_was_away_for_long_begins_where_its_leader_begins(cluster):
    cluster.create_topic()
    cluster.produce(b"old")
    cluster.run(0.1)
    cluster.kill(3)
    cluster.run(0.1)
    for n in range(5):
        cluster.produce(b"%d" % n)
        cluster.run(0.1)
    for node in (1, 2):
        cluster.node[node].partition().log.roll()
    assert cluster.node[1].partition().delete_records(4) == 4
    cluster.run(1)
    cluster.node[1].partition().log.delete_old_segments(cluster.clock.now_ms())
    assert cluster.node[2].partition().log.log_start_offset == 4
    cluster.restart(3)
    cluster.run(5)
    assert cluster.node[3].values() == cluster.node[1].values() == [b"3", b"4"]
    assert cluster.node[3].partition().log.log_start_offset == 4
    assert isr(cluster) == {1, 2, 3}


def test_partitions_have_their_leaders_on_all_brokers(cluster):
    orders = [(1, 2, 3), (2, 3, 1), (3, 1, 2)]
    cluster.create_topic(assignments=[orders[n % 3] for n in range(60)])
    produced = [cluster.produce(b"%d" % n, index=n) for n in range(60)]
    cluster.run(0.1)
    assert {each.code for each in produced} == {ErrorCode.NONE}
    cluster.kill(2)
    cluster.run(1)
    produced = [cluster.produce(b"x%d" % n, index=n) for n in range(60)]
    cluster.run(0.1)
    assert {each.code for each in produced} == {ErrorCode.NONE}
    cluster.restart(2)
    cluster.run(1)
    for n in range(60):
        assert [node.values(index=n) for node in cluster.node.values()] == [[b"%d" % n, b"x%d" % n]] * 3
        assert set(cluster.registration(index=n).isr) == {1, 2, 3}
