"""Incremental fetch sessions (KIP-227): the partitions a client fetches, kept between its requests.

Decides which partitions a request covers and which of the results are worth sending. Reading them is
`ottla.replica.consumer_read`; the messages are the API's.

    request epoch   0    full fetch, opens a session if there is room (closing the one it names)
                   -1    full fetch, no session (closing the one it names)
                   n>0   incremental: the session's partitions with the request's changes; must be the epoch
                         that the session expects, which moves on by one

A follower's session hangs on its partitions and keeps note of those with news: however many it has, a fetch costs
what the changed ones cost.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla.clock import Clock
from ottla.errors import ErrorCode
from ottla.limits import MAX_FETCH_PARTITIONS

if TYPE_CHECKING:
    from ottla.replica.follower_read import FollowerRead
    from ottla.replica.partition import Partition

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_MAX_EPOCH: Final = 2**31 - 1
_MAX_SESSION_ID: Final = 2**31 - 1

PartitionKey = tuple[str | bytes, int]
"""Topic name (or topic id, from version 13) and partition index."""

PartitionData = Any
"""`FetchResponse.PartitionData`."""


class FetchPartition:
    """A partition as a client fetches it: what it asked last, and in a session what it was told last."""

    __slots__ = (
        "asked",
        "fetch_offset",
        "index",
        "key",
        "last_fetched_epoch",
        "leader_epoch",
        "log_start_offset",
        "max_bytes",
        "partition",
        "sent_high_watermark",
        "sent_log_start_offset",
        "session",
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
        self.sent_high_watermark = -1
        self.sent_log_start_offset = -1
        self.partition: Partition | None = None
        """The hosted partition, once looked up (see `ottla.replica.consumer_read`)."""
        self.session: FetchSession | None = None
        """Set while a follower's session hangs on the partition: this is its waiter there."""
        self.asked = True
        """The follower has told its offset since it was last taken note of."""

    # -- a follower's, as a waiter on its partition

    def progress(self, size: int) -> None:
        """The log has grown."""
        session = self.session
        if session is not None:
            session.fresh[self] = None
            if session.parked is not None:
                session.parked.wake()

    def ready(self) -> None:
        """The high watermark moved, the leader changed, the partition is gone."""
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

    # -- what is asked and told

    def ask_again(self, newer: FetchPartition) -> None:
        self.fetch_offset = newer.fetch_offset
        self.max_bytes = newer.max_bytes
        self.leader_epoch = newer.leader_epoch
        self.last_fetched_epoch = newer.last_fetched_epoch
        self.log_start_offset = newer.log_start_offset
        self.asked = True

    def sent(self, data: PartitionData) -> bool:
        """Note what `data` tells; whether it tells the client of a session anything new."""
        news = bool(data.records)
        if data.high_watermark != self.sent_high_watermark:
            self.sent_high_watermark = data.high_watermark
            news = True
        if data.log_start_offset != self.sent_log_start_offset:
            self.sent_log_start_offset = data.log_start_offset
            news = True
        if data.error_code:
            # So that the partition is sent again once the error is gone.
            self.sent_high_watermark = -1
            news = True
        return news or data.preferred_read_replica >= 0 or data.diverging_epoch.epoch >= 0


class FetchSession:
    """The partitions of one client, in the order in which they are to be read next."""

    __slots__ = (
        "created_ms",
        "epoch",
        "evictable_key",
        "fresh",
        "id",
        "parked",
        "partitions",
        "privileged",
        "used_ms",
        "uses_topic_ids",
    )

    def __init__(
        self,
        session_id: int,
        partitions: dict[PartitionKey, FetchPartition],
        *,
        privileged: bool,
        uses_topic_ids: bool,
        now_ms: float,
    ) -> None:
        self.id = session_id
        self.partitions = partitions
        self.privileged = privileged
        """Followers' sessions, which clients' sessions cannot push out."""
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.used_ms = now_ms
        self.epoch = next_epoch(INITIAL_EPOCH)
        """What the next request must carry."""
        self.evictable_key = (privileged, -1, session_id)
        self.fresh: dict[FetchPartition, None] = {}
        """A follower's partitions that there may be news of, longest waiting first."""
        self.parked: FollowerRead | None = None
        """A follower's request that waits for news."""

    def attach(self, part: FetchPartition) -> None:
        """Hang on a partition, and take a first look at it."""
        part.session = self
        self.fresh[part] = None
        if part.partition is not None:
            part.partition.tails[part] = None

    def detach(self, part: FetchPartition) -> None:
        """Let go of a partition."""
        part.session = None
        self.fresh.pop(part, None)
        if part.partition is not None:
            part.partition.tails.pop(part, None)

    def close(self) -> None:
        """Let go of everything. The request that waits is answered by whoever closes its connection."""
        if self.privileged:
            for part in self.partitions.values():
                self.detach(part)


