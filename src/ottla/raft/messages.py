"""What goes into the node (`step`) and comes out of it (`ready`): plain values, no bytes.

Messages between replicas carry what Kafka's Vote, BeginQuorumEpoch and EndQuorumEpoch carry; the rest are events of
this node's own log and of its connections.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ottla.raft.quorum_state import ElectionState
from ottla.raft.types import OffsetAndEpoch, ReplicaKey
from ottla.raft.voters import VoterSet


class VoteRequest(msgspec.Struct, frozen=True):
    """A replica asks for a vote in `epoch`; with `pre_vote`, whether it would get one in the next."""

    sender: ReplicaKey
    receiver: ReplicaKey
    epoch: int
    last_log: OffsetAndEpoch
    """Where the sender's log ends."""
    pre_vote: bool


class VoteResponse(msgspec.Struct, frozen=True):
    """The answer to a `VoteRequest`, with the epoch and the leader that the voter knows."""

    sender: ReplicaKey
    receiver: ReplicaKey
    epoch: int
    leader_id: int | None
    granted: bool
    pre_vote: bool


class BeginQuorumEpoch(msgspec.Struct, frozen=True):
    """The leader tells a voter that it leads."""

    sender: ReplicaKey
    receiver: ReplicaKey
    epoch: int


class EndQuorumEpoch(msgspec.Struct, frozen=True):
    """The leader has resigned: a voter may stand for election, those with the most of the log first."""

    sender: ReplicaKey
    receiver: ReplicaKey
    epoch: int
    preferred: tuple[ReplicaKey, ...]


class VoterGone(msgspec.Struct, frozen=True):
    """The operating system says that nobody listens where a voter was that is asked for its vote."""

    asked: VoteRequest


class LogAppended(msgspec.Struct, frozen=True):
    """This node's log now ends here (it may also have been cut); it may not be durable yet."""

    end: OffsetAndEpoch


class LogFlushed(msgspec.Struct, frozen=True):
    """This node's log is durable up to this offset (not included)."""

    end_offset: int


class VotersChanged(msgspec.Struct, frozen=True):
    """The log (or what is left of it) says who the voters are, written at this offset."""

    voters: VoterSet
    offset: int | None
    kraft_version: int
    previous: VoterSet
    """Those before the last change, which may not be committed yet."""


class Fetched(msgspec.Struct, frozen=True):
    """A replica has fetched from this leader: its log is durable up to this offset (-1: it loads a snapshot)."""

    replica: ReplicaKey
    end_offset: int


class LeaderFound(msgspec.Struct, frozen=True):
    """This node has heard of an epoch, and who leads it if the other knew."""

    leader_id: int | None
    epoch: int


class LeaderHeard(msgspec.Struct, frozen=True):
    """This follower's leader has answered a fetch; everything below the offset is committed (None: not known)."""

    high_watermark: int | None = None


class LeaderGone(msgspec.Struct, frozen=True):
    """The operating system says that nobody listens where this follower's leader was."""


class Resign(msgspec.Struct, frozen=True):
    """This leader is asked to step down."""


Input = (
    VoteRequest
    | VoteResponse
    | VoterGone
    | BeginQuorumEpoch
    | EndQuorumEpoch
    | LogAppended
    | LogFlushed
    | VotersChanged
    | Fetched
    | LeaderFound
    | LeaderHeard
    | LeaderGone
    | Resign
)
Outgoing = VoteRequest | VoteResponse | BeginQuorumEpoch | EndQuorumEpoch


class Ready(msgspec.Struct):
    """What the driver has to do now, in the order of the fields."""

    election: ElectionState | None = None
    """Make this durable before anything else leaves the node."""
    control: list[Any] = msgspec.field(default_factory=list)
    """Control messages to append as one batch, at the start of an epoch that this node leads."""
    outgoing: list[Outgoing] = msgspec.field(default_factory=list)
    high_watermark: int | None = None
    """It has moved to here."""
    leader_change: tuple[int | None, int] | None = None
    """(leader, epoch) to tell the listeners, after they have what is committed."""

    def __bool__(self) -> bool:
        return bool(
            self.election
            or self.control
            or self.outgoing
            or self.leader_change
            or self.high_watermark is not None
        )
