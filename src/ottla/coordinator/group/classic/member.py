"""A member of a classic group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ottla.promise import Promise
from ottla.wire import messages

Message = Any

Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) of what a member can do, most wanted first."""

NO_ASSIGNMENT = b""


def protocols_of(request: Message) -> Protocols:
    """The protocols of a JoinGroup request."""
    return tuple((each.name, bytes(each.metadata)) for each in request.protocols)


@dataclass(slots=True, eq=False)
class ClassicMember:
    """`joining` and `syncing` are the requests of it that wait for an answer."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = NO_ASSIGNMENT
    is_new: bool = False
    """It has not seen the answer to its first join: it does not heartbeat yet and may give up unseen."""
    joining: Promise[Message] | None = field(default=None, repr=False)
    syncing: Promise[Message] | None = field(default=None, repr=False)

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """Whether it waits for us, rather than we for it."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)

    def metadata(self, protocol: str | None) -> bytes:
        """What it said about itself under this protocol. It must be one of its own."""
        return next(metadata for name, metadata in self.protocols if name == protocol)

    def vote(self, candidates: Sequence[str] | set[str]) -> str:
        """The first of its protocols that is a candidate."""
        return next(name for name, _ in self.protocols if name in candidates)

    def describe(self, protocol: str | None) -> Message:
        """As DescribeGroups shows it; with the metadata of a protocol where one is chosen."""
        return messages.DescribeGroupsResponse.DescribedGroupMember(
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            member_metadata=b"" if protocol is None else self.metadata(protocol),
            member_assignment=self.assignment,
        )