def next_epoch(epoch: int) -> int:
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == _MAX_EPOCH else epoch + 1


class FetchContext:
    """One request's view: `partitions` to read in order, and `finish` to turn results into what is sent."""

    __slots__ = ("_cache", "_expected_epoch", "_session", "_topic_ids", "error", "follower", "partitions")

    def __init__(
        self,
        cache: FetchSessionCache,
        partitions: list[FetchPartition],
        *,
        error: ErrorCode = ErrorCode.NONE,
        session: FetchSession | None = None,
        create: bool = False,
        topic_ids: bool = False,
        follower: bool = False,
    ) -> None:
        self.error = error
        """Not NONE: the whole request is answered with it."""
        self.partitions = partitions
        self._cache = cache if create else None
        self._session = session
        self._expected_epoch = session.epoch if session is not None else FINAL_EPOCH
        self._topic_ids = topic_ids
        self.follower = follower

    @property
    def session(self) -> FetchSession | None:
        """The session that the request goes on with."""
        return self._session

    @property
    def incremental(self) -> bool:
        """The client knows the state of partitions already: what has not changed may be left out (`None`)."""
        return self._session is not None

    def finish(
        self, results: Sequence[PartitionData | None]
    ) -> tuple[ErrorCode, int, Iterable[tuple[FetchPartition, PartitionData]]]:
        """Error, session id and the partitions to send, from results in the order of `partitions`."""
        session = self._session
        if session is not None:
            if session.epoch != self._expected_epoch:
                return ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.id, ()
            return ErrorCode.NONE, session.id, self._changed(session, results)
        session_id = NO_SESSION
        sent = [(part, data) for part, data in zip(self.partitions, results, strict=True) if data is not None]
        if self._cache is not None:
            session_id = self._cache.create(
                self.partitions, privileged=self.follower, uses_topic_ids=self._topic_ids
            )
            if session_id != NO_SESSION:
                for part, data in sent:
                    part.sent_high_watermark = data.high_watermark
                    part.sent_log_start_offset = data.log_start_offset
        return ErrorCode.NONE, session_id, sent

    def _changed(
        self, session: FetchSession, results: Sequence[PartitionData | None]
    ) -> list[tuple[FetchPartition, PartitionData]]:
        order = session.partitions
        changed = []
        for part, data in zip(self.partitions, results, strict=True):
            if data is not None and part.key in order and part.sent(data):
                changed.append((part, data))
                if data.records:
                    # Those that gave data go to the end of the queue, so that every partition gets its turn.
                    order[part.key] = order.pop(part.key)
        return changed


