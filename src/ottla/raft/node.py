"""One replica of the quorum as a pure state machine: inputs by `step` and `tick`, output by `ready`. No I/O, no clock.

    state        meaning                               next state: event
    -----------  ------------------------------------  --------------------------------------------------------
    Unattached   knows no leader; may have voted       Prospective: election timeout
                 in its epoch (then Kafka's "Voted")   Follower: a leader is found    Unattached: a higher epoch
    Prospective  asks whether it would be voted for    Candidate: a majority would    Follower: a leader is found
                 (pre-vote), epoch unchanged           Unattached, or Follower if it had a leader: refused, timeout
                                                       Unattached: a higher epoch
    Candidate    asks for votes in a new epoch, has    Leader: a majority voted       Follower: a leader is found
                 voted for itself                      Prospective: refused, timeout  Unattached: a higher epoch
    Leader       appends; commits what a majority has  Resigned: asked to, or a majority has not fetched for long
                                                       Unattached, Follower: a higher epoch
    Resigned     led this epoch and resigned, or       Unattached: timeout (epoch+1) or a higher epoch
                 was restarted in it                   Follower: a leader is found    Prospective: only voter
    Follower     fetches from the leader               Prospective: fetch timeout, or the leader has resigned or is
                                                       known to be gone               Unattached: a higher epoch

An observer (a broker, or a controller that is not a voter) is always Unattached or Follower. A quorum of one goes
from its first state through Prospective and Candidate to Leader at once.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING, Final

import msgspec

from ottla.ids import BrokerId
from ottla.raft.messages import (
    BeginQuorumEpoch,
    EndQuorumEpoch,
    Fetched,
    Input,
    LeaderFound,
    LeaderGone,
    LeaderResponded,
    LogAppended,
    LogFlushed,
    Outgoing,
    Ready,
    Resign,
    VoteRequest,
    VoteResponse,
    VoterGone,
    VotersChanged,
)
from ottla.raft.progress import LeaderProgress, Progress
from ottla.raft.quorum_state import ElectionState
from ottla.raft.types import OffsetAndEpoch, ReplicaKey, ReplicaState
from ottla.raft.voters import VoterNode, VoterSet
from ottla.wire import messages

if TYPE_CHECKING:
    from ottla.wire.classes import WireMessage


class RaftState(Enum):
    UNATTACHED = "Unattached"
    PROSPECTIVE = "Prospective"
    CANDIDATE = "Candidate"
    LEADER = "Leader"
    RESIGNED = "Resigned"
    FOLLOWER = "Follower"


_U, _P, _C, _L, _R, _F = RaftState
TRANSITIONS: Final[dict[RaftState, frozenset[RaftState]]] = {
    _U: frozenset((_U, _P, _F)),
    _P: frozenset((_U, _P, _C, _F)),
    _C: frozenset((_U, _P, _L, _F)),
    _L: frozenset((_U, _R, _F)),
    _R: frozenset((_U, _P, _F)),
    _F: frozenset((_U, _P, _F)),
}
"""The table above."""


class NodeConfig(msgspec.Struct, frozen=True):
    """Kafka's `controller.quorum.*` timeouts."""

    election_timeout_ms: int = 1_000
    election_backoff_max_ms: int = 1_000
    fetch_timeout_ms: int = 2_000

    @property
    def check_quorum_ms(self) -> int:
        """A leader resigns when no majority has fetched for this long."""
        return self.fetch_timeout_ms * 3 // 2

    @property
    def begin_quorum_ms(self) -> int:
        """The interval at which a leader announces itself to voters that do not fetch."""
        return self.fetch_timeout_ms // 2


LEADER_GONE_PAUSE_MS: Final = (10, 50)
"""The range of the first pause before a voter stands for election when its leader is known to be gone."""


