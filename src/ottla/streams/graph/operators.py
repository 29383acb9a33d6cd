"""What a node of a topology does, as data. Engines read it; nothing here runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ottla.streams.functions import Function, Joiner
from ottla.streams.graph.views import View
from ottla.streams.serdes import Serde
from ottla.streams.windows import JoinWindows, SessionWindows, SlidingWindows, Suppressed, TimeWindows


class OnError(Enum):
    """What happens to a record that cannot be read or processed."""

    FAIL = "fail"
    SKIP = "skip"
    DEAD_LETTER = "dead-letter"


class StoreKind(Enum):
    KEY_VALUE = "key-value"
    WINDOW = "window"
    SESSION = "session"
    BUFFER = "buffer"
    OUTER_JOIN = "outer-join"
    SUBSCRIPTIONS = "subscriptions"


@dataclass(slots=True)
class Store:
    """A state store: its name is what keeps its content when the application changes."""

    name: str
    kind: StoreKind
    retention_ms: int = 0
    kept_longer_ms: int = 0
    window_ms: int = 0
    keep_duplicates: bool = False
    key_serde: Serde[Any] | None = None
    value_serde: Serde[Any] | None = None
    timestamped: bool = True
    global_: bool = False
    logged: bool = True


@dataclass(slots=True)
class Source:
    topics: tuple[str, ...]
    key_serde: Serde[Any] | None
    value_serde: Serde[Any] | None
    timestamp_of: Callable[[Any, int], int] | None = None
    internal: bool = False
    on_error: OnError = OnError.FAIL
    dead_letter_topic: str | None = None
    changes: bool = False
    """The values are changes of a table (a grouped table's repartition topic)."""


@dataclass(slots=True)
class Sink:
    topic: str | Function
    key_serde: Serde[Any] | None
    value_serde: Serde[Any] | None
    internal: bool = False
    partitioner: Callable[[Any, Any, int], int | None] | None = None
    partitions: int | None = None


@dataclass(slots=True)
class Map:
    mapper: Function


@dataclass(slots=True)
class SelectKey:
    mapper: Function


@dataclass(slots=True)
class MapValues:
    mapper: Function


@dataclass(slots=True)
class FlatMap:
    mapper: Function


@dataclass(slots=True)
class FlatMapValues:
    mapper: Function


@dataclass(slots=True)
class Filter:
    predicate: Function
    negate: bool = False


@dataclass(slots=True)
class Peek:
    action: Function


@dataclass(slots=True)
class Foreach:
    action: Function


@dataclass(slots=True)
class Print:
    label: str


@dataclass(slots=True)
class Branch:
    """Children in order; the first predicate that holds decides, and a child beyond them is the default."""

    predicates: list[Function] = field(default_factory=list)
    children: list[str] = field(default_factory=list)
    default: str | None = None


@dataclass(slots=True)
class PassThrough:
    pass


@dataclass(slots=True)
class Gate:
    """Stands before a repartition topic: records without a key go no further, unless an outer join waits for them."""

    keeps_null_keys: bool = False


@dataclass(slots=True)
class Process:
    """A processor of the user's own: `make` gives a fresh one for each task."""

    make: Callable[[], Any]
    fixed_key: bool = False


@dataclass(slots=True)
class Aggregate:
    store: str
    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    is_count: bool = False
    send_old: bool = False


@dataclass(slots=True)
class Reduce:
    store: str
    reducer: Callable[[Any, Any], Any]
    send_old: bool = False


@dataclass(slots=True)
class WindowAggregate:
    store: str
    windows: TimeWindows
    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    is_count: bool = False
    emit_on_close: bool = False
    send_old: bool = False


@dataclass(slots=True)
class SlidingAggregate:
    store: str
    windows: SlidingWindows
    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    emit_on_close: bool = False
    send_old: bool = False


@dataclass(slots=True)
class SessionAggregate:
    store: str
    windows: SessionWindows
    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    merger: Callable[[Any, Any, Any], Any]
    emit_on_close: bool = False
    send_old: bool = False


@dataclass(slots=True)
class TableSource:
    """A stream read as a table; kept in a store only when someone needs to look values up."""

    store: str
    materialized: bool = False
    send_old: bool = False


@dataclass(slots=True)
class GlobalTableSource:
    store: str


@dataclass(slots=True)
class TableFilter:
    predicate: Function
    negate: bool
    store: str | None = None
    send_old: bool = False


@dataclass(slots=True)
class TableMapValues:
    mapper: Function
    store: str | None = None
    send_old: bool = False


@dataclass(slots=True)
class TableToStream:
    pass


@dataclass(slots=True)
class TableSelect:
    """Gives each row of a table a new key and value, as what to take away and what to add."""

    mapper: Function


@dataclass(slots=True)
class TableAggregate:
    store: str
    initializer: Callable[[], Any]
    adder: Callable[[Any, Any, Any], Any]
    subtractor: Callable[[Any, Any, Any], Any]
    send_old: bool = False


@dataclass(slots=True)
class TableReduce:
    store: str
    adder: Callable[[Any, Any], Any]
    subtractor: Callable[[Any, Any], Any]
    send_old: bool = False


@dataclass(slots=True)
class Suppress:
    store: str
    suppressed: Suppressed
    grace_ms: int
    windowed: bool


@dataclass(slots=True)
class JoinWindow:
    """Remembers one side of a stream-stream join."""

    store: str


@dataclass(slots=True)
class StreamJoinSide:
    """One side of a stream-stream join: looks for partners among what the other side remembers."""

    other_store: str
    outer_store: str | None
    windows: JoinWindows
    joiner: Joiner
    left_side: bool
    outer: bool
    clock: str
    """Both sides share one idea of time, under this name."""


@dataclass(slots=True)
class StreamTableJoin:
    table: View
    joiner: Joiner
    left: bool
    key_of: Function | None = None
    """For global tables: which key to look up."""


class JoinKind(Enum):
    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    OUTER = "outer"


@dataclass(slots=True)
class TableJoinSide:
    """One side of a table-table join; RIGHT is the right side of a left join."""

    other: View
    joiner: Joiner
    kind: JoinKind
    send_old: bool = False


@dataclass(slots=True)
class TableJoinMerge:
    store: str | None = None
    send_old: bool = False


@dataclass(slots=True)
class ForeignSend:
    """Tells the other table's task which foreign key a row refers to now."""

    foreign_key: Function
    left: bool


@dataclass(slots=True)
class ForeignReceive:
    store: str


@dataclass(slots=True)
class ForeignLookup:
    foreign_table: View


@dataclass(slots=True)
class ForeignChanged:
    """A row of the foreign table changed: tell every row that refers to it."""

    store: str


@dataclass(slots=True)
class ForeignResolve:
    table: View
    joiner: Joiner
    left: bool


@dataclass(slots=True)
class TableReplica:
    """A copy of a table for a stage that runs after it."""

    store: str


Operator = (
    Source
    | Sink
    | Map
    | SelectKey
    | MapValues
    | FlatMap
    | FlatMapValues
    | Filter
    | Peek
    | Foreach
    | Print
    | Branch
    | PassThrough
    | Gate
    | Process
    | Aggregate
    | Reduce
    | WindowAggregate
    | SlidingAggregate
    | SessionAggregate
    | TableSource
    | GlobalTableSource
    | TableFilter
    | TableMapValues
    | TableToStream
    | TableSelect
    | TableAggregate
    | TableReduce
    | Suppress
    | JoinWindow
    | StreamJoinSide
    | StreamTableJoin
    | TableJoinSide
    | TableJoinMerge
    | ForeignSend
    | ForeignReceive
    | ForeignLookup
    | ForeignChanged
    | ForeignResolve
    | TableReplica
)