class FetchSessionCache:
    """All sessions of the broker, at most `slots` (`max.incremental.fetch.session.cache.slots`)."""

    __slots__ = ("_by_all", "_by_privileged", "_clock", "_min_eviction_ms", "_sessions", "evictions", "slots")

    def __init__(self, clock: Clock, slots: int, *, min_eviction_ms: int = 120_000) -> None:
        self.slots = slots
        self.evictions = 0
        self._clock = clock
        self._min_eviction_ms = min_eviction_ms
        self._sessions: dict[int, FetchSession] = {}
        """In the order of last use, oldest first."""
        self._by_all: list[tuple[bool, int, int]] = []
        """Sorted keys of sessions that any newcomer may push out: those that have lived long enough."""
        self._by_privileged: list[tuple[bool, int, int]] = []
        """The same for a follower: also every client's."""

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values())

    def open(
        self,
        version: int,
        session_id: int,
        epoch: int,
        partitions: list[FetchPartition],
        forgotten: Iterable[PartitionKey] = (),
        *,
        follower: bool = False,
    ) -> FetchContext:
        """What a request of this session id and epoch covers."""
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            named = self._sessions.get(session_id)
            if named is not None:
                self._remove(named)
            unique = list({part.key: part for part in partitions}.values())
            create = epoch == INITIAL_EPOCH and len(unique) <= MAX_FETCH_PARTITIONS
            return FetchContext(self, unique, create=create, topic_ids=version >= 13, follower=follower)
        session = self._sessions.get(session_id)
        if session is None:
            return FetchContext(self, [], error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            return FetchContext(self, [], error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != (version >= 13):
            return FetchContext(self, [], error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        return self._continue(session, partitions, forgotten)

    def _continue(
        self, session: FetchSession, partitions: list[FetchPartition], forgotten: Iterable[PartitionKey]
    ) -> FetchContext:
        order = session.partitions
        follower = session.privileged
        for part in partitions:
            known = order.get(part.key)
            if known is None:
                order[part.key] = part
                if follower:
                    session.attach(part)
            else:
                known.ask_again(part)
                if follower:
                    session.fresh[known] = None
        for key in forgotten:
            gone = order.pop(key, None)
            if follower and gone is not None:
                session.detach(gone)
        if not order:
            self._remove(session)
            return FetchContext(self, partitions)
        if len(order) > MAX_FETCH_PARTITIONS:
            self._remove(session)
            return FetchContext(self, [], error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        self._touch(session)
        session.epoch = next_epoch(session.epoch)
        # A follower's request looks at what is fresh, not at all that the session has.
        return FetchContext(self, [] if follower else list(order.values()), session=session)

    def create(self, partitions: list[FetchPartition], *, privileged: bool, uses_topic_ids: bool) -> int:
        """Open a session if there is room or someone less worthy of it; its id, or `NO_SESSION`."""
        now_ms = self._now_ms()
        if len(self._sessions) >= self.slots and not self._evict((privileged, len(partitions), 0), now_ms):
            return NO_SESSION
        session_id = self._clock.random.randrange(1, _MAX_SESSION_ID)
        while session_id in self._sessions:
            session_id = self._clock.random.randrange(1, _MAX_SESSION_ID)
        session = FetchSession(
            session_id,
            {part.key: part for part in partitions},
            privileged=privileged,
            uses_topic_ids=uses_topic_ids,
            now_ms=now_ms,
        )
        self._sessions[session_id] = session
        if privileged:
            for part in partitions:
                session.attach(part)
        self._touch(session)
        return session_id

    def _now_ms(self) -> float:
        return self._clock.monotonic() * 1000

    def _evict(self, newcomer: tuple[bool, int, int], now_ms: float) -> bool:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.used_ms > self._min_eviction_ms:
            victim = oldest
        else:
            evictable = self._by_privileged if newcomer[0] else self._by_all
            if not evictable or newcomer < evictable[0]:
                return False
            victim = self._sessions[evictable[0][2]]
        self._remove(victim)
        self.evictions += 1
        return True

    def _touch(self, session: FetchSession) -> None:
        now_ms = self._now_ms()
        session.used_ms = now_ms
        self._sessions[session.id] = self._sessions.pop(session.id)
        key = (session.privileged, len(session.partitions), session.id)
        if key != session.evictable_key:
            _discard(self._by_privileged, session.evictable_key)
            _discard(self._by_all, session.evictable_key)
            session.evictable_key = key
        lived_long = now_ms - session.created_ms > self._min_eviction_ms
        if lived_long or not session.privileged:
            _include(self._by_privileged, key)
        if lived_long:
            _include(self._by_all, key)

    def drop(self, session_id: int) -> None:
        """A follower's connection is gone, and with it its session: it will open another."""
        session = self._sessions.get(session_id)
        if session is not None:
            self._remove(session)

    def _remove(self, session: FetchSession) -> None:
        session.close()
        del self._sessions[session.id]
        _discard(self._by_privileged, session.evictable_key)
        _discard(self._by_all, session.evictable_key)


def _include(keys: list[tuple[bool, int, int]], key: tuple[bool, int, int]) -> None:
    at = bisect_left(keys, key)
    if at == len(keys) or keys[at] != key:
        insort(keys, key)


def _discard(keys: list[tuple[bool, int, int]], key: tuple[bool, int, int]) -> None:
    at = bisect_left(keys, key)
    if at < len(keys) and keys[at] == key:
        del keys[at]
