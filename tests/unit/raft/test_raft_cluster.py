"""Three replicas elect, append and commit; leaders go, followers fall behind, observers follow."""

from __future__ import annotations

import random

import pytest

from ottla.errors import ApiException, ErrorCode
from unit.raft.raft_cluster import Cluster, Process
from unit.raft.raft_harness import LOG_DIR, feature


def test_three_voters_elect_one_and_commit_everywhere() -> None:
    cluster = Cluster().start()
    leader = cluster.elect()
    cluster.append("a", "b")
    cluster.run_until(cluster.settled)
    assert all(cluster.features(i) == {"a", "b"} for i in cluster.ids)
    assert {p.raft.leader_id for p in cluster.processes.values()} == {leader.node_id}
    assert len({p.raft.leader_epoch for p in cluster.processes.values()}) == 1
    for process in cluster.processes.values():
        endpoint = process.raft.leader_endpoint
        assert endpoint is not None and endpoint == (leader.node_id, "host", 9000 + leader.node_id)


def test_a_commit_takes_two_trips_and_an_fsync_not_a_timeout() -> None:
    cluster = Cluster().start()
    cluster.append("warm")
    cluster.run_until(cluster.settled)
    begun = cluster.clock.monotonic()
    cluster.append("a")
    assert cluster.clock.monotonic() - begun < 0.01
    followers_know = cluster.run_until(cluster.settled)
    assert followers_know < 0.01, "the high watermark is sent as it moves"


def test_nothing_is_committed_without_a_majority() -> None:
    cluster = Cluster().start()
    leader = cluster.elect()
    cluster.append("a")
    for other in [i for i in cluster.ids if i != leader.node_id]:
        cluster.kill(other)
    done: list[int] = []
    leader.raft.append([feature("b")], done.append)
    cluster.run(1.0)
    assert done == [] and cluster.features(leader.node_id) == {"a"}


def test_a_leader_that_nobody_fetches_from_resigns() -> None:
    cluster = Cluster().start()
    leader = cluster.elect()
    cluster.append("a")
    cluster.network.isolate(leader.node_id, cluster.ids)
    cluster.run(3.2)
    assert not leader.raft.is_leader
    with pytest.raises(ApiException) as e:
        leader.raft.append([feature("b")])
    assert e.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader.raft.leader_id is None and leader.raft.leader_endpoint is None
    assert leader.listener.events[-1][:2] == ("leader", None)


def _followers(cluster: Cluster) -> list[Process]:
    leader = cluster.elect()
    return [p for p in cluster.processes.values() if p.node_id != leader.node_id]


def test_a_deposed_leaders_uncommitted_records_go_and_their_callers_hear_nothing() -> None:
    cluster = Cluster().start()
    old = cluster.elect()
    cluster.append("a")
    cluster.run_until(cluster.settled)
    cluster.network.isolate(old.node_id, cluster.ids)
    lost: list[int] = []
    old.raft.append([feature("lost")], lost.append)
    cluster.run_until(lambda: cluster.leader not in (None, old))
    cluster.append("kept")
    cluster.network.heal()
    cluster.run_until(cluster.settled)
    assert lost == []
    assert all(cluster.features(i) == {"a", "kept"} for i in cluster.ids)
    changes = [e for e in old.listener.events if e[0] == "leader"]
    assert changes[-1][1] == cluster.elect().node_id


def test_records_of_an_old_leader_that_a_majority_has_are_committed_by_the_next() -> None:
    cluster = Cluster().start()
    old = cluster.elect()
    cluster.append("a")
    cluster.run_until(cluster.settled)
    done: list[int] = []
    old.raft.append([feature("b")], done.append)
    followers = _followers(cluster)
    cluster.run_until(lambda: all(f.raft.log_end_offset == old.raft.log_end_offset for f in followers))
    cluster.kill(old.node_id)
    assert done == []
    cluster.elect()
    cluster.run_until(cluster.settled)
    assert all(cluster.features(f.node_id) == {"a", "b"} for f in followers)


# Failover


def test_a_killed_leader_is_replaced_at_once() -> None:
    for seed in range(20):
        cluster = Cluster(seed=seed).start()
        old = cluster.elect()
        cluster.append("a")
        cluster.run_until(cluster.settled)
        cluster.kill(old.node_id)
        begun = cluster.clock.monotonic()
        cluster.elect()
        assert cluster.clock.monotonic() - begun < 0.5, f"seed {seed}"
        cluster.append("b")


