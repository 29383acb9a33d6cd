"""Incremental fetch sessions (KIP-227): the partitions that a client fetches, kept between its requests.

Decides which partitions a request covers and which of the results are sent. `ottla.replica.consumer_read` and
`ottla.replica.follower_read` read them; the API builds the messages.

    request epoch   0    full fetch, opens a session if there is room (closing the one it names)
                   -1    full fetch, no session (closing the one it names)
                   n>0   incremental: the session's partitions with the request's changes; must be the epoch
                         that the session expects, which moves on by one

A follower's session is registered with its partitions and notes which of them changed: a fetch costs what the
changed ones cost, however many the session has.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, Generic, TypeVar

from ottla.clock import Clock
from ottla.errors import ErrorCode
from ottla.limits import MAX_FETCH_PARTITIONS
from ottla.replica.fetch_partition import FetchPartition, FollowerPartition, PartitionKey, SentMarks

if TYPE_CHECKING:
    from ottla.replica.follower_read import FollowerRead
    from ottla.wire.messages import FetchResponse

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_MAX_EPOCH: Final = 2**31 - 1
_MAX_SESSION_ID: Final = 2**31 - 1

P = TypeVar("P", bound=FetchPartition)


class FetchSession(Generic[P]):
    """The partitions of one client, in the order in which they are to be read next."""

    __slots__ = ("created_ms", "epoch", "evictable_key", "id", "partitions", "used_ms", "uses_topic_ids")

    privileged: ClassVar[bool] = False
    """Clients' sessions cannot evict it."""

    def __init__(self, partitions: dict[PartitionKey, P], *, uses_topic_ids: bool, now_ms: float) -> None:
        self.id = NO_SESSION
        """Given by the cache that keeps the session."""
        self.partitions = partitions
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.used_ms = now_ms
        self.epoch = next_epoch(INITIAL_EPOCH)
        """The next request must carry this epoch."""
        self.evictable_key = (self.privileged, -1, NO_SESSION)

    def close(self) -> None:
        """Release what the session holds."""


class ConsumerSession(FetchSession[FetchPartition]):
    """A consumer's session."""

    __slots__ = ()

    def change(self, requests: Iterable[FetchPartition], forgotten: Iterable[PartitionKey]) -> None:
        """Add, change and remove partitions as an incremental request says."""
        order = self.partitions
        for part in requests:
            known = order.get(part.key)
            if known is None:
                part.sent = SentMarks()
                order[part.key] = part
            else:
                known.request_again(part)
        for key in forgotten:
            order.pop(key, None)

    def context(self) -> FetchContext:
        """The view of an incremental request: all partitions."""
        return FetchContext(list(self.partitions.values()), session=self)


class FollowerSession(FetchSession[FollowerPartition]):
    """A follower's session, registered with its partitions.

    A fetch without a session, or before there is one, has a session that no cache keeps.
    """

    __slots__ = ("fresh", "parked")

    privileged = True

    def __init__(self, requests: Iterable[FetchPartition], *, uses_topic_ids: bool, now_ms: float) -> None:
        super().__init__({}, uses_topic_ids=uses_topic_ids, now_ms=now_ms)
        self.fresh: dict[FollowerPartition, None] = {}
        """Partitions that may have news, longest waiting first."""
        self.parked: FollowerRead | None = None
        """The request that waits for news."""
        self.change(requests, ())

    def change(self, requests: Iterable[FetchPartition], forgotten: Iterable[PartitionKey]) -> None:
        """Add, change and remove partitions as a request says. The read registers them with hosted partitions."""
        for request in requests:
            part = self.partitions.get(request.key)
            if part is None:
                part = self.partitions[request.key] = FollowerPartition(request, self)
            else:
                part.request_again(request)
                part.requested = True
            self.fresh[part] = None
        for key in forgotten:
            part = self.partitions.pop(key, None)
            if part is not None:
                self._detach(part)

    def context(self) -> FetchContext:
        """The view of an incremental request: it reads what is fresh, not all partitions."""
        return FetchContext((), follower=self)

    def close(self) -> None:
        """Release all partitions. A request that waits ends with its connection."""
        for part in self.partitions.values():
            self._detach(part)

    def _detach(self, part: FollowerPartition) -> None:
        part.session = None
        self.fresh.pop(part, None)
        if part.partition is not None:
            part.partition.log_end_waiters.pop(part, None)


