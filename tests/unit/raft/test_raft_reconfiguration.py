"""Voters of a dynamic quorum come, go and move, while records are committed."""

from __future__ import annotations

import random
from typing import Any

import pytest

from ottla.errors import ApiException, ErrorCode
from ottla.raft.types import ReplicaKey
from ottla.wire import messages as m
from unit.raft.raft_cluster import CLUSTER_ID, Cluster, voter


def ask(cluster: Cluster, handle: Any, request: Any) -> Any:
    answers: list[Any] = []
    handle(request, answers.append)
    cluster.run_until(lambda: answers)
    return answers[0]


def add(cluster: Cluster, node_id: int, *, life: int = 0, **fields: Any) -> Any:
    node = voter(node_id, life=life)
    cls = m.AddRaftVoterRequest
    request = cls(
        cluster_id=CLUSTER_ID,
        timeout_ms=1000,
        voter_id=node_id,
        voter_directory_id=node.key.directory_id,
        listeners=[cls.Listener(name=n, host=e.host, port=e.port) for n, e in node.listeners.items()],
    )
    for name, value in fields.items():
        setattr(request, name, value)
    return ask(cluster, cluster.elect().raft.voter_changes.add, request)


def remove(cluster: Cluster, key: ReplicaKey, **fields: Any) -> Any:
    request = m.RemoveRaftVoterRequest(
        cluster_id=CLUSTER_ID, voter_id=key.id, voter_directory_id=key.directory_id
    )
    for name, value in fields.items():
        setattr(request, name, value)
    return ask(cluster, cluster.elect().raft.voter_changes.remove, request)


def controller(cluster: Cluster, node_id: int) -> None:
    """A new controller of a dynamic quorum, as an observer at first."""
    cluster.new_disk(node_id)
    cluster.locals[node_id] = voter(node_id)
    cluster.start(node_id)
    cluster.run_until(cluster.settled)
    cluster.run(0.1)


def voters(cluster: Cluster) -> set[int]:
    return set(cluster.elect().raft.voters.ids)


def test_a_quorum_grows_from_one_to_three_and_survives_its_first_leader() -> None:
    cluster = Cluster(1, dynamic=True).start()
    cluster.append("a")
    cluster.run(60)
    for node_id in (2, 3):
        controller(cluster, node_id)
        assert add(cluster, node_id).error_code == ErrorCode.NONE
    assert voters(cluster) == {1, 2, 3}
    cluster.run(60)
    assert cluster.elect().raft.leader_epoch == 1, "a leader does not lose its place to those that it lets in"
    cluster.append("b")
    cluster.run_until(cluster.settled)
    assert all(set(p.raft.voters.ids) == {1, 2, 3} for p in cluster.processes.values())
    cluster.kill(1)
    cluster.append("c")
    cluster.run_until(cluster.settled)
    assert all(cluster.features(i) == {"a", "b", "c"} for i in (2, 3))


def upgrade(cluster: Cluster, level: int = 1) -> ErrorCode:
    """Raise kraft.version as the controller does: check, then write."""
    leader = cluster.elect().raft
    outcomes: list[ErrorCode] = []
    leader.check_kraft_version(level)
    leader.upgrade_kraft_version(
        level, lambda _: outcomes.append(ErrorCode.NONE), lambda error: outcomes.append(error.code)
    )
    cluster.run_until(lambda: outcomes)
    return outcomes[0]


def test_a_quorum_with_configured_voters_becomes_one_that_can_change() -> None:
    cluster = Cluster(3).start()
    cluster.append("a")
    cluster.run(20)
    assert upgrade(cluster) is ErrorCode.NONE
    cluster.run_until(cluster.settled)
    for process in cluster.processes.values():
        assert process.raft.kraft_version == 1
        assert [node.key for node in process.raft.voters.nodes.values()] == [
            voter(i).key for i in cluster.ids
        ]
    assert upgrade(cluster) is ErrorCode.NONE, "once is enough"
    with pytest.raises(ApiException, match="downgrade"):
        upgrade(cluster, 0)
    for node_id in cluster.ids:
        cluster.kill(node_id, random.Random(node_id))
    cluster.start()
    other = next(i for i in cluster.ids if i != cluster.elect().node_id)
    assert remove(cluster, voter(other).key).error_code == ErrorCode.NONE
    cluster.append("b")
    cluster.run_until(cluster.settled)
    assert voters(cluster) == set(cluster.ids) - {other}


def test_kraft_version_waits_for_what_every_voter_reports() -> None:
    cluster = Cluster(3).start()
    cluster.append("a")
    leader = cluster.elect()
    silent = next(i for i in cluster.ids if i != leader.node_id)
    cluster.kill(silent)
    cluster.run(20)
    with pytest.raises(ApiException, match=f"heard from {silent}$"):
        upgrade(cluster)
    cluster.start(silent)
    cluster.run(20)
    assert upgrade(cluster) is ErrorCode.NONE


