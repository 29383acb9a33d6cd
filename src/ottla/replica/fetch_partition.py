"""One partition of a Fetch request, of a fetch session, and of a follower's session that waits for news."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.replica.fetch_sessions import FollowerSession
    from ottla.replica.partition import Partition
    from ottla.wire.messages import FetchResponse

PartitionKey = tuple[str | bytes, int]
"""Topic name (or topic id, from version 13) and partition index."""


class SentMarks:
    """What the client of a session was sent last of one partition."""

    __slots__ = ("high_watermark", "log_start_offset")

    def __init__(self, high_watermark: int = -1, log_start_offset: int = -1) -> None:
        self.high_watermark = high_watermark
        self.log_start_offset = log_start_offset

    def update(self, data: FetchResponse.PartitionData) -> bool:
        """Note what `data` reports; whether any of it is new to the client."""
        news = bool(data.records)
        if data.high_watermark != self.high_watermark:
            self.high_watermark = data.high_watermark
            news = True
        if data.log_start_offset != self.log_start_offset:
            self.log_start_offset = data.log_start_offset
            news = True
        if data.error_code:
            # The partition is sent again once the error is gone.
            self.high_watermark = -1
            news = True
        return news or data.preferred_read_replica >= 0 or data.diverging_epoch.epoch >= 0


class FetchPartition:
    """A partition as a client requested it last."""

    __slots__ = (
        "fetch_offset",
        "index",
        "key",
        "last_fetched_epoch",
        "leader_epoch",
        "log_start_offset",
        "max_bytes",
        "partition",
        "sent",
    )

    def __init__(
        self,
        topic: str | bytes,
        index: int,
        fetch_offset: int,
        max_bytes: int,
        leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        log_start_offset: int = -1,
    ) -> None:
        self.key: PartitionKey = (topic, index)
        self.index = index
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.leader_epoch = leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        self.partition: Partition | None = None
        """The hosted partition, once the read has looked it up."""
        self.sent: SentMarks | None = None
        """Set while the partition is part of a session."""

    def request_again(self, newer: FetchPartition) -> None:
        """Take over what the session's next request says of the partition."""
        self.fetch_offset = newer.fetch_offset
        self.max_bytes = newer.max_bytes
        self.leader_epoch = newer.leader_epoch
        self.last_fetched_epoch = newer.last_fetched_epoch
        self.log_start_offset = newer.log_start_offset


class FollowerPartition(FetchPartition):
    """A partition of a follower's session. It waits at the end of the partition's log for the session."""

    __slots__ = ("requested", "session")

    sent: SentMarks

    def __init__(self, request: FetchPartition, session: FollowerSession) -> None:
        self.key = request.key
        self.index = request.index
        self.partition = None
        self.sent = SentMarks()
        self.session: FollowerSession | None = session
        """None once the session has dropped the partition."""
        self.requested = True
        """The partition has not noted the requested offset yet."""
        self.request_again(request)

    # -- as a waiter of its partition

    def progress(self, size: int) -> None:
        """The log has grown."""
        session = self.session
        if session is not None:
            session.fresh[self] = None
            if session.parked is not None:
                session.parked.wake()

    def ready(self) -> None:
        """The high watermark moved, the leader changed, or the partition was removed."""
        session = self.session
        if session is not None:
            session.fresh[self] = None
            if session.parked is not None:
                session.parked.wake_soon()

    def expire(self) -> None:
        """The broker stops."""
        session = self.session
        if session is not None and session.parked is not None:
            session.parked.expire()
