"""The history of a run: what its clients did and saw, one operation per line of JSON. The checker reads it.

Times are seconds on a monotonic clock that all clients of a run share: the machine's, or the simulator's. A partition
is `topic-index`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import TypeAlias, get_args


class Outcome(StrEnum):
    """The outcome of an operation. `UNKNOWN` means that the response was lost."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Send:
    """One record of a producer; `number` counts its sends. In a transaction the outcome is that of the send alone."""

    client: str
    number: int
    partition: str
    value: str
    outcome: Outcome
    offset: int = -1
    transaction: str = ""
    began: float = 0.0
    ended: float = 0.0
    copy_of: str = ""
    """The value that it is a copy of."""


@dataclass(frozen=True, slots=True)
class Poll:
    """Records `(partition, offset, value)` in the order in which a consumer handed them out.

    `session` changes with every assignment, rebalance or seek: order is promised within one only.
    """

    client: str
    session: str
    committed: bool
    records: tuple[tuple[str, int, str], ...]
    ended: float = 0.0
    group: str = ""
    final: bool = False
    since: float = 0.0
    """When the session began."""
    start: int = -1
    """The offset at which the session began in each partition; -1 if that is not known."""
    limit: int = -1
    """The high watermark or the last stable offset in the response; -1 if the client does not show it."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """`OK` is committed, `FAILED` is aborted. `ending` is when the commit was requested (0: never)."""

    name: str
    client: str
    outcome: Outcome
    began: float = 0.0
    ending: float = 0.0
    ended: float = 0.0
    reads: tuple[str, ...] = ()
    """The values that it read."""
    group: str = ""
    """The group whose offsets it commits."""
    taken: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The offsets by partition that it read and commits for its group: first and next."""


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """The final committed offsets of a group by partition."""

    group: str
    offsets: dict[str, int]


@dataclass(frozen=True, slots=True)
class Commit:
    """An offset of a group, as a member committed it, or found it (`seen`)."""

    group: str
    partition: str
    offset: int
    outcome: Outcome = Outcome.UNKNOWN
    began: float = 0.0
    ended: float = 0.0
    seen: bool = False


@dataclass(frozen=True, slots=True)
class Delivery:
    """A record of a queue that a member acquired. `accepted` is the outcome of its acknowledgement, if it has one."""

    partition: str
    offset: int
    count: int
    """The delivery count in the response."""
    began: float
    """When the fetch began."""
    leader_epoch: int
    """The leader epoch that the member knew."""
    accepted: Outcome | None = None
    ended: float = 0.0
    """When the response to the acknowledgement came."""


@dataclass(frozen=True, slots=True)
class Renewal:
    """A producer reports a new epoch that it chose itself: from which record on, in which partition.

    It sends some of them again, and a broker cannot know that they came before.
    """

    client: str
    at: float
    partition: str = ""
    values: tuple[str, ...] = ()
    """The known records of the partition from that one on."""


@dataclass(frozen=True, slots=True)
class MirroredPartition:
    """What a mirror's target has of a partition in the end, and where groups stand at both sides."""

    mirror: str
    partition: str
    """Its name at the source."""
    records: tuple[tuple[int, str], ...]
    """The offset at the target and the value."""
    groups: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The offset of a group at the source and at the target."""


@dataclass(frozen=True, slots=True)
class FilledTable:
    """The rows of a table that a sink connector filled from topics, in the end."""

    connector: str
    partitions: tuple[str, ...]
    rows: tuple[tuple[str, int, str], ...]
    """The partition, offset and value of each row."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault, and its begin and end."""

    kind: str
    what: str
    began: float = 0.0
    ended: float = 0.0


Operation: TypeAlias = (
    Send
    | Poll
    | Transaction
    | GroupOffsets
    | Commit
    | Delivery
    | Renewal
    | MirroredPartition
    | FilledTable
    | Fault
)
_KINDS: dict[str, type[Operation]] = {kind.__name__.lower(): kind for kind in get_args(Operation)}


@dataclass(slots=True)
class History:
    """All operations of a run by kind, in the order in which they ended."""

    sends: list[Send] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    groups: list[GroupOffsets] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    renewals: list[Renewal] = field(default_factory=list)
    mirrored: list[MirroredPartition] = field(default_factory=list)
    tables: list[FilledTable] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    every_send_is_known: bool = False
    """Whether a record that is in no `Send` cannot have been sent."""
    delivery_limit: int = 0
    """How often a queue gives out a record; 0 if that is not known."""

    @classmethod
    def of(cls, operations: Iterable[Operation]) -> History:
        history = cls()
        for operation in operations:
            history.add(operation)
        return history

    def add(self, operation: Operation) -> None:
        match operation:
            case Send():
                self.sends.append(operation)
            case Poll():
                self.polls.append(operation)
            case Transaction():
                self.transactions.append(operation)
            case GroupOffsets():
                self.groups.append(operation)
            case Commit():
                self.commits.append(operation)
            case Delivery():
                self.deliveries.append(operation)
            case Renewal():
                self.renewals.append(operation)
            case MirroredPartition():
                self.mirrored.append(operation)
            case FilledTable():
                self.tables.append(operation)
            case Fault():
                self.faults.append(operation)


class Recorder:
    """Records a history from several threads, and writes it to disk line by line."""

    def __init__(self, path: Path) -> None:
        self.history = History()
        self.acknowledged = 0
        self.polled = 0
        self._news = threading.Condition()
        self._file = path.open("w", encoding="utf-8")

    def add(self, operation: Operation) -> None:
        line = json.dumps({"op": type(operation).__name__.lower(), **asdict(operation)})
        with self._news:
            self.history.add(operation)
            self._file.write(line + "\n")
            if isinstance(operation, Send) and operation.outcome is Outcome.OK:
                self.acknowledged += 1
                self._news.notify_all()
            elif isinstance(operation, Poll):
                self.polled += len(operation.records)

    def wait_for_more(self, count: int, timeout_s: float) -> bool:
        """Wait for this many more acknowledged sends. Returns False after a timeout."""
        with self._news:
            goal = self.acknowledged + count
            return self._news.wait_for(lambda: self.acknowledged >= goal, timeout_s)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def read_history(path: Path) -> History:
    """Read a run's history from its file."""
    return History.of(_read(path))


def _read(path: Path) -> Iterator[Operation]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            fields = json.loads(line)
            kind = _KINDS[fields.pop("op")]
            for name in ("outcome", "accepted"):
                if fields.get(name) is not None:
                    fields[name] = Outcome(fields[name])
            if "taken" in fields:
                fields["taken"] = {part: (first, end) for part, (first, end) in fields["taken"].items()}
            if "groups" in fields:
                fields["groups"] = {group: (here, there) for group, (here, there) in fields["groups"].items()}
            for name in ("records", "rows"):
                if name in fields:
                    fields[name] = tuple(tuple(each) for each in fields[name])
            for name in ("reads", "values", "partitions"):
                if name in fields:
                    fields[name] = tuple(fields[name])
            yield kind(**fields)
