"""The operators of a topology, as data. Engines read them; nothing here runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from ottla.streams.functions import Aggregator, Function, Joiner, Reducer
from ottla.streams.graph.views import View
from ottla.streams.serdes import AnySerde
from ottla.streams.type_variables import K2, V2, K, V
from ottla.streams.windows import JoinWindows, SessionWindows, SlidingWindows, Suppressed, TimeWindows

if TYPE_CHECKING:
    from ottla.streams.interpreter.context import Processor

TimestampExtractor = Callable[[V, int], int]
"""(value, the record's own time) to milliseconds; a negative time drops the record."""

Partitioner = Callable[[K, V, int], int | None]
"""(key, value, number of partitions) to a partition; None leaves the choice to the hash of the key."""

ProcessorSupplier = Callable[[], "Processor[K, V, K2, V2]"]
"""Makes a processor for each task: a class, or a function."""


class OnError(Enum):
    """The rule for a record that cannot be read or processed."""

    FAIL = "fail"
    SKIP = "skip"
    DEAD_LETTER = "dead-letter"


class StoreKind(Enum):
    """The kinds of state stores: by key, by window, and those that one operator uses for itself."""

    KEY_VALUE = "key-value"
    WINDOW = "window"
    SESSION = "session"
    BUFFER = "buffer"
    OUTER_JOIN = "outer-join"
    SUBSCRIPTIONS = "subscriptions"


@dataclass(slots=True)
class Store:
    """A state store; under its name the content is found again after the application has changed."""

    name: str
    kind: StoreKind
    retention_ms: int = 0
    kept_longer_ms: int = 0
    window_ms: int = 0
    keep_duplicates: bool = False
    key_serde: AnySerde | None = None
    value_serde: AnySerde | None = None
    timestamped: bool = True
    global_: bool = False
    logged: bool = True


@dataclass(slots=True)
class Source:
    """Reads topics; `internal` ones are repartition topics."""

    topics: tuple[str, ...]
    key_serde: AnySerde | None
    value_serde: AnySerde | None
    timestamp_of: TimestampExtractor | None = None
    internal: bool = False
    on_error: OnError = OnError.FAIL
    dead_letter_topic: str | None = None
    changes: bool = False
    """The values are changes of a table (a grouped table's repartition topic)."""


@dataclass(slots=True)
class Sink:
    """Writes to a topic; a function may choose the topic for each record."""

    topic: str | Function[str]
    key_serde: AnySerde | None
    value_serde: AnySerde | None
    internal: bool = False
    partitioner: Partitioner | None = None
    partitions: int | None = None


@dataclass(slots=True)
class Map:
    """Gives each record a new key and value."""

    mapper: Function


@dataclass(slots=True)
class SelectKey:
    """Gives each record a new key."""

    mapper: Function


@dataclass(slots=True)
class MapValues:
    """Gives each record a new value."""

    mapper: Function


@dataclass(slots=True)
class FlatMap:
    """Makes any number of records of one."""

    mapper: Function


@dataclass(slots=True)
class FlatMapValues:
    """Makes any number of records of one, with its key."""

    mapper: Function


@dataclass(slots=True)
class Filter:
    """Passes the records for which a predicate holds."""

    predicate: Function
    negate: bool = False


@dataclass(slots=True)
class Peek:
    """Calls a function and passes the record on."""

    action: Function


@dataclass(slots=True)
class Foreach:
    """Calls a function; the stream ends here."""

    action: Function


@dataclass(slots=True)
class Print:
    """Writes each record to the standard output."""

    label: str


@dataclass(slots=True)
class Branch:
    """Passes a record to the child of the first predicate that holds, else to the default child."""

    predicates: list[Function] = field(default_factory=list)
    children: list[str] = field(default_factory=list)
    default: str | None = None


@dataclass(slots=True)
class PassThrough:
    """Passes records on unchanged: a merge, or a branch."""


@dataclass(slots=True)
class Gate:
    """Stands before a repartition topic and drops records without a key, unless an outer join needs them."""

    keeps_null_keys: bool = False


@dataclass(slots=True)
class Process:
    """Runs a processor of the user's own; `make` makes one for each task."""

    make: ProcessorSupplier
    fixed_key: bool = False


@dataclass(slots=True)
class Aggregate:
    """Folds the records of a key into a result of another type."""

    store: str
    initializer: Callable[[], object]
    aggregator: Aggregator
    is_count: bool = False
    send_old: bool = False


@dataclass(slots=True)
class Reduce:
    """Folds the records of a key into a result of the same type."""

    store: str
    reducer: Reducer
    send_old: bool = False


@dataclass(slots=True)
class WindowAggregate:
    """Aggregates in tumbling or hopping windows."""

    store: str
    windows: TimeWindows
    initializer: Callable[[], object]
    aggregator: Aggregator
    is_count: bool = False
    emit_on_close: bool = False
    send_old: bool = False


@dataclass(slots=True)
class SlidingAggregate:
    """Aggregates in sliding windows."""

    store: str
    windows: SlidingWindows
    initializer: Callable[[], object]
    aggregator: Aggregator
    emit_on_close: bool = False
    send_old: bool = False


@dataclass(slots=True)
class SessionAggregate:
    """Aggregates in sessions; `merger` joins the results of two sessions that grow together."""

    store: str
    windows: SessionWindows
    initializer: Callable[[], object]
    aggregator: Aggregator
    merger: Aggregator
    emit_on_close: bool = False
    send_old: bool = False


@dataclass(slots=True)
class TableSource:
    """Reads a stream as a table; it is kept in a store only where an operator looks values up."""

    store: str
    materialized: bool = False
    send_old: bool = False


@dataclass(slots=True)
class GlobalTableSource:
    """Keeps all rows of a topic in every task."""

    store: str


@dataclass(slots=True)
class TableFilter:
    """Passes the rows for which a predicate holds, and deletes the others downstream."""

    predicate: Function
    negate: bool
    store: str | None = None
    send_old: bool = False


@dataclass(slots=True)
class TableMapValues:
    """Gives each row a new value."""

    mapper: Function
    store: str | None = None
    send_old: bool = False


@dataclass(slots=True)
class TableToStream:
    """Turns a table's changes into records."""


@dataclass(slots=True)
class TableSelect:
    """Gives each row of a table a new key and value, as what to take away and what to add."""

    mapper: Function


@dataclass(slots=True)
class TableAggregate:
    """Folds the rows of a new key into a result; a changed row is first taken away."""

    store: str
    initializer: Callable[[], object]
    adder: Aggregator
    subtractor: Aggregator
    send_old: bool = False


@dataclass(slots=True)
class TableReduce:
    """Like TableAggregate, with a result of the same type as the rows."""

    store: str
    adder: Reducer
    subtractor: Reducer
    send_old: bool = False


@dataclass(slots=True)
class Suppress:
    """Holds a table's changes back."""

    store: str
    suppressed: Suppressed
    grace_ms: int
    windowed: bool


@dataclass(slots=True)
class JoinWindow:
    """Keeps the records of one side of a stream-stream join."""

    store: str


@dataclass(slots=True)
class StreamJoinSide:
    """One side of a stream-stream join: looks for partners among the records of the other side."""

    other_store: str
    outer_store: str | None
    windows: JoinWindows
    joiner: Joiner
    left_side: bool
    outer: bool
    clock: str
    """The name of the clock that both sides share."""


@dataclass(slots=True)
class StreamTableJoin:
    """Looks up each record of a stream in a table."""

    table: View
    joiner: Joiner
    left: bool
    key_of: Function | None = None
    """For global tables: which key to look up."""


class JoinKind(Enum):
    """The kinds of table joins, seen from one side."""

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
    """Brings both sides of a table join together."""

    store: str | None = None
    send_old: bool = False


@dataclass(slots=True)
class ForeignSend:
    """Sends a subscription to the other table's task: which foreign key a row refers to now."""

    foreign_key: Function
    left: bool


@dataclass(slots=True)
class ForeignReceive:
    """Keeps the subscriptions to a foreign table's rows."""

    store: str


@dataclass(slots=True)
class ForeignLookup:
    """Responds to a subscription with the foreign row."""

    foreign_table: View


@dataclass(slots=True)
class ForeignChanged:
    """Sends a changed row of the foreign table to every row that refers to it."""

    store: str


@dataclass(slots=True)
class ForeignResolve:
    """Joins a response with the row that asked for it."""

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
