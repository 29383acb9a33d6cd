"""The node's inputs (`step`) and outputs (`ready`): plain values, no bytes.

Messages between replicas carry what Kafka's Vote, BeginQuorumEpoch and EndQuorumEpoch carry. The others are events of
this node's own log and of its connections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ottla.ids import BrokerId
from ottla.raft.quorum_state import ElectionState
from ottla.raft.types import OffsetAndEpoch, ReplicaKey
from ottla.raft.voters import VoterSet

if TYPE_CHECKING:
    from ottla.wire.classes import WireMessage


class VoteRequest(msgspec.Struct, frozen=True):
    """A replica asks for a vote in `epoch`; with `pre_vote` it asks whether it would get one in the next epoch."""

    sender: ReplicaKey
    receiver: ReplicaKey
    epoch: int
    last_log: OffsetAndEpoch
    """Where the sender's log ends."""
    pre_vote: bool


class VoteResponse(msgspec.Struct, frozen=True):
    """The response to a `VoteRequest`, with the epoch and the leader that the voter knows."""

    sender: ReplicaKey
    receiver: ReplicaKey
    epoch: int
    leader_id: BrokerId | None
    granted: bool
    pre_vote: bool


class BeginQuorumEpoch(msgspec.Struct, frozen=True):
    """The leader announces itself to a voter."""

    sender: ReplicaKey
    receiver: ReplicaKey
    epoch: int


class EndQuorumEpoch(msgspec.Struct, frozen=True):
    """The leader has resigned. Voters may stand for election; `preferred` lists those with the longest log first."""

    sender: ReplicaKey
    receiver: ReplicaKey
    epoch: int
    preferred: tuple[ReplicaKey, ...]


class VoterGone(msgspec.Struct, frozen=True):
    """The operating system refused the connection to a voter that this node asks for its vote."""

    request: VoteRequest


class LogAppended(msgspec.Struct, frozen=True):
    """This node's log now ends here, after an append or a truncation. The end may not be durable yet."""

    end: OffsetAndEpoch


class LogFlushed(msgspec.Struct, frozen=True):
    """This node's log is durable up to this offset (not included)."""

    end_offset: int


class VotersChanged(msgspec.Struct, frozen=True):
    """The log holds a new set of voters, written at this offset; also after a truncation removed a newer one."""

    voters: VoterSet
    offset: int | None
    kraft_version: int
    previous: VoterSet
    """The voters before the last change, which may not be committed yet."""


class Fetched(msgspec.Struct, frozen=True):
    """A replica has fetched from this leader. Its log is durable up to this offset; -1 means it loads a snapshot."""

    replica: ReplicaKey
    end_offset: int


class LeaderFound(msgspec.Struct, frozen=True):
    """Another node has reported an epoch, and its leader if it knows one."""

    leader_id: BrokerId | None
    epoch: int


class LeaderResponded(msgspec.Struct, frozen=True):
    """This follower's leader has answered a fetch. Everything below the high watermark is committed (None: unknown)."""

    high_watermark: int | None = None


class LeaderGone(msgspec.Struct, frozen=True):
    """The operating system refused the connection to this follower's leader: its process is gone."""


class Resign(msgspec.Struct, frozen=True):
    """This leader must step down."""


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
    | LeaderResponded
    | LeaderGone
    | Resign
)
Outgoing = VoteRequest | VoteResponse | BeginQuorumEpoch | EndQuorumEpoch


class Ready(msgspec.Struct):
    """What the driver must do now, in the order of the fields."""

    election: ElectionState | None = None
    """Make this durable before anything else leaves the node."""
    control: list[WireMessage] = msgspec.field(default_factory=list)
    """Control messages to append as one batch, at the start of an epoch that this node leads."""
    outgoing: list[Outgoing] = msgspec.field(default_factory=list)
    high_watermark: int | None = None
    """The new high watermark."""
    leader_change: tuple[BrokerId | None, int] | None = None
    """(leader, epoch) to report to the listeners after the committed batches."""

    def __bool__(self) -> bool:
        return bool(
            self.election
            or self.control
            or self.outgoing
            or self.leader_change
            or self.high_watermark is not None
        )
