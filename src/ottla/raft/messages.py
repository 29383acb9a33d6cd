"""What goes into the node (`step`) and comes out of it (`ready`): plain values, no bytes.

The votes carry what Kafka's Vote request and response carry; the rest are events of this node's own log.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ottla.raft.quorum_state import ElectionState
from ottla.raft.types import OffsetAndEpoch, ReplicaKey


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """A replica asks for a vote in `epoch`; with `pre_vote`, whether it would get one in the next."""

    sender: ReplicaKey
    receiver: ReplicaKey
    epoch: int
    last_log: OffsetAndEpoch
    """Where the sender's log ends."""
    pre_vote: bool


@dataclass(frozen=True, slots=True)
class VoteResponse:
    """The answer to a `VoteRequest`, with the epoch and the leader that the voter knows."""

    sender: ReplicaKey
    receiver: ReplicaKey
    epoch: int
    leader_id: int | None
    granted: bool
    pre_vote: bool


@dataclass(frozen=True, slots=True)
class LogAppended:
    """This node's log now ends here; it may not be durable yet."""

    end: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class LogFlushed:
    """This node's log is durable up to this offset (not included)."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """A replica has fetched from this leader: its log is durable up to this offset."""

    replica: ReplicaKey
    end_offset: int


@dataclass(frozen=True, slots=True)
class LeaderFound:
    """This node has heard who leads an epoch."""

    leader_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class LeaderHeard:
    """This follower's leader has answered a fetch."""


@dataclass(frozen=True, slots=True)
class Resign:
    """This leader is asked to step down."""


Input = VoteRequest | VoteResponse | LogAppended | LogFlushed | Fetched | LeaderFound | LeaderHeard | Resign
Outgoing = VoteRequest | VoteResponse


@dataclass(slots=True)
class Ready:
    """What the driver has to do now, in the order of the fields."""

    election: ElectionState | None = None
    """Make this durable before anything else leaves the node."""
    control: list[Any] = field(default_factory=list)
    """Control messages to append as one batch, at the start of an epoch that this node leads."""
    outgoing: list[Outgoing] = field(default_factory=list)
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
