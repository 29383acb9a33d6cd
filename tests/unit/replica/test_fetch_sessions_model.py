"""Fetch sessions against a model: a client that remembers all responses always knows the current state."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from effort import examples
from ottla.errors import ErrorCode
from ottla.replica.fetch_partition import FetchPartition
from ottla.replica.fetch_sessions import FetchSessionCache
from ottla.testing.virtual_clock import VirtualClock
from ottla.wire.messages import FetchResponse

INDEXES = st.integers(0, 5)
VERSION = 12


class OneClient(RuleBasedStateMachine):
    """A client fetches through sessions while partitions change; others compete for the cache's slots."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = VirtualClock()
        self.cache = FetchSessionCache(self.clock, slots=2, min_eviction_ms=1000)
        self.truth = dict.fromkeys(range(6), (0, 0))
        """High watermark and log start offset."""
        self.known: dict[int, tuple[int, int]] = {}
        self.fetched: dict[int, int] = {}
        """The partitions that the client fetches, with their offsets."""
        self.session_id = 0
        self.epoch = 0

    def respond(self, context, with_records: set[int]) -> tuple[int, dict[int, tuple[int, int]]]:
        assert {part.index: part.fetch_offset for part in context.partitions} == self.fetched
        results = []
        for part in context.partitions:
            high_watermark, log_start = self.truth[part.index]
            results.append(
                FetchResponse.PartitionData(
                    partition_index=part.index,
                    high_watermark=high_watermark,
                    log_start_offset=log_start,
                    records=b"r" if part.index in with_records else b"",
                )
            )
        error, session_id, sent = context.finish(results)
        assert error == ErrorCode.NONE
        reported = {part.index: (data.high_watermark, data.log_start_offset) for part, data in sent}
        assert with_records & self.fetched.keys() <= reported.keys()
        return session_id, reported

    @rule(indexes=st.sets(INDEXES), offset=st.integers(0, 100), with_records=st.sets(INDEXES))
    def full_fetch(self, indexes, offset, with_records):
        self.fetched = dict.fromkeys(sorted(indexes), offset)
        parts = [FetchPartition("t", index, offset, 100) for index in self.fetched]
        context = self.cache.open(VERSION, self.session_id, 0, parts)
        self.session_id, self.known = self.respond(context, with_records)
        assert self.known.keys() == self.fetched.keys()
        self.epoch = 1 if self.session_id else 0

    @precondition(lambda self: self.session_id)
    @rule(
        add=st.sets(INDEXES),
        forget=st.sets(INDEXES),
        offset=st.integers(0, 100),
        with_records=st.sets(INDEXES),
    )
    def incremental_fetch(self, add, forget, offset, with_records):
        forget -= add
        parts = [FetchPartition("t", index, offset, 100) for index in add]
        context = self.cache.open(
            VERSION, self.session_id, self.epoch, parts, [("t", index) for index in forget]
        )
        if context.error:
            assert context.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "only eviction may end the session"
            self.session_id, self.epoch, self.known, self.fetched = 0, 0, {}, {}
            return
        self.fetched.update(dict.fromkeys(add, offset))
        for index in forget:
            self.fetched.pop(index, None)
            self.known.pop(index, None)
        session_id, reported = self.respond(context, with_records)
        self.known.update(reported)
        self.epoch += 1
        if not self.fetched:
            assert session_id == 0
            self.session_id, self.epoch = 0, 0
        else:
            assert session_id == self.session_id

    @precondition(lambda self: self.session_id)
    @rule(epoch=st.integers(1, 100))
    def request_with_a_wrong_epoch(self, epoch):
        if epoch != self.epoch:
            error = self.cache.open(VERSION, self.session_id, epoch, []).error
            assert error in (ErrorCode.INVALID_FETCH_SESSION_EPOCH, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    @rule(index=INDEXES, by=st.integers(1, 9), log_start=st.booleans())
    def partition_changes(self, index, by, log_start):
        high_watermark, start = self.truth[index]
        self.truth[index] = (high_watermark, start + by) if log_start else (high_watermark + by, start)

    @rule(count=st.integers(1, 9), follower=st.booleans())
    def someone_else_comes(self, count, follower):
        others = [FetchPartition("other", index, 0, 100) for index in range(count)]
        context = self.cache.open(VERSION, 0, 0, others, follower=follower)
        context.finish([FetchResponse.PartitionData(partition_index=part.index) for part in others])

    @rule(milliseconds=st.integers(1, 1500))
    def time_passes(self, milliseconds):
        self.clock.advance_ms(milliseconds)

    @invariant()
    def the_cache_keeps_its_bound(self):
        assert len(self.cache) <= 2
        sessions = self.cache._sessions
        for keys in (self.cache._by_all, self.cache._by_privileged):
            assert keys == sorted(set(keys))
            assert all(sessions[key[2]].evictable_key == key for key in keys)

    @precondition(lambda self: self.session_id)
    @rule()
    def quiet_fetch_tells_all_there_is_to_know(self):
        self.incremental_fetch(set(), set(), 0, set())
        assert {index: self.truth[index] for index in self.fetched} == self.known


TestOneClient = OneClient.TestCase
TestOneClient.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
