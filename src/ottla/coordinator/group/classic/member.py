"""A member of a classic group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ottla.promise import Promise
from ottla.wire import messages

Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) of the protocols that a member supports, the preferred first."""

NO_ASSIGNMENT = b""


def protocols_of(request: messages.JoinGroupRequest) -> Protocols:
    """The protocols of a JoinGroup request."""
    return tuple((each.name, bytes(each.metadata)) for each in request.protocols)


@dataclass(slots=True, eq=False)
class ClassicMember:
    """A member. `joining` and `syncing` are its requests that wait for a response."""

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
    """Its first join has no response yet: it does not heartbeat, and may give up without notice."""
    joining: Promise[messages.JoinGroupResponse] | None = field(default=None, repr=False)
    syncing: Promise[messages.SyncGroupResponse] | None = field(default=None, repr=False)

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """Whether the coordinator owes it a response, so that it need not heartbeat."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)

    def metadata(self, protocol: str | None) -> bytes:
        """Its metadata for this protocol, which must be one of its own."""
        return next(metadata for name, metadata in self.protocols if name == protocol)

    def vote(self, candidates: Sequence[str] | set[str]) -> str:
        """The first of its protocols that is a candidate."""
        return next(name for name, _ in self.protocols if name in candidates)

    def describe(self, protocol: str | None) -> messages.DescribeGroupsResponse.DescribedGroupMember:
        """For DescribeGroups; with the metadata of the chosen protocol, if there is one."""
        return messages.DescribeGroupsResponse.DescribedGroupMember(
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            member_metadata=b"" if protocol is None else self.metadata(protocol),
            member_assignment=self.assignment,
        )
