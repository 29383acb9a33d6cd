"""Each request of the quorum with its answers and errors, as another node would see them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.api import raft
from ottla.api.base import PARKED
from ottla.api.registry import supported
from ottla.errors import ErrorCode
from ottla.raft.messages import BeginQuorumEpoch, EndQuorumEpoch, VoteRequest
from ottla.raft.requests import (
    begin_request,
    end_request,
    fetch_request,
    fetch_snapshot_request,
    vote_request,
)
from ottla.raft.types import OffsetAndEpoch, ReplicaKey
from ottla.wire import messages as m
from ottla.wire.apis import ApiKey
from ottla.wire.codec import encode
from unit.raft.raft_cluster import CLUSTER_ID, Cluster, Process, voter
from unit.raft.raft_harness import feature

ASKER = voter(9)


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    cluster = Cluster().start()
    cluster.append("a")
    cluster.run_until(cluster.settled)
    return cluster


def leader_of(cluster: Cluster) -> Process:
    return cluster.elect()


def follower_of(cluster: Cluster) -> Process:
    leader = cluster.elect()
    return next(p for p in cluster.processes.values() if p is not leader)


def vote(to: Process, *, epoch: int, pre_vote: bool = False, log: OffsetAndEpoch | None = None) -> Any:
    last = OffsetAndEpoch(99, epoch - 1) if log is None else log
    key = voter(to.node_id).key
    return vote_request(CLUSTER_ID, VoteRequest(ASKER.key, key, epoch, last, pre_vote))


def only(response: Any) -> Any:
    return response.topics[0].partitions[0]


# Vote


def test_a_vote_in_an_old_epoch_is_fenced_and_told_the_leader(cluster: Cluster) -> None:
    leader, follower = leader_of(cluster), follower_of(cluster)
    answer = follower.raft.requests.handle_vote(
        vote(follower, epoch=leader.raft.leader_epoch - 1, pre_vote=True)
    )
    partition = only(answer)
    assert partition.error_code in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INVALID_REQUEST)
    answer = follower.raft.requests.handle_vote(
        vote(follower, epoch=leader.raft.leader_epoch - 1, log=OffsetAndEpoch(0, 0), pre_vote=True)
    )
    partition = only(answer)
    assert partition.error_code == ErrorCode.FENCED_LEADER_EPOCH and not partition.vote_granted
    assert (partition.leader_id, partition.leader_epoch) == (leader.node_id, leader.raft.leader_epoch)
    (endpoint,) = answer.node_endpoints
    assert (endpoint.node_id, endpoint.host, endpoint.port) == (leader.node_id, "host", 9000 + leader.node_id)


def test_a_follower_that_hears_its_leader_gives_no_pre_vote(cluster: Cluster) -> None:
    leader, follower = leader_of(cluster), follower_of(cluster)
    request = vote(follower, epoch=leader.raft.leader_epoch, pre_vote=True, log=OffsetAndEpoch(99, 1))
    partition = only(follower.raft.requests.handle_vote(request))
    assert partition.error_code == ErrorCode.NONE and not partition.vote_granted
    assert leader.raft.is_leader


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda r: setattr(r, "cluster_id", "another"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (lambda r: setattr(r, "topics", []), ErrorCode.INVALID_REQUEST),
        (lambda r: setattr(r.topics[0], "topic_name", "other"), ErrorCode.INVALID_REQUEST),
        (lambda r: setattr(r.topics[0].partitions[0], "partition_index", 1), ErrorCode.INVALID_REQUEST),
    ],
)
def test_requests_for_another_cluster_or_topic(cluster: Cluster, change: Any, error: ErrorCode) -> None:
    follower = follower_of(cluster)
    epoch = follower.raft.leader_epoch
    key = voter(follower.node_id).key
    for handle, request in (
        (follower.raft.requests.handle_vote, vote(follower, epoch=epoch + 1)),
        (
            follower.raft.requests.handle_begin_quorum_epoch,
            begin_request(CLUSTER_ID, BeginQuorumEpoch(ASKER.key, key, epoch + 1), ASKER),
        ),
        (
            follower.raft.requests.handle_end_quorum_epoch,
            end_request(CLUSTER_ID, EndQuorumEpoch(ASKER.key, key, epoch + 1, ()), ASKER),
        ),
    ):
        change(request)
        assert handle(request).error_code == error
    assert follower.raft.leader_epoch == epoch


@pytest.mark.parametrize(
    ("log", "pre_vote"),
    [
        (OffsetAndEpoch(-1, 0), False),
        (OffsetAndEpoch(1, -1), False),
        (OffsetAndEpoch(1, 50), False),
        (OffsetAndEpoch(1, 51), True),
    ],
)
def test_a_vote_whose_log_cannot_be(cluster: Cluster, log: OffsetAndEpoch, pre_vote: bool) -> None:
    follower = follower_of(cluster)
    partition = only(follower.raft.requests.handle_vote(vote(follower, epoch=50, log=log, pre_vote=pre_vote)))
    assert partition.error_code == ErrorCode.INVALID_REQUEST
    assert follower.raft.leader_epoch < 50


def test_a_vote_meant_for_another_directory_is_not_given() -> None:
    cluster = Cluster().start()
    cluster.append("a")
    follower = follower_of(cluster)
    request = vote(follower, epoch=20)
    request.topics[0].partitions[0].voter_directory_id = b"another director"
    partition = only(follower.raft.requests.handle_vote(request))
    assert partition.error_code == ErrorCode.INVALID_VOTER_KEY and not partition.vote_granted
    assert follower.raft.leader_epoch == 20, "the epoch counts all the same"


def test_a_vote_is_given_once_an_epoch_and_only_to_an_up_to_date_log() -> None:
    cluster = Cluster().start()
    cluster.append("a")
    cluster.run_until(cluster.settled)
    follower = follower_of(cluster)
    behind = vote(follower, epoch=20, log=OffsetAndEpoch(0, 0))
    assert not only(follower.raft.requests.handle_vote(behind)).vote_granted
    request = vote(follower, epoch=20)
    assert only(follower.raft.requests.handle_vote(request)).vote_granted
    assert only(follower.raft.requests.handle_vote(request)).vote_granted, (
        "asked again, the answer is the same"
    )
    request.topics[0].partitions[0].replica_id = 8
    assert not only(follower.raft.requests.handle_vote(request)).vote_granted


# BeginQuorumEpoch, EndQuorumEpoch


def test_an_epoch_that_is_over_does_not_begin(cluster: Cluster) -> None:
    follower = follower_of(cluster)
    message = BeginQuorumEpoch(ASKER.key, voter(follower.node_id).key, 0)
    partition = only(
        follower.raft.requests.handle_begin_quorum_epoch(begin_request(CLUSTER_ID, message, ASKER))
    )
    assert partition.error_code == ErrorCode.FENCED_LEADER_EPOCH
    message = BeginQuorumEpoch(ReplicaKey(-1), voter(follower.node_id).key, 99)
    partition = only(
        follower.raft.requests.handle_begin_quorum_epoch(begin_request(CLUSTER_ID, message, ASKER))
    )
    assert partition.error_code == ErrorCode.INVALID_REQUEST
    end = EndQuorumEpoch(ASKER.key, voter(follower.node_id).key, 0, ())
    partition = only(follower.raft.requests.handle_end_quorum_epoch(end_request(CLUSTER_ID, end, ASKER)))
    assert partition.error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_a_new_leader_is_followed_and_found_where_it_says() -> None:
    cluster = Cluster().start()
    follower = follower_of(cluster)
    moved = voter(3 if follower.node_id != 3 else 2, port=9777)
    message = BeginQuorumEpoch(moved.key, voter(follower.node_id).key, 50)
    partition = only(
        follower.raft.requests.handle_begin_quorum_epoch(begin_request(CLUSTER_ID, message, moved))
    )
    assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (
        ErrorCode.NONE,
        moved.key.id,
        50,
    )
    assert follower.raft.leader_endpoint == (moved.key.id, "host", 9777)


# Fetch


def fetch(
    process: Process, *, epoch: int, end: OffsetAndEpoch, wait_ms: int = 0, known: int | None = None
) -> Any:
    request = fetch_request(CLUSTER_ID, ASKER.key, epoch, end, known, max_bytes=1 << 20, max_wait_ms=wait_ms)
    answers: list[Any] = []
    process.raft.requests.handle_fetch(request, answers.append)
    return answers


def part(answers: list[Any]) -> Any:
    return answers[0].responses[0].partitions[0]


def test_a_fetch_in_another_epoch_or_of_another_node(cluster: Cluster) -> None:
    leader, follower = leader_of(cluster), follower_of(cluster)
    epoch = leader.raft.leader_epoch
    start = OffsetAndEpoch(0, 0)
    assert part(fetch(leader, epoch=epoch - 1, end=start)).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert part(fetch(leader, epoch=epoch + 1, end=start)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    answer = fetch(follower, epoch=epoch, end=start)
    partition = part(answer)
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.current_leader.leader_id == leader.node_id
    assert answer[0].node_endpoints[0].port == 9000 + leader.node_id
    for bad in (OffsetAndEpoch(-1, 0), OffsetAndEpoch(0, -1), OffsetAndEpoch(0, epoch + 1)):
        assert part(fetch(leader, epoch=epoch, end=bad)).error_code == ErrorCode.INVALID_REQUEST


def test_a_fetch_brings_the_log_and_the_high_watermark(cluster: Cluster) -> None:
    leader = leader_of(cluster)
    partition = part(fetch(leader, epoch=leader.raft.leader_epoch, end=OffsetAndEpoch(0, 0)))
    assert partition.error_code == ErrorCode.NONE and len(partition.records) > 100
    assert partition.high_watermark == leader.raft.high_watermark
    assert partition.log_start_offset == 0


def test_a_log_that_diverges_is_told_where() -> None:
    cluster = Cluster().start()
    cluster.append("a")
    old_epoch = cluster.elect().raft.leader_epoch
    old_end = cluster.elect().raft.log_end_offset
    cluster.kill(cluster.elect().node_id)
    cluster.append("b")
    leader = cluster.elect()
    diverging = part(
        fetch(leader, epoch=leader.raft.leader_epoch, end=OffsetAndEpoch(old_end + 5, old_epoch))
    ).diverging_epoch
    assert (diverging.epoch, diverging.end_offset) == (old_epoch, old_end)
    beyond = part(
        fetch(leader, epoch=leader.raft.leader_epoch, end=OffsetAndEpoch(1000, leader.raft.leader_epoch))
    ).diverging_epoch
    assert beyond.end_offset == leader.raft.log_end_offset


def test_a_fetch_at_the_end_waits_for_an_append_then_for_the_commit() -> None:
    cluster = Cluster().start()
    cluster.append("a")
    cluster.run_until(cluster.settled)
    leader = cluster.elect()
    epoch, end = (
        leader.raft.leader_epoch,
        OffsetAndEpoch(leader.raft.log_end_offset, leader.raft.leader_epoch),
    )
    committed = leader.raft.high_watermark
    waiting = fetch(leader, epoch=epoch, end=end, wait_ms=500, known=committed)
    assert waiting == []
    leader.raft.append([feature("b")])
    assert len(part(waiting).records) > 0, "in the same turn"
    after = OffsetAndEpoch(leader.raft.log_end_offset, epoch)
    waiting = fetch(leader, epoch=epoch, end=after, wait_ms=500, known=committed)
    assert waiting == []
    took = cluster.run_until(lambda: waiting)
    assert took < 0.05 and part(waiting).high_watermark == committed + 1
    waiting = fetch(leader, epoch=epoch, end=after, wait_ms=500, known=committed + 1)
    took = cluster.run_until(lambda: waiting)
    assert took == pytest.approx(0.5, abs=0.01)
    assert len(part(waiting).records) == 0 and part(waiting).error_code == ErrorCode.NONE


def test_a_waiting_fetch_hears_that_the_leader_leads_no_more() -> None:
    cluster = Cluster().start()
    cluster.append("a")
    cluster.run_until(cluster.settled)
    leader = cluster.elect()
    epoch, end = leader.raft.leader_epoch, leader.raft.log_end_offset
    waiting = fetch(
        leader, epoch=epoch, end=OffsetAndEpoch(end, epoch), wait_ms=500, known=leader.raft.high_watermark
    )
    leader.raft.requests.handle_vote(vote(leader, epoch=epoch + 5))
    assert part(waiting).error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_a_fetch_of_another_topic_or_cluster(cluster: Cluster) -> None:
    leader = leader_of(cluster)
    for field, value, error in (
        ("cluster_id", "another", ErrorCode.INCONSISTENT_CLUSTER_ID),
        ("topics", [], ErrorCode.INVALID_REQUEST),
    ):
        request = fetch_request(
            CLUSTER_ID, ASKER.key, 1, OffsetAndEpoch(0, 0), None, max_bytes=1, max_wait_ms=0
        )
        setattr(request, field, value)
        answers: list[Any] = []
        leader.raft.requests.handle_fetch(request, answers.append)
        assert answers[0].error_code == error


# FetchSnapshot


def snapshot(
    process: Process, snapshot_id: OffsetAndEpoch, position: int = 0, epoch: int | None = None
) -> Any:
    epoch = process.raft.leader_epoch if epoch is None else epoch
    request = fetch_snapshot_request(CLUSTER_ID, ASKER.key, epoch, snapshot_id, position, 50)
    return process.raft.requests.handle_fetch_snapshot(request)


def test_a_snapshot_is_given_in_pieces() -> None:
    cluster = Cluster(snapshot_bytes=1).start()
    for name in "abc":
        cluster.append(name)
        cluster.run(0.1)
    leader = cluster.elect()
    snapshot_id = leader.raft.latest_snapshot_id
    assert snapshot_id is not None
    data = b""
    while True:
        partition = only(snapshot(leader, snapshot_id, len(data)))
        assert partition.error_code == ErrorCode.NONE and partition.position == len(data)
        data += bytes(partition.unaligned_records)
        if len(data) == partition.size:
            break
    assert len(data) > 100
    assert only(snapshot(leader, snapshot_id, len(data))).error_code == ErrorCode.POSITION_OUT_OF_RANGE
    assert only(snapshot(leader, snapshot_id, -1)).error_code == ErrorCode.POSITION_OUT_OF_RANGE
    assert only(snapshot(leader, OffsetAndEpoch(7, 7))).error_code == ErrorCode.SNAPSHOT_NOT_FOUND
    assert only(snapshot(leader, snapshot_id, epoch=0)).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert only(snapshot(follower_of(cluster), snapshot_id)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_snapshot_of_another_topic_or_cluster(cluster: Cluster) -> None:
    leader = leader_of(cluster)
    request = fetch_snapshot_request(CLUSTER_ID, ASKER.key, 1, OffsetAndEpoch(0, 0), 0, 50)
    request.topics[0].name = "other"
    assert (
        only(leader.raft.requests.handle_fetch_snapshot(request)).error_code
        == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    request.cluster_id = "another"
    assert leader.raft.requests.handle_fetch_snapshot(request).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    request.cluster_id, request.topics = None, []
    assert leader.raft.requests.handle_fetch_snapshot(request).error_code == ErrorCode.INVALID_REQUEST


# Versions


class Asked:
    """As much of a request's context as these APIs look at."""

    listener_name = "CONTROLLER"

    def __init__(self, version: int) -> None:
        self.version = version
        self.answers: list[Any] = []

    def respond(self, answer: Any) -> None:
        self.answers.append(answer)

    def from_follower(self) -> None:
        pass