def next_epoch(epoch: int) -> int:
    """The epoch of the request after one with this epoch."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == _MAX_EPOCH else epoch + 1


class FetchContext:
    """One request's view: `partitions` to read in order, and `finish` to select which of the results are sent.

    A follower's request has `follower` set: its session knows what to read.
    """

    __slots__ = (
        "_cache",
        "_expected_epoch",
        "_session",
        "_uses_topic_ids",
        "error",
        "follower",
        "partitions",
    )

    def __init__(
        self,
        partitions: Sequence[FetchPartition],
        *,
        error: ErrorCode = ErrorCode.NONE,
        session: ConsumerSession | None = None,
        follower: FollowerSession | None = None,
        new_session_in: FetchSessionCache | None = None,
        uses_topic_ids: bool = False,
    ) -> None:
        self.error = error
        """If not NONE, the response to the whole request."""
        self.partitions = partitions
        self.follower = follower
        self._cache = new_session_in
        self._session = session
        self._expected_epoch = session.epoch if session is not None else FINAL_EPOCH
        self._uses_topic_ids = uses_topic_ids

    @property
    def incremental(self) -> bool:
        """The client knows the state of the partitions: those that did not change may be left out (`None`)."""
        return self._session is not None or (self.follower is not None and self.follower.id != NO_SESSION)

    def finish(
        self, results: Sequence[FetchResponse.PartitionData | None]
    ) -> tuple[ErrorCode, int, Sequence[tuple[FetchPartition, FetchResponse.PartitionData]]]:
        """Error, session id and the partitions to send, from results in the order of `partitions`."""
        session = self._session
        if session is not None:
            if session.epoch != self._expected_epoch:
                return ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.id, ()
            return ErrorCode.NONE, session.id, self._changed(session, results)
        sent = [(part, data) for part, data in zip(self.partitions, results, strict=True) if data is not None]
        return ErrorCode.NONE, self.open_session(sent), sent

    def throttled(self) -> tuple[ErrorCode, int]:
        """Error and session id of a response without partitions: the session does not note what was read."""
        session = self._session
        if session is None:
            return ErrorCode.NONE, NO_SESSION
        if session.epoch != self._expected_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.id
        return ErrorCode.NONE, session.id

    def _changed(
        self, session: ConsumerSession, results: Sequence[FetchResponse.PartitionData | None]
    ) -> list[tuple[FetchPartition, FetchResponse.PartitionData]]:
        order = session.partitions
        changed = []
        for part, data in zip(self.partitions, results, strict=True):
            if data is not None and part.key in order and part.sent is not None and part.sent.update(data):
                changed.append((part, data))
                if data.records:
                    # Partitions that gave data go to the end of the queue: every partition gets its turn.
                    order[part.key] = order.pop(part.key)
        return changed

    def open_session(self, sent: Iterable[tuple[FetchPartition, FetchResponse.PartitionData]]) -> int:
        """Keep the session that a full fetch opens, if there is room for it; its id, or `NO_SESSION`."""
        cache = self._cache
        if self.follower is not None:
            if self.follower.id == NO_SESSION and (cache is None or not cache.keep(self.follower)):
                self.follower.close()
            return self.follower.id
        if cache is None:
            return NO_SESSION
        session = cache.new_session(self.partitions, uses_topic_ids=self._uses_topic_ids)
        if cache.keep(session):
            for part in self.partitions:
                part.sent = SentMarks()
            for part, data in sent:
                part.sent = SentMarks(data.high_watermark, data.log_start_offset)
        return session.id


class FetchSessionCache:
    """All sessions of the broker, at most `slots` (`max.incremental.fetch.session.cache.slots`)."""

    __slots__ = ("_by_all", "_by_privileged", "_clock", "_min_eviction_ms", "_sessions", "evictions", "slots")

    def __init__(self, clock: Clock, slots: int, *, min_eviction_ms: int = 120_000) -> None:
        self.slots = slots
        self.evictions = 0
        self._clock = clock
        self._min_eviction_ms = min_eviction_ms
        self._sessions: dict[int, ConsumerSession | FollowerSession] = {}
        """In the order of last use, least recent first."""
        self._by_all: list[tuple[bool, int, int]] = []
        """Sorted keys of the sessions that any newcomer may evict: those that have lived long enough."""
        self._by_privileged: list[tuple[bool, int, int]] = []
        """The same for followers' sessions, which may also evict every client's."""

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
            return self._full(unique, version >= 13, follower, self if create else None)
        session = self._sessions.get(session_id)
        if session is None or session.privileged != follower:
            return FetchContext((), error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            return FetchContext((), error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != (version >= 13):
            return FetchContext((), error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        return self._continue(session, partitions, forgotten)

    def _full(
        self,
        partitions: list[FetchPartition],
        uses_topic_ids: bool,
        follower: bool,
        new_session_in: FetchSessionCache | None = None,
    ) -> FetchContext:
        if not follower:
            return FetchContext(partitions, new_session_in=new_session_in, uses_topic_ids=uses_topic_ids)
        session = FollowerSession(partitions, uses_topic_ids=uses_topic_ids, now_ms=self._now_ms())
        parts = list(session.partitions.values())
        return FetchContext(parts, follower=session, new_session_in=new_session_in)

    def _continue(
        self,
        session: ConsumerSession | FollowerSession,
        partitions: list[FetchPartition],
        forgotten: Iterable[PartitionKey],
    ) -> FetchContext:
        if partitions or forgotten:
            session.change(partitions, forgotten)
        if not session.partitions:
            self._remove(session)
            return self._full(partitions, session.uses_topic_ids, session.privileged)
        if len(session.partitions) > MAX_FETCH_PARTITIONS:
            self._remove(session)
            return FetchContext((), error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        self._touch(session)
        session.epoch = next_epoch(session.epoch)
        return session.context()

    def new_session(self, partitions: Iterable[FetchPartition], *, uses_topic_ids: bool) -> ConsumerSession:
        """A consumer's session, not kept yet."""
        by_key = {part.key: part for part in partitions}
        return ConsumerSession(by_key, uses_topic_ids=uses_topic_ids, now_ms=self._now_ms())

    def keep(self, session: ConsumerSession | FollowerSession) -> bool:
        """Keep a session if there is room, or a session that it may evict; gives it its id."""
        now_ms = self._now_ms()
        newcomer = (session.privileged, len(session.partitions), 0)
        if len(self._sessions) >= self.slots and not self._evict(newcomer, now_ms):
            return False
        session_id = self._clock.random.randrange(1, _MAX_SESSION_ID)
        while session_id in self._sessions:
            session_id = self._clock.random.randrange(1, _MAX_SESSION_ID)
        session.id = session_id
        session.created_ms = now_ms
        self._sessions[session_id] = session
        self._touch(session)
        return True

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

    def _touch(self, session: ConsumerSession | FollowerSession) -> None:
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
        """Remove the session of a follower whose connection is closed. The follower will open another."""
        session = self._sessions.get(session_id)
        if session is not None:
            self._remove(session)

    def _remove(self, session: ConsumerSession | FollowerSession) -> None:
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
