"""A follower whose disk cannot keep up asks for no more until its gate opens, and then has everything."""

from __future__ import annotations

from ottla.log.write_gate import LONGEST_WAIT_S
from unit.replica.cluster_scene import ClusterScene


def test_a_follower_asks_for_more_only_when_it_can_write() -> None:
    cluster = ClusterScene()
    cluster.create_topic()
    cluster.run(0.1)
    follower = cluster.node[3]
    follower.gate.hold()
    for n in range(5):
        cluster.produce(b"%d" % n, acks=1)
        cluster.run(0.05)
    assert cluster.node[2].values() == [b"0", b"1", b"2", b"3", b"4"]
    # What it had asked for before may still come.
    assert len(follower.values()) <= 2
    follower.gate.release()
    cluster.run(0.1)
    assert follower.values() == cluster.node[2].values()


def test_a_gate_that_stays_closed_does_not_part_a_follower_from_its_leader() -> None:
    cluster = ClusterScene()
    cluster.create_topic()
    cluster.node[3].gate.hold()
    for n in range(60):
        cluster.produce(b"%d" % n, acks=1)
        cluster.run(LONGEST_WAIT_S)
    assert set(cluster.registration().isr) == {1, 2, 3}
    cluster.run(2 * LONGEST_WAIT_S)
    assert cluster.node[3].values() == cluster.node[2].values()