class RaftNode:
    """The replica `local`. Call `tick` before `step` to set the time, and carry out `ready` after both."""

    def __init__(
        self,
        local: VoterNode,
        *,
        voters: VoterSet,
        voters_offset: int | None,
        kraft_version: int,
        election: ElectionState | None,
        log_end: OffsetAndEpoch,
        rng: random.Random,
        config: NodeConfig,
        previous_voters: VoterSet | None = None,
    ) -> None:
        self.local = local
        self.voters = voters
        self.voters_offset = voters_offset
        """The offset of the voters in the log; None when they are configured, -1 when they are in snapshot 0."""
        self._previous_voters = previous_voters or VoterSet()
        self.kraft_version = kraft_version
        self.log_end = log_end
        self.high_watermark: int | None = None
        self.epoch_start_offset = -1
        """The start of the leader's epoch. Its records are the first that the leader may commit."""
        self.state = RaftState.UNATTACHED
        self._config = config
        self._random = rng
        self._now_ms = 0
        self._deadline_ms: int | None = None
        self._granted: set[BrokerId] = set()
        self._refused: set[BrokerId] = set()
        self._progress: LeaderProgress | None = None
        self._begin_due_ms = 0
        self._reported: tuple[BrokerId | None, int] = (None, 0)
        """The leader and epoch that the listeners know."""
        self._has_fetched = False
        self._leader_gone = False
        self._early_elections = 0
        """How often this node has stood for election since its leader was gone."""
        self._ready = Ready()
        self._start_from(election or ElectionState())

    # Input and output

    def start(self, now_ms: int) -> None:
        """Start. The only voter of a quorum becomes leader at once, in a new epoch."""
        self._now_ms = now_ms
        if self.voters.is_only_voter(self.local.key) and self.state is not RaftState.CANDIDATE:
            self._become_prospective()
        elif self.state is RaftState.CANDIDATE:
            self._campaign(pre_vote=False)
        else:
            self._reset_deadline()

    def tick(self, now_ms: int) -> None:
        """Advance the time to `now_ms`."""
        self._now_ms = max(self._now_ms, now_ms)
        if self.state is RaftState.LEADER:
            self._tick_leader()
        elif self._deadline_ms is None or self._now_ms < self._deadline_ms:
            return
        elif self.state is RaftState.RESIGNED:
            self._become_unattached(self.epoch + 1)
        elif not self.may_stand:
            if self.state in (RaftState.PROSPECTIVE, RaftState.CANDIDATE):
                self._become_unattached(self.epoch)
            self._deadline_ms = None
        elif self.state is RaftState.PROSPECTIVE:
            self._give_up()
        else:
            self._become_prospective()

    def _tick_leader(self) -> None:
        progress = self._progress
        if progress is None or len(progress.voters) == 1:
            return
        if self._now_ms >= progress.quorum_seen_ms + self._config.check_quorum_ms:
            self._resign()
        elif self._now_ms >= self._begin_due_ms:
            self._announce_leader()

    @property
    def now_ms(self) -> int:
        return self._now_ms

    @property
    def deadline_ms(self) -> int | None:
        """The time at which `tick` has something to do if nothing else happens."""
        if self.state is not RaftState.LEADER:
            return self._deadline_ms
        progress = self._progress
        if progress is None or len(progress.voters) == 1:
            return None
        return min(self._begin_due_ms, progress.quorum_seen_ms + self._config.check_quorum_ms)

    def step(self, message: Input) -> None:
        """Handle a message of another replica, or an event of this one's log or connections."""
        match message:
            case LogFlushed():
                self._advance_local(message.end_offset)
            case LogAppended():
                self.log_end = message.end
            case VotersChanged():
                self._change_voters(message)
            case Fetched():
                self._advance_replica(message)
            case VoteRequest():
                self._answer_vote(message)
            case VoteResponse():
                self._count_vote(message)
            case VoterGone():
                self._miss_vote(message.request)
            case LeaderFound():
                self._follow(message)
            case BeginQuorumEpoch():
                self._follow(LeaderFound(message.sender.id, message.epoch))
            case EndQuorumEpoch():
                self._end_epoch(message)
            case LeaderResponded():
                self._leader_responded(message)
            case LeaderGone():
                self._stand_early()
            case Resign():
                self._resign()

    def ready(self) -> Ready:
        """The output since the last call; false when there is none."""
        ready, self._ready = self._ready, Ready()
        return ready

    @property
    def is_leader(self) -> bool:
        return self.state is RaftState.LEADER

    @property
    def hears_leader(self) -> bool:
        """Whether it follows a leader that has responded. While it asks for votes it only names the last leader."""
        return self.state is RaftState.FOLLOWER and self._has_fetched

    @property
    def is_voter(self) -> bool:
        return self.voters.is_voter(self.local.key)

    @property
    def may_stand(self) -> bool:
        """This node may stand for election: it is a voter, or was one before a change that may not be committed.

        Otherwise a leader whose own removal is in its log alone could neither win an election nor let others win.
        """
        if self.is_voter:
            return True
        offset = self.voters_offset
        open_change = offset is not None and (self.high_watermark is None or offset >= self.high_watermark)
        return open_change and self._previous_voters.is_voter(self.local.key)

    def voter_states(self) -> tuple[ReplicaState, ...]:
        """The voters and their progress, as the leader knows it."""
        return tuple(
            self._replica_state(node.key, self.progress_of(node.key) or Progress())
            for node in self.voters.nodes.values()
        )

    def observer_states(self) -> tuple[ReplicaState, ...]:
        if self._progress is None:
            return ()
        return tuple(self._replica_state(key, known) for key, known in self._progress.observers.items())

    def progress_of(self, key: ReplicaKey) -> Progress | None:
        """The progress of a replica, if this node leads and knows it."""
        return None if self._progress is None else self._progress.of(key)

    @property
    def committed_here(self) -> int | None:
        """The high watermark that this leader may report: None until a record of its own epoch is committed."""
        if self.high_watermark is None or self.high_watermark <= self.epoch_start_offset:
            return None
        return self.high_watermark

    # Transitions

    def _start_from(self, election: ElectionState) -> None:
        self.epoch = election.epoch
        self.leader_id = election.leader_id
        self.voted_key = election.voted_key
        if election.epoch < self.log_end.epoch:
            # The file was lost or is older than the log: the vote in the log's epoch is not known.
            self.epoch, self.leader_id, self.voted_key = self.log_end.epoch, None, None
            self._ready.election = self._election()
        elif self.leader_id == self.local.key.id:
            # An unflushed tail may have been lost, so this epoch must not get more records.
            self.state = RaftState.RESIGNED
        elif self.voted_key is not None and self.voted_key.matches(self.local.key):
            self.state = RaftState.CANDIDATE
        elif self.leader_id is not None and self.leader_id in self.voters.nodes:
            self.state = RaftState.FOLLOWER

    def _enter(self, state: RaftState) -> None:
        if state not in TRANSITIONS[self.state]:
            raise AssertionError(f"no transition from {self.state.value} to {state.value}")
        self.state = state
        self._granted.clear()
        self._refused.clear()
        if state is not RaftState.LEADER:
            self._progress = None
        self._reset_deadline()

    def _report(self, leader_id: BrokerId | None) -> None:
        """Report the leader to the listeners unless they know it."""
        if (leader_id, self.epoch) != self._reported and (leader_id, self._reported[0]) != (None, None):
            self._reported = (leader_id, self.epoch)
            self._ready.leader_change = self._reported

    def _become_unattached(self, epoch: int) -> None:
        if epoch > self.epoch:
            self.epoch = epoch
            self.voted_key = None
            self.leader_id = None
            self._ready.election = self._election()
            self._report(None)
        self._enter(RaftState.UNATTACHED)

    def _give_up(self) -> None:
        """The pre-vote failed: go back to the leader, or wait for one."""
        if self.leader_id is None or self.leader_id == self.local.key.id:
            self._become_unattached(self.epoch)
        else:
            self._enter(RaftState.FOLLOWER)
        if self._leader_gone:
            self._stand_early()

    def _become_prospective(self) -> None:
        self._has_fetched = False
        self._enter(RaftState.PROSPECTIVE)
        self._campaign(pre_vote=True)

    def _become_candidate(self) -> None:
        self._enter(RaftState.CANDIDATE)
        self.epoch += 1
        self.leader_id = None
        self.voted_key = self.local.key
        self._ready.election = self._election()
        self._campaign(pre_vote=False)

    def _become_leader(self) -> None:
        granting = sorted(self._granted)
        self._enter(RaftState.LEADER)
        self.leader_id = self.local.key.id
        # Kafka's file of a leader names no vote: it cannot vote for anyone else in its own epoch anyway.
        self.voted_key = None
        self._ready.election = self._election()
        self.epoch_start_offset = self.log_end.offset
        self._leader_gone = False
        self._progress = LeaderProgress(self.local.key, self.voters, self._now_ms)
        self._ready.control = self._start_of_epoch(granting)
        self._announce_leader()

    def _follow(self, message: LeaderFound) -> None:
        if message.epoch < self.epoch:
            return
        if message.leader_id is None or message.leader_id == self.local.key.id:
            if message.epoch > self.epoch:
                self._become_unattached(message.epoch)
            return
        if (
            message.epoch == self.epoch
            and self.leader_id is not None
            and self.state is not RaftState.UNATTACHED
        ):
            return
        if message.epoch > self.epoch:
            self.epoch = message.epoch
            self.voted_key = None
        self.leader_id = message.leader_id
        self._has_fetched = self._leader_gone = False
        self._early_elections = 0
        self._ready.election = self._election()
        self._enter(RaftState.FOLLOWER)
        self._report(self.leader_id)

    def _leader_responded(self, message: LeaderResponded) -> None:
        if self.state is not RaftState.FOLLOWER:
            return
        self._has_fetched = True
        self._leader_gone = False
        self._early_elections = 0
        self._reset_deadline()
        if message.high_watermark is not None:
            offset = min(message.high_watermark, self.log_end.offset)
            if self.high_watermark is None or offset > self.high_watermark:
                self.high_watermark = offset
                self._ready.high_watermark = offset

    def _stand_early(self) -> None:
        """The leader is gone: stand for election without waiting for the fetch timeout."""
        waiting = self.state is RaftState.FOLLOWER or (
            self.state is RaftState.UNATTACHED and self._leader_gone
        )
        if not (waiting and self.may_stand):
            return
        self._leader_gone, self._has_fetched = True, False
        self._shorten_deadline()

    def _shorten_deadline(self) -> None:
        pause = self._random.randint(*LEADER_GONE_PAUSE_MS) << min(self._early_elections, 6)
        self._early_elections += 1
        due_ms = self._now_ms + min(pause, self._config.election_timeout_ms)
        self._deadline_ms = due_ms if self._deadline_ms is None else min(self._deadline_ms, due_ms)

    def _end_epoch(self, message: EndQuorumEpoch) -> None:
        self._follow(LeaderFound(message.sender.id, message.epoch))
        if self.state is not RaftState.FOLLOWER or self.leader_id != message.sender.id or not self.may_stand:
            return
        self._leader_gone, self._has_fetched = True, False
        position = next(
            (i for i, key in enumerate(message.preferred) if key.matches(self.local.key)),
            len(message.preferred),
        )
        if position == 0:
            self._become_prospective()
            return
        limit = self._config.election_backoff_max_ms
        first = limit >> (len(message.preferred) - 1)
        self._deadline_ms = self._now_ms + min(limit, first << (position - 1))

    def _resign(self) -> None:
        if self.state is not RaftState.LEADER or self._progress is None:
            return
        others = self._progress.others
        self._enter(RaftState.RESIGNED)
        for key in others:
            self._send(EndQuorumEpoch(self.local.key, key, self.epoch, tuple(others)))
        self._report(None)

    def _announce_leader(self) -> None:
        """Announce this leader to voters that do not fetch."""
        assert self._progress is not None
        pause = self._config.begin_quorum_ms
        self._begin_due_ms = self._now_ms + pause
        for key in self._progress.others:
            last_ms = self._progress.voters[key].last_fetch_ms
            if last_ms < 0 or self._now_ms - last_ms >= pause:
                self._send(BeginQuorumEpoch(self.local.key, key, self.epoch))

    def _change_voters(self, message: VotersChanged) -> None:
        self.voters, self.voters_offset = message.voters, message.offset
        self._previous_voters = message.previous
        self.kraft_version = message.kraft_version
        if self._progress is not None:
            self._progress.change_voters(message.voters, self._now_ms)
            self._update_high_watermark()
        elif self._deadline_ms is None and self.state is not RaftState.LEADER:
            self._reset_deadline()

    # Elections

    def _campaign(self, *, pre_vote: bool) -> None:
        self._granted = {self.local.key.id}
        self._reset_deadline()
        for node in self.voters.nodes.values():
            if node.key.id != self.local.key.id:
                self._send(VoteRequest(self.local.key, node.key, self.epoch, self.log_end, pre_vote))
        self._count()

    def _count_vote(self, message: VoteResponse) -> None:
        if message.epoch > self.epoch:
            self._become_unattached(message.epoch)
            return
        expected = RaftState.PROSPECTIVE if message.pre_vote else RaftState.CANDIDATE
        if message.epoch < self.epoch or self.state is not expected:
            return
        if message.leader_id is not None and self.leader_id is None:
            self._follow(LeaderFound(message.leader_id, message.epoch))
            return
        (self._granted if message.granted else self._refused).add(message.sender.id)
        self._count()

    def _miss_vote(self, request: VoteRequest) -> None:
        """Count the vote of a process that is gone as refused, if this election need not wait."""
        expected = RaftState.PROSPECTIVE if request.pre_vote else RaftState.CANDIDATE
        if self._leader_gone and request.epoch == self.epoch and self.state is expected:
            self._refused.add(request.receiver.id)
            self._count()

    def _count(self) -> None:
        voters = self.voters.ids
        if len(self._granted & voters) >= self.voters.majority:
            if self.state is RaftState.PROSPECTIVE:
                self._become_candidate()
            elif self.state is RaftState.CANDIDATE:
                self._become_leader()
        elif len(voters) - len(self._refused & voters) < self.voters.majority:
            if self.state is RaftState.PROSPECTIVE:
                self._give_up()
            elif self.state is RaftState.CANDIDATE:
                # The election is lost: wait for the timeout, then start again with a pre-vote.
                self._granted.clear()
                self._refused.clear()
                if self._leader_gone:
                    self._shorten_deadline()

    def _answer_vote(self, message: VoteRequest) -> None:
        if message.epoch > self.epoch:
            self._become_unattached(message.epoch)
        granted = message.epoch == self.epoch and self._would_grant(message)
        if granted and not message.pre_vote and self.voted_key is None:
            self.voted_key = message.sender
            self._ready.election = self._election()
            self._reset_deadline()
        self._send(
            VoteResponse(
                self.local.key, message.sender, self.epoch, self.leader_id, granted, message.pre_vote
            )
        )

    def _would_grant(self, message: VoteRequest) -> bool:
        up_to_date = message.last_log.is_at_least(self.log_end)
        if self.state is RaftState.LEADER:
            return False
        if message.pre_vote:
            # A follower whose leader answers its fetches must not help to replace it.
            return up_to_date and not (self.state is RaftState.FOLLOWER and self._has_fetched)
        if self.voted_key is not None:
            return self.voted_key.matches(message.sender)
        return (
            self.leader_id is None
            and self.state in (RaftState.UNATTACHED, RaftState.PROSPECTIVE)
            and up_to_date
        )

    # The log

    def _start_of_epoch(self, granting: Iterable[BrokerId]) -> list[WireMessage]:
        cls = messages.LeaderChangeMessage
        control: list[WireMessage] = [
            cls(
                version=0,
                leader_id=self.local.key.id,
                voters=[cls.Voter(voter_id=v) for v in sorted(self.voters.nodes)],
                granting_voters=[cls.Voter(voter_id=v) for v in granting],
            )
        ]
        if self.kraft_version > 0 and (self.voters_offset == -1 or self.voters.needs_update(self.local)):
            control.append(messages.KRaftVersionRecord(version=0, kraft_version=self.kraft_version))
            control.append(self.voters.with_voter(self.local).to_record())
        return control

    def _advance_local(self, end_offset: int) -> None:
        if self._progress is not None:
            self._progress.flushed(end_offset)
            self._update_high_watermark()

    def _advance_replica(self, message: Fetched) -> None:
        if self._progress is not None and message.replica.id != self.local.key.id:
            self._progress.fetched(message.replica, message.end_offset, self.log_end.offset, self._now_ms)
            self._update_high_watermark()

    def _update_high_watermark(self) -> None:
        if self._progress is None or not self._progress.voters:
            return
        offset = self._progress.majority_offset
        # Only a record of the leader's own epoch is committed by a majority; earlier records are committed with it.
        if offset > self.epoch_start_offset and (self.high_watermark is None or offset > self.high_watermark):
            self.high_watermark = offset
            self._ready.high_watermark = offset
            self._report(self.leader_id)

    # Helpers

    def _election(self) -> ElectionState:
        return ElectionState(self.epoch, self.leader_id, self.voted_key)

    def _send(self, message: Outgoing) -> None:
        self._ready.outgoing.append(message)

    def _reset_deadline(self) -> None:
        if self.state is RaftState.LEADER:
            self._deadline_ms = None
        elif self.state is RaftState.FOLLOWER:
            self._deadline_ms = self._now_ms + self._config.fetch_timeout_ms
        else:
            timeout = self._config.election_timeout_ms
            self._deadline_ms = self._now_ms + timeout + self._random.randrange(timeout)

    def _replica_state(self, key: ReplicaKey, progress: Progress) -> ReplicaState:
        if key.id == self.local.key.id and self.is_leader:
            return ReplicaState(key, self.log_end.offset, self._now_ms, self._now_ms)
        return ReplicaState(key, progress.end_offset, progress.last_fetch_ms, progress.last_caught_up_ms)
