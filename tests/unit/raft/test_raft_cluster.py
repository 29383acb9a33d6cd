"""Three replicas elect, append and commit; leaders go, followers fall behind, observers follow."""

from __future__ import annotations

from raft_cluster import Cluster


def test_three_voters_elect_one_and_commit_everywhere() -> None:
    cluster = Cluster().start()
    leader = cluster.elect()
    cluster.append("a", "b")
    cluster.run_until(cluster.settled)
    assert all(cluster.features(i) == {"a", "b"} for i in cluster.ids)
    assert {p.raft.leader_id for p in cluster.processes.values()} == {leader.node_id}
    assert len({p.raft.leader_epoch for p in cluster.processes.values()}) == 1