def test_a_raised_kraft_version_that_is_not_committed_is_undone_with_the_log() -> None:
    cluster = Cluster(3).start()
    cluster.append("a")
    cluster.run(20)
    old = cluster.elect()
    cluster.network.isolate(old.node_id, cluster.ids)
    failures: list[ApiException] = []
    old.raft.upgrade_kraft_version(1, failures.append, failures.append)  # type: ignore[arg-type]
    cluster.run_until(lambda: cluster.leader is not None and cluster.leader is not old)
    cluster.append("b")
    cluster.network.heal()
    cluster.run_until(cluster.settled)
    assert [failure.code for failure in failures] == [ErrorCode.REQUEST_TIMED_OUT]
    assert {process.raft.kraft_version for process in cluster.processes.values()} == {0}


def test_voters_stand_in_the_log_after_a_loss_of_power() -> None:
    cluster = Cluster(1, dynamic=True).start()
    controller(cluster, 2)
    add(cluster, 2)
    cluster.run_until(cluster.settled)
    for node_id in (1, 2):
        cluster.kill(node_id, random.Random(node_id))
    cluster.start(1, 2)
    cluster.append("a")
    assert voters(cluster) == {1, 2}


def test_a_follower_is_removed_and_only_observes_from_then_on() -> None:
    cluster = Cluster(3, dynamic=True).start()
    leader = cluster.elect()
    other = next(i for i in cluster.ids if i != leader.node_id)
    assert remove(cluster, voter(other).key).error_code == ErrorCode.NONE
    cluster.append("a")
    cluster.run_until(cluster.settled)
    assert voters(cluster) == set(cluster.ids) - {other}
    cluster.run(20)
    assert cluster.features(other) == {"a"}
    assert not cluster.processes[other].raft.is_leader


def test_a_leader_that_is_removed_leads_it_to_the_end_and_resigns() -> None:
    cluster = Cluster(3, dynamic=True).start()
    old = cluster.elect()
    assert remove(cluster, voter(old.node_id).key).error_code == ErrorCode.NONE
    cluster.run_until(lambda: cluster.leader is not None and cluster.leader is not old)
    assert voters(cluster) == set(cluster.ids) - {old.node_id}
    cluster.append("a")
    cluster.run_until(cluster.settled)
    assert cluster.features(old.node_id) == {"a"}


def test_a_change_that_is_not_committed_is_undone_with_the_log() -> None:
    cluster = Cluster(3, dynamic=True).start()
    old = cluster.elect()
    cluster.append("a")
    cluster.run_until(cluster.settled)
    cluster.network.isolate(old.node_id, cluster.ids)
    other = next(i for i in cluster.ids if i != old.node_id)
    answers: list[Any] = []
    old.raft.voter_changes.remove(
        m.RemoveRaftVoterRequest(
            cluster_id=CLUSTER_ID, voter_id=other, voter_directory_id=voter(other).key.directory_id
        ),
        answers.append,
    )
    assert other not in old.raft.voters.ids
    cluster.run_until(lambda: cluster.leader not in (None, old))
    cluster.network.heal()
    cluster.append("b")
    cluster.run_until(cluster.settled)
    assert set(old.raft.voters.ids) == set(cluster.ids)
    assert answers[0].error_code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"voter_id": -1}, ErrorCode.INVALID_REQUEST),
        ({"voter_directory_id": bytes(16)}, ErrorCode.INVALID_REQUEST),
        ({"listeners": []}, ErrorCode.INVALID_REQUEST),
        ({"voter_id": 1}, ErrorCode.DUPLICATE_VOTER),
        ({}, ErrorCode.REQUEST_TIMED_OUT),
    ],
)
def test_a_voter_that_cannot_be_added(fields: dict[str, Any], error: ErrorCode) -> None:
    cluster = Cluster(1, dynamic=True).start()
    answer = add(cluster, 9, **fields)
    assert answer.error_code == error
    assert answer.error_message


