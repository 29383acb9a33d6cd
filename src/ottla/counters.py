"""What a node counts while it works: plain ints that the hot path adds to, and histograms of them.

An add costs some 20 ns. Nothing here knows how the numbers are shown: `ottla.metrics` reads them at a scrape.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

STEPS: Final = 128
"""Four steps for each power of two of microseconds: the last step begins at 2.1 hours."""
SAMPLE_EACH: Final = 64
"""One request in this many is timed in its parts."""
MAX_VERSION: Final = 31


def _step(micros: int) -> int:
    """The step of a duration of at least 4 µs."""
    bits = micros.bit_length()
    step = (bits - 2) * 4 + (micros >> (bits - 3) & 3)
    return step if step < STEPS else STEPS - 1


_QUICK_MICROS: Final = 1024
_QUICK_STEPS: Final = bytes((0, 1, 2, 3)) + bytes(map(_step, range(4, _QUICK_MICROS)))
"""The steps of durations below a millisecond, which most requests take: a look-up costs half of the calculation."""


class Histogram:
    """Durations by log-linear steps: a step is at most a quarter wider than the one before."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * STEPS
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self.sum_s += seconds
        micros = int(seconds * 1e6)
        if 0 <= micros < _QUICK_MICROS:
            self.counts[_QUICK_STEPS[micros]] += 1
        else:
            self.counts[_step(micros) if micros > 0 else 0] += 1

    @property
    def count(self) -> int:
        return sum(self.counts)


def lower_bound_s(step: int) -> float:
    """The shortest duration of a step, in seconds."""
    if step < 4:
        return step / 1e6
    power, quarter = divmod(step, 4)
    return (4 + quarter) * 2.0 ** (power - 1) / 1e6


def quantile_s(counts: list[int], quantile: float) -> float:
    """The duration that this share of the counted ones does not exceed; 0 without any. Interpolates in a step."""
    total = sum(counts)
    rank = quantile * total
    for step, count in enumerate(counts):
        if count and rank <= count:
            low, high = lower_bound_s(step), lower_bound_s(step + 1)
            return low + (high - low) * rank / count
        rank -= count
    return 0.0


class RequestCounters:
    """The requests of one API, or of one kind of an API (consumers' and followers' fetches)."""

    __slots__ = (
        "_until_sample",
        "dropped",
        "errors",
        "follower",
        "key",
        "local",
        "queue",
        "remote",
        "response_queue",
        "send",
        "taken",
        "total",
        "versions",
    )

    def __init__(self, key: int, follower: RequestCounters | None = None) -> None:
        self.key = key
        self.follower = follower
        """Where requests of followers are counted, for Fetch."""
        self.taken = 0
        self.dropped = 0
        """Requests whose client had gone before the response."""
        self.versions = [0] * (MAX_VERSION + 1)
        """Answered requests by version."""
        self.total = Histogram()
        self.errors: dict[int, int] = {}
        """By error code: how often a response contained it."""
        self._until_sample = 1
        self.queue = Histogram()
        """From its read to its handler, of the sampled requests; so are the next four."""
        self.local = Histogram()
        self.remote = Histogram()
        self.response_queue = Histogram()
        self.send = Histogram()

    def sampled(self) -> bool:
        """Whether to time the parts of this request."""
        self._until_sample -= 1
        if self._until_sample:
            return False
        self._until_sample = SAMPLE_EACH
        return True

    def unsampled(self) -> bool:
        """Whether the parts of this request need no timing. If they do, `sampled` must be asked."""
        if self._until_sample == 1:
            return False
        self._until_sample -= 1
        return True

    def error(self, code: int) -> None:
        """A response contains this error code."""
        self.errors[code] = self.errors.get(code, 0) + 1


class TopicCounters:
    """What clients and followers moved through one topic's replicas on this broker."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetches",
        "failed_produces",
        "fetches",
        "messages_in",
        "produces",
        "replication_bytes_in",
        "replication_bytes_out",
    )

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.bytes_rejected = 0
        self.produces = 0
        self.fetches = 0
        self.failed_produces = 0
        self.failed_fetches = 0
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0

    def add(self, other: TopicCounters) -> None:
        """Add what another one counted."""
        for name in TopicCounters.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def plus(self, others: Collection[TopicCounters]) -> TopicCounters:
        """The sum of this one and others."""
        total = TopicCounters()
        for name in TopicCounters.__slots__:
            setattr(total, name, getattr(self, name) + sum(map(attrgetter(name), others)))
        return total


class ListenerCounters:
    """The connections of one listener."""

    __slots__ = (
        "authentications",
        "bytes_in",
        "bytes_out",
        "closed",
        "created",
        "failed_authentications",
        "requests",
        "responses",
        "software",
    )

    def __init__(self) -> None:
        self.created = 0
        self.closed = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.requests = 0
        self.responses = 0
        self.authentications = 0
        self.failed_authentications = 0
        self.software: dict[tuple[str, str], int] = {}
        """Open connections by name and version of the client's library."""

    def count_software(self, software: tuple[str, str], change: int) -> None:
        """A connection of this library has come or gone."""
        count = self.software.get(software, 0) + change
        if count:
            self.software[software] = count
        else:
            self.software.pop(software, None)


class ReplicaCounters:
    """The partitions of a broker: changes of in-sync sets, and reads that had to wait for the disk."""

    __slots__ = ("cold_reads", "failed_isr_updates", "isr_expands", "isr_shrinks", "state_changes")

    def __init__(self) -> None:
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.failed_isr_updates = 0
        self.cold_reads = 0
        self.state_changes = 0
        """Changes of any replica's leader, in-sync set or settings: text about them can be kept until the next one."""


class QuorumCounters:
    """This node's replica of the metadata log."""

    __slots__ = ("appended", "commits", "elections", "fetched")

    def __init__(self) -> None:
        self.appended = 0
        """Records that this node appended as leader."""
        self.fetched = 0
        """Records that it fetched from a leader."""
        self.commits = Histogram()
        """From a leader's append to its commit."""
        self.elections = Histogram()
        """From the loss of a leader, or the start, to the next one."""


class PeerCounters:
    """The connections to other nodes for one purpose."""

    __slots__ = ("bytes_in", "bytes_out", "requests", "responses")

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.requests = 0
        self.responses = 0


class NodeCounters:
    """Everything that one node counts."""

    __slots__ = ("_requests", "listeners", "peers")

    def __init__(self) -> None:
        self.listeners: dict[str, ListenerCounters] = {}
        self.peers: dict[str, PeerCounters] = {}
        """Connections to other nodes, by purpose."""
        self._requests: dict[int, RequestCounters] = {}

    def listener(self, name: str) -> ListenerCounters:
        """The counters of a listener."""
        return self.listeners.setdefault(name, ListenerCounters())

    def peer(self, purpose: str) -> PeerCounters:
        """The counters of connections for a purpose."""
        return self.peers.setdefault(purpose, PeerCounters())

    def request(self, key: int, *, with_followers: bool = False) -> RequestCounters:
        """The counters of an API."""
        found = self._requests.get(key)
        if found is None:
            follower = RequestCounters(key) if with_followers else None
            found = self._requests[key] = RequestCounters(key, follower)
        return found

    @property
    def requests(self) -> list[RequestCounters]:
        """Those of the APIs that were asked for, by key."""
        return [self._requests[key] for key in sorted(self._requests)]
