"""What the sampler knows about a cluster. Pages read it; only the sampler changes it.

Columns of a topic are arrays by partition number. The sampler replaces a column as a whole, so that a page that reads
while a round goes on sees an old column or a new one.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ottla.console.sampler.rings import History
from ottla.console.sampler.samples import UNKNOWN

if TYPE_CHECKING:
    from ottla.admin.groups import Group
    from ottla.admin.partitions import Partition
    from ottla.console.sampler.ask import OffsetQuestions
    from ottla.console.sampler.samples import GroupSample
    from ottla.console.sampler.why import Finding

KEPT_SAMPLES: Final = 41
"""Ten minutes of samples of a group, 15 seconds apart."""
SAMPLE_EACH_S: Final = 15.0


FOR_EVER: Final = -1


def _column() -> array[int]:
    return array("q")


@dataclass(slots=True)
class TopicState:
    """A topic and its partitions."""

    name: str
    topic_id: str
    internal: bool
    leaders: list[int] = field(default_factory=list)
    replicas: list[tuple[int, ...]] = field(default_factory=list)
    isr: list[tuple[int, ...]] = field(default_factory=list)
    starts: array[int] = field(default_factory=_column)
    ends: array[int] = field(default_factory=_column)
    sizes: array[int] = field(default_factory=_column)
    """Bytes of the largest replica of each partition."""
    disk: int = 0
    """Bytes of all replicas."""
    stale: frozenset[int] = frozenset()
    """Partitions whose leader did not answer in the last round."""
    rate: float = 0.0
    byte_rate: float = 0.0
    history: History | None = None
    past_ends: deque[tuple[float, array[int]]] = field(default_factory=lambda: deque(maxlen=KEPT_SAMPLES))
    compacted: bool = False
    keep_ms: int | None = None
    """After which retention deletes records by their age, or `FOR_EVER`; None until it is known."""
    written_s: float = 0.0
    """When records came in last, as far as the sampler saw it."""
    _counted: tuple[array[int], array[int], int] | None = None
    """Starts, ends, and the records between them: columns are replaced and never changed."""
    _weighed: tuple[array[int], int] | None = None

    @property
    def partitions(self) -> int:
        return len(self.leaders)

    @property
    def records(self) -> int:
        known = self._counted
        if known is not None and known[0] is self.starts and known[1] is self.ends:
            return known[2]
        starts, ends = self.starts, self.ends
        count = sum(end - start for start, end in zip(starts, ends, strict=False) if end >= start >= 0)
        self._counted = starts, ends, count
        return count

    @property
    def size(self) -> int:
        known = self._weighed
        if known is not None and known[0] is self.sizes:
            return known[1]
        sizes = self.sizes
        total = sum(each for each in sizes if each > 0)
        self._weighed = sizes, total
        return total

    @property
    def headless(self) -> list[int]:
        """Partitions without a leader."""
        if min(self.leaders, default=0) >= 0:
            return []
        return [number for number, leader in enumerate(self.leaders) if leader < 0]

    @property
    def lacking(self) -> list[int]:
        """Partitions with a leader that lack an in-sync replica."""
        if list(map(len, self.isr)) == list(map(len, self.replicas)):
            return []
        return [
            number
            for number, leader in enumerate(self.leaders)
            if leader >= 0 and len(self.isr[number]) < len(self.replicas[number])
        ]

    @property
    def led_by_others(self) -> list[int]:
        """Partitions that another replica leads than the first one, which should."""
        return [
            number
            for number, replicas in enumerate(self.replicas)
            if replicas and replicas[0] != self.leaders[number]
        ]

    @property
    def replication(self) -> int:
        return max((len(each) for each in self.replicas), default=0)


@dataclass(slots=True)
class GroupState:
    """A group of any kind."""

    group_id: str
    kind: str
    protocol: str
    state: str
    members: int = UNKNOWN
    coordinator: int = UNKNOWN
    described: Group | None = None
    committed: dict[Partition, int] = field(default_factory=dict)
    committed_s: float = 0.0
    lag: int = 0
    lag_s: float | None = None
    rate: float = 0.0
    history: History | None = None
    places: dict[Partition, int] = field(default_factory=dict)
    """The partitions that it has committed offsets of, with their places in the columns of its samples."""
    by_topic: dict[str, list[int]] = field(default_factory=dict)
    """The same by topic."""
    topic_lags: dict[str, int] = field(default_factory=dict)
    samples: deque[GroupSample] = field(default_factory=lambda: deque(maxlen=KEPT_SAMPLES))
    findings: list[Finding] = field(default_factory=list)
    seen_s: float = 0.0

    @property
    def topics(self) -> list[str]:
        return sorted({topic for topic, _ in self.committed})


@dataclass(slots=True)
class Directory:
    """A log directory of a broker."""

    path: str
    total: int
    usable: int
    used: int
    error: str = ""


@dataclass(slots=True)
class NodeState:
    """A broker or controller."""

    node_id: int
    host: str
    port: int
    rack: str | None
    broker: bool = True
    controller: bool = False
    fenced: bool = False
    answers: bool = True
    silent_since_s: float | None = None
    directories: list[Directory] = field(default_factory=list)


@dataclass(slots=True)
class Voter:
    """A voter or observer of the metadata quorum."""

    node_id: int
    directory_id: str
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int
    voter: bool


@dataclass(slots=True)
class QuorumState:
    """The metadata quorum as its leader knows it."""

    leader: int
    epoch: int
    high_watermark: int
    voters: list[Voter]
    addresses: dict[int, str] = field(default_factory=dict)


@dataclass(slots=True)
class ClusterState:
    """One cluster, as the last rounds saw it."""

    name: str
    cluster_id: str = ""
    topics: dict[str, TopicState] = field(default_factory=dict)
    groups: dict[str, GroupState] = field(default_factory=dict)
    nodes: dict[int, NodeState] = field(default_factory=dict)
    quorum: QuorumState | None = None
    controller: int = UNKNOWN
    round: int = 0
    taken_s: float = 0.0
    """When the last round ended, by the wall clock; 0 before the first."""
    took_s: float = 0.0
    sizes_s: float = 0.0
    """When sizes were asked for last."""
    has_byte_rates: bool = False
    """Whether sizes were asked for twice: before, a rate of 0 would only mean that it is not known."""
    questions: dict[int, OffsetQuestions] = field(default_factory=dict)
    """The requests for offsets of the present topics, by the moment that they ask for."""
    problem: str = ""
    """Why the last round failed."""
    rate: History = field(default_factory=History)
    byte_rate: History = field(default_factory=History)
    records_per_s: float = 0.0
    bytes_per_s: float = 0.0
    own_topics: list[TopicState] = field(default_factory=list)
    """The topics that are not Kafka's own, by name."""
    headless: int = 0
    """Partitions without a leader ..."""
    lacking: int = 0
    """... and partitions that lack a replica."""
    disk: int = 0
    """Bytes of all replicas of all topics."""
    topic_lags: dict[str, dict[str, int]] = field(default_factory=dict)
    """For each topic the groups that read it, and how many of its records each has not read."""

    @property
    def ready(self) -> bool:
        return self.round > 0

    def partitions(self) -> Iterator[tuple[TopicState, int]]:
        for topic in self.topics.values():
            for number in range(topic.partitions):
                yield topic, number

    def set_topics(self, topics: dict[str, TopicState]) -> None:
        """Take over topics, sorted by name, and what pages ask about all of them."""
        self.topics = topics
        self.own_topics = [each for each in topics.values() if not each.internal]
        self.headless = sum(len(each.headless) for each in topics.values())
        self.lacking = sum(len(each.lacking) for each in topics.values())

    def lag_of(self, topic: str) -> int | None:
        """The greatest lag of a group on a topic; None without groups."""
        return max(self.topic_lags.get(topic, {}).values(), default=None)