@pytest.mark.parametrize(
    ("key", "fields", "error"),
    [
        (voter(1).key, {"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        (ReplicaKey(1), {}, ErrorCode.INVALID_REQUEST),
        (voter(1, life=1).key, {}, ErrorCode.VOTER_NOT_FOUND),
        (voter(9).key, {}, ErrorCode.VOTER_NOT_FOUND),
        (voter(1).key, {}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_voter_that_cannot_be_removed(key: ReplicaKey, fields: dict[str, Any], error: ErrorCode) -> None:
    cluster = Cluster(1, dynamic=True).start()
    assert remove(cluster, key, **fields).error_code == error
    assert voters(cluster) == {1}


def test_a_static_quorum_is_not_changed() -> None:
    cluster = Cluster(1).start()
    assert add(cluster, 2).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert remove(cluster, voter(1).key).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_only_the_leader_changes_voters() -> None:
    cluster = Cluster(3, dynamic=True).start()
    leader = cluster.elect()
    follower = next(p for p in cluster.processes.values() if p is not leader)
    request = m.RemoveRaftVoterRequest(
        cluster_id=CLUSTER_ID, voter_id=1, voter_directory_id=voter(1).key.directory_id
    )
    answer = ask(cluster, follower.raft.voter_changes.remove, request)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_one_change_at_a_time() -> None:
    cluster = Cluster(3, dynamic=True).start()
    leader = cluster.elect()
    answers: list[Any] = []
    for node_id in [i for i in cluster.ids if i != leader.node_id]:
        request = m.RemoveRaftVoterRequest(
            cluster_id=CLUSTER_ID, voter_id=node_id, voter_directory_id=voter(node_id).key.directory_id
        )
        leader.raft.voter_changes.remove(request, answers.append)
    cluster.run_until(lambda: len(answers) == 2)
    assert [a.error_code for a in answers] == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE]


def test_a_controller_that_is_to_join_by_itself_does() -> None:
    cluster = Cluster(1, dynamic=True, settings={"controller.quorum.auto.join.enable": "true"}).start()
    controller(cluster, 2)
    cluster.run(10)
    assert voters(cluster) == {1, 2}


def test_a_voter_whose_disk_was_replaced_joins_again() -> None:
    cluster = Cluster(3, dynamic=True, settings={"controller.quorum.auto.join.enable": "true"}).start()
    leader = cluster.elect()
    cluster.append("a")
    lost = next(i for i in cluster.ids if i != leader.node_id)
    cluster.kill(lost)
    cluster.new_disk(lost)
    cluster.locals[lost] = voter(lost, life=1)
    cluster.start(lost)
    cluster.run(20)
    assert voters(cluster) == set(cluster.ids)
    assert cluster.elect().raft.voters.nodes[lost].key == voter(lost, life=1).key
    assert cluster.features(lost) == {"a"}


def test_a_voter_with_a_new_disk_does_not_vote_in_its_old_name() -> None:
    cluster = Cluster(3, dynamic=True).start()
    leader = cluster.elect()
    cluster.append("a")
    lost = next(i for i in cluster.ids if i != leader.node_id)
    other = next(i for i in cluster.ids if i not in (lost, leader.node_id))
    cluster.kill(lost)
    cluster.kill(other)
    cluster.new_disk(lost)
    cluster.locals[lost] = voter(lost, life=1)
    cluster.start(lost)
    done: list[int] = []
    leader.raft.append([m.FeatureLevelRecord(name="b", feature_level=1)], done.append)
    cluster.run(10)
    assert done == [], "only one of the three voters is there"


def test_a_voter_that_moved_tells_the_leader() -> None:
    cluster = Cluster(3, dynamic=True).start()
    leader = cluster.elect()
    moved = next(i for i in cluster.ids if i != leader.node_id)
    cluster.kill(moved)
    cluster.locals[moved] = voter(moved, port=9500)
    cluster.start(moved)
    cluster.run(10)
    place = cluster.elect().raft.voters.nodes[moved].listeners["CONTROLLER"]
    assert place == ("host", 9500)
    cluster.run_until(cluster.settled)


def test_an_update_of_a_voter_that_is_none() -> None:
    cluster = Cluster(3, dynamic=True).start()
    leader = cluster.elect()
    cls = m.UpdateRaftVoterRequest
    node = voter(9)
    request = cls(
        cluster_id=CLUSTER_ID,
        current_leader_epoch=leader.raft.leader_epoch,
        voter_id=9,
        voter_directory_id=node.key.directory_id,
        listeners=[cls.Listener(name="CONTROLLER", host="h", port=1)],
        kraft_version_feature=cls.KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
    )
    answer = ask(cluster, leader.raft.voter_changes.update, request)
    assert answer.error_code == ErrorCode.VOTER_NOT_FOUND
    assert (answer.current_leader.leader_id, answer.current_leader.port) == (
        leader.node_id,
        9000 + leader.node_id,
    )
    request.current_leader_epoch += 1
    assert (
        ask(cluster, leader.raft.voter_changes.update, request).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    )


def test_a_leader_that_has_its_own_removal_in_its_log_alone_is_not_lost_with_it() -> None:
    cluster = Cluster(2, dynamic=True).start()
    cluster.append("a")
    cluster.run_until(cluster.settled)
    old = cluster.elect()
    other = next(i for i in cluster.ids if i != old.node_id)
    cluster.kill(other)
    key = voter(old.node_id).key
    request = m.RemoveRaftVoterRequest(
        cluster_id=CLUSTER_ID, voter_id=key.id, voter_directory_id=key.directory_id
    )
    old.raft.voter_changes.remove(request, lambda answer: None)
    cluster.run(0.1)
    cluster.kill(old.node_id)
    cluster.start()
    cluster.run_until(lambda: cluster.leader is not None and cluster.leader.node_id == other)
    cluster.append("b")
    cluster.run_until(cluster.settled)
    assert voters(cluster) == {other}