def test_a_leader_that_falls_silent_keeps_its_time() -> None:
    cluster = Cluster().start()
    old = cluster.elect()
    cluster.append("a")
    epoch = old.raft.leader_epoch
    old.paused = True
    cluster.run(1.5)
    assert all(f.raft.leader_epoch == epoch for f in cluster.processes.values())
    took = cluster.run_until(lambda: cluster.leader)
    assert 0 < took < 5


def test_a_leader_that_wakes_up_acknowledges_nothing_the_others_lack() -> None:
    cluster = Cluster().start()
    old = cluster.elect()
    cluster.append("a")
    done: list[int] = []
    old.paused = True
    cluster.run_until(lambda: cluster.leader)
    cluster.append("b")
    old.raft.append([feature("late")], done.append)
    old.resume()
    cluster.run(3)
    cluster.run_until(cluster.settled)
    assert done == []
    assert all(cluster.features(i) == {"a", "b"} for i in cluster.ids)


def test_an_orderly_stop_hands_the_lead_over_at_once() -> None:
    for seed in range(10):
        cluster = Cluster(seed=seed).start()
        old = cluster.elect()
        cluster.append("a")
        cluster.run_until(cluster.settled)
        begun = cluster.clock.monotonic()
        cluster.stop(old.node_id)
        cluster.elect()
        assert cluster.clock.monotonic() - begun < 0.2, f"seed {seed}"


def test_a_leader_killed_and_back_before_anyone_noticed_does_not_lead_its_old_epoch() -> None:
    cluster = Cluster().start()
    old = cluster.elect()
    epoch = old.raft.leader_epoch
    cluster.append("a")
    cluster.kill(old.node_id)
    cluster.start(old.node_id)
    took = cluster.run_until(lambda: cluster.leader)
    assert cluster.elect().raft.leader_epoch > epoch
    assert took < 1.0, "its own word that it leads no more is enough"


def test_a_leader_that_comes_back_finds_its_successor_at_once() -> None:
    cluster = Cluster().start()
    old = cluster.elect()
    cluster.append("a")
    cluster.kill(old.node_id)
    cluster.append("b")
    cluster.start(old.node_id)
    assert cluster.run_until(cluster.settled) < 0.2


def test_a_voter_that_missed_an_epoch_is_told_by_the_new_leader() -> None:
    cluster = Cluster().start(1, 2)
    leader = cluster.elect()
    cluster.append("a")
    cluster.start(3)
    cluster.run_until(cluster.settled)
    assert cluster.processes[3].raft.leader_id == leader.node_id
    assert cluster.features(3) == {"a"}


def test_two_of_three_go_and_come_back() -> None:
    cluster = Cluster().start()
    cluster.append("a")
    cluster.run_until(cluster.settled)
    for i in (1, 2):
        cluster.kill(i, random.Random(i))
    cluster.run(10)
    assert cluster.leader is None
    cluster.start(1, 2)
    cluster.append("b")
    cluster.run_until(cluster.settled)
    assert all(cluster.features(i) == {"a", "b"} for i in cluster.ids)


def test_all_lose_power_at_once_and_nothing_acknowledged_is_lost() -> None:
    rng = random.Random(7)
    cluster = Cluster().start()
    for _ in range(10):
        for _ in range(20):
            cluster.try_append()
            cluster.run(rng.random() * 0.01)
        for i in cluster.ids:
            cluster.kill(i, rng)
        cluster.start()
        cluster.elect()
        cluster.run_until(cluster.settled)
        assert all(set(cluster.acknowledged) <= cluster.features(i) for i in cluster.ids)
    assert len(cluster.acknowledged) > 50


# Followers and their logs


def test_a_vote_is_on_disk_before_it_is_given() -> None:
    cluster = Cluster().start(1, 2)
    cluster.elect()
    leader = cluster.elect()
    other = next(i for i in (1, 2) if i != leader.node_id)
    state = cluster.processes[other].fs.crash(random.Random(1)).read_bytes(f"{LOG_DIR}/quorum-state")
    assert f'"leaderEpoch":{leader.raft.leader_epoch}'.encode() in state


def test_a_follower_that_was_long_away_loads_a_snapshot() -> None:
    settings = {"metadata.max.retention.bytes": "1", "metadata.log.segment.ms": "10"}
    cluster = Cluster(settings=settings, snapshot_bytes=1).start()
    cluster.append("a")
    cluster.run_until(cluster.settled)
    away = _followers(cluster)[0].node_id
    cluster.kill(away)
    for name in "bcdefg":
        cluster.run(0.1)
        cluster.append(name)
    cluster.run(0.5)
    leader = cluster.elect()
    assert leader.raft.log_start_offset > 3
    cluster.start(away)
    cluster.run_until(cluster.settled)
    assert cluster.features(away) == set("abcdefg")
    assert cluster.processes[away].raft.log_start_offset > 3
    cluster.append("h")
    cluster.run_until(cluster.settled)
    cluster.kill(away, random.Random(3))
    cluster.start(away)
    cluster.run_until(cluster.settled)
    assert cluster.features(away) == set("abcdefgh")


