"""Share sessions: which partitions a member fetches from this broker. A request then names only what changes.

A session is known by group and member and counts its requests. It ends with epoch -1, or with its connection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from ottla.errors import ApiException, ErrorCode
from ottla.limits import MAX_FETCH_PARTITIONS

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_MAX_EPOCH: Final = 0x7FFF_FFFF

PartitionKey = tuple[bytes, int]
"""Topic id and partition."""

SessionKey = tuple[str, str]
"""Group and member."""


class ShareSession:
    """One member's session."""

    __slots__ = ("connection_id", "epoch", "key", "partitions")

    def __init__(self, key: SessionKey, partitions: Iterable[PartitionKey], connection_id: str) -> None:
        self.key = key
        self.connection_id = connection_id
        self.epoch = 1
        self.partitions: dict[PartitionKey, bool] = dict.fromkeys(partitions, False)
        """In the order in which they are read; True if the next response must include the partition in any case."""

    def advance(self) -> None:
        self.epoch = 1 if self.epoch == _MAX_EPOCH else self.epoch + 1

    def must_send(self, key: PartitionKey, *, has_records: bool, has_error: bool) -> bool:
        """Whether a response must include a partition; one that gave records goes to the end of the queue."""
        if key not in self.partitions:
            return has_records or has_error
        due = self.partitions[key]
        if has_records:
            del self.partitions[key]
        if has_records or due or has_error:
            self.partitions[key] = has_error
        return has_records or due or has_error


class ShareSessions:
    """All share sessions of this broker."""

    __slots__ = ("_limit", "_members", "_sessions")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._members: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, group_id: str, member_id: str) -> ShareSession | None:
        return self._sessions.get((group_id, member_id))

    def of_connection(self, connection_id: str) -> list[SessionKey]:
        return [key for key, session in self._sessions.items() if session.connection_id == connection_id]

    def has_members(self, group_id: str) -> bool:
        return self._members[group_id] > 0

    def open(
        self, group_id: str, member_id: str, partitions: Iterable[PartitionKey], connection_id: str
    ) -> ShareSession:
        """A new session, which replaces the member's old one; raises SHARE_SESSION_LIMIT_REACHED."""
        wanted = list(partitions)
        self.check_size(len(wanted))
        self.remove(group_id, member_id)
        if len(self._sessions) >= self._limit:
            raise ApiException(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                f"This broker has {self._limit} share sessions already (group.share.max.share.sessions)",
            )
        session = ShareSession((group_id, member_id), wanted, connection_id)
        self._sessions[session.key] = session
        self._members[group_id] += 1
        return session

    @staticmethod
    def check_size(partitions: int) -> None:
        """Raise INVALID_REQUEST for more partitions than a session may have."""
        if partitions > MAX_FETCH_PARTITIONS:
            raise ApiException(
                ErrorCode.INVALID_REQUEST, f"A share session has at most {MAX_FETCH_PARTITIONS} partitions"
            )

    def clear(self) -> None:
        self._sessions.clear()
        self._members.clear()

    def use(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """The session that a request continues; raises the error for the client."""
        session = self.require(group_id, member_id)
        if session.epoch != epoch:
            raise ApiException(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH,
                f"The share session of {member_id} is at epoch {session.epoch}, not {epoch}",
            )
        session.advance()
        return session

    def require(self, group_id: str, member_id: str) -> ShareSession:
        session = self.get(group_id, member_id)
        if session is None:
            raise ApiException(
                ErrorCode.SHARE_SESSION_NOT_FOUND,
                f"Member {member_id} of group {group_id} has no share session on this broker",
            )
        return session

    def remove(self, group_id: str, member_id: str) -> ShareSession | None:
        session = self._sessions.pop((group_id, member_id), None)
        if session is not None:
            self._members[group_id] -= 1
            if not self._members[group_id]:
                del self._members[group_id]
        return session