@pytest.mark.parametrize("name", raft.APIS)
def test_every_version_is_answered_in_itself(cluster: Cluster, name: str) -> None:
    api = supported(on_controller_listener=True)[ApiKey[name.upper()]]
    for process in (leader_of(cluster), follower_of(cluster)):
        node = SimpleNamespace(raft=process.raft)
        epoch = process.raft.leader_epoch
        start = OffsetAndEpoch(0, 0)
        asked = {
            ApiKey.VOTE: vote(process, epoch=epoch, pre_vote=True, log=start),
            ApiKey.BEGIN_QUORUM_EPOCH: begin_request(
                CLUSTER_ID, BeginQuorumEpoch(ASKER.key, ASKER.key, 0), ASKER
            ),
            ApiKey.END_QUORUM_EPOCH: end_request(
                CLUSTER_ID, EndQuorumEpoch(ASKER.key, ASKER.key, 0, ()), ASKER
            ),
            ApiKey.FETCH: fetch_request(
                CLUSTER_ID, ASKER.key, epoch, start, None, max_bytes=1 << 20, max_wait_ms=0
            ),
            ApiKey.FETCH_SNAPSHOT: fetch_snapshot_request(CLUSTER_ID, ASKER.key, epoch, start, 0, 50),
            ApiKey.ADD_RAFT_VOTER: m.AddRaftVoterRequest(cluster_id=CLUSTER_ID),
            ApiKey.REMOVE_RAFT_VOTER: m.RemoveRaftVoterRequest(cluster_id=CLUSTER_ID),
            ApiKey.UPDATE_RAFT_VOTER: m.UpdateRaftVoterRequest(cluster_id=CLUSTER_ID),
        }[ApiKey(api.key)]
        for version in api.versions:
            ctx = Asked(version)
            answer = api.handle(node, ctx, asked)  # type: ignore[arg-type]
            if answer is PARKED:
                (answer,) = ctx.answers
            assert encode(answer, version)