def test_a_follower_in_the_middle_of_its_work_goes_on_from_a_snapshot() -> None:
    settings = {"metadata.max.retention.bytes": "1", "metadata.log.segment.ms": "10"}
    cluster = Cluster(settings=settings, snapshot_bytes=1).start()
    cluster.append("a")
    cluster.run_until(cluster.settled)
    away = _followers(cluster)[0]
    cluster.network.isolate(away.node_id, cluster.ids)
    for name in "bcdefg":
        cluster.run(0.5)
        cluster.append(name)
    cluster.run(0.5)
    cluster.network.heal()
    cluster.run_until(cluster.settled)
    assert cluster.features(away.node_id) == set("abcdefg")
    assert "snapshot" in [e[0] for e in away.listener.events]


def test_a_large_snapshot_comes_in_pieces() -> None:
    settings = {
        "metadata.max.retention.bytes": "1",
        "metadata.log.segment.ms": "10",
        "controller.quorum.fetch.snapshot.max.bytes": "100",
    }
    cluster = Cluster(settings=settings, snapshot_bytes=1).start(1, 2)
    for number in range(20):
        cluster.run(0.05)
        cluster.append(f"feature{number}")
    cluster.run(0.5)
    cluster.start(3)
    cluster.run_until(cluster.settled)
    assert len(cluster.features(3)) == 20


# Observers


def test_an_observer_follows_without_a_vote() -> None:
    cluster = Cluster().start()
    cluster.append("a")
    broker = cluster.observe(101)
    cluster.run_until(cluster.settled)
    assert cluster.features(101) == {"a"}
    assert not broker.raft.voters.is_voter(broker.raft._local.key)
    leader = cluster.elect()
    info = leader.raft.describe_quorum()
    assert info is not None
    assert [state.key.id for state in info.observers] == [101]
    cluster.append("b")
    cluster.run_until(cluster.settled)
    assert cluster.features(101) == {"a", "b"}


def test_an_observer_finds_the_next_leader() -> None:
    cluster = Cluster().start()
    broker = cluster.observe(101)
    old = cluster.elect()
    cluster.append("a")
    cluster.kill(old.node_id)
    new = cluster.elect()
    took = cluster.run_until(lambda: broker.raft.leader_id == new.node_id)
    assert took < 0.5
    cluster.append("b")
    cluster.run_until(cluster.settled)
    assert cluster.features(101) == {"a", "b"}


def test_an_observer_never_stands_for_election() -> None:
    cluster = Cluster().start()
    broker = cluster.observe(101)
    cluster.append("a")
    cluster.run_until(cluster.settled)
    epoch = broker.raft.leader_epoch
    cluster.network.isolate(101, [*cluster.ids, 101])
    cluster.run(30)
    assert broker.raft.leader_epoch == epoch and not broker.raft.is_leader
    cluster.network.heal()
    cluster.append("b")
    cluster.run_until(cluster.settled)


def test_what_the_leader_tells_of_the_others() -> None:
    cluster = Cluster().start()
    cluster.append("a")
    cluster.run_until(cluster.settled)
    leader = cluster.elect()
    away = _followers(cluster)[0].node_id
    cluster.kill(away)
    cluster.append("b")
    cluster.run(1.5)
    info = leader.raft.describe_quorum()
    assert info is not None
    states = {state.key.id: state for state in info.voters}
    assert set(states) == {1, 2, 3}
    end = leader.raft.log_end_offset
    assert {i: end - s.log_end_offset for i, s in states.items() if s.log_end_offset != end} == {away: 1}
    now_ms = cluster.clock.now_ms()
    assert now_ms - states[away].last_fetch_timestamp > 1000
    assert now_ms - states[leader.node_id].last_fetch_timestamp < 10
    assert all(f.raft.describe_quorum() is None for f in _followers(cluster))


def test_five_voters_survive_two_deaths() -> None:
    cluster = Cluster(5).start()
    for name in "ab":
        cluster.append(name)
        cluster.kill(cluster.elect().node_id)
    cluster.append("c")
    cluster.run_until(cluster.settled)
    assert all(cluster.features(i) == {"a", "b", "c"} for i in cluster.processes)
