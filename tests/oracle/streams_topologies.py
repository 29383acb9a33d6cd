"""The topologies of `java/StreamsOracle.java`, in the same words here: name, output topics, builder."""

from __future__ import annotations

from collections.abc import Callable

from ottla.streams import (
    JoinWindows,
    KGroupedStream,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    StreamsBuilder,
    hopping,
    session,
    sliding,
    tumbling,
    until_time_limit,
    until_window_closes,
)

TOPOLOGIES: dict[str, tuple[list[str], Callable[[StreamsBuilder], None]]] = {}


def topology(name: str, *outputs: str) -> Callable[[Callable[[StreamsBuilder], None]], None]:
    def register(build: Callable[[StreamsBuilder], None]) -> None:
        TOPOLOGIES[name] = (list(outputs), build)

    return register


def show(left: str | None, right: str | None) -> str:
    return f"{'null' if left is None else left}+{'null' if right is None else right}"


def grouped(b: StreamsBuilder, topic: str = "a") -> KGroupedStream:
    return b.stream(topic).group_by_key()


def within(before: int, after: int, grace: int) -> JoinWindows:
    return JoinWindows(before, after, grace)


def append(_key: str, value: str | None, result: str) -> str:
    return result + ("null" if value is None else value)


def plus(one: str | None, other: str | None) -> str:
    return _or_null(one) + _or_null(other)


@topology(
    "stateless",
    *("filtered", "mapped", "flat", "pairs", "merged", "nulls", "low", "rest", "again", "again-named"),
)
def stateless(b: StreamsBuilder) -> None:
    a = b.stream("a")
    a.filter(lambda _, v: v is not None and v < "m").map_values(lambda v: v + "!").to("filtered")
    a.filter_not(lambda _, v: v is None).map(lambda k, v: (v, k)).to("mapped")
    flat = a.filter(lambda _, v: v is not None).flat_map_values(lambda v: [v, v + v])
    flat.select_key(lambda _, v: v).peek(lambda _, v: None).to("flat")
    a.filter(lambda _, v: v is not None).flat_map(lambda _, v: [(v, "1"), ("x", v)]).to("pairs")
    a.merge(b.stream("b")).to("merged")
    branches = (
        a.split(name="by-")
        .branch(lambda _, v: v is None, name="null")
        .branch(lambda _, v: v < "m", name="low")
        .default_branch(name="rest")
    )
    branches["by-null"].to("nulls")
    branches["by-low"].to("low")
    branches["by-rest"].to("rest")
    a.split().branch(lambda _, v: v is None).branch(lambda _, v: True).no_default_branch()
    a.repartition().to("again")
    a.repartition(name="renamed").to("again-named")
    a.foreach(lambda _, v: None)


@topology("aggregates", "count", "reduce", "aggregate", "regrouped", "rekeyed")
def aggregates(b: StreamsBuilder) -> None:
    g = grouped(b)
    g.count().to_stream().to("count")
    g.reduce(lambda x, y: x + y).to_stream().to("reduce")
    g.aggregate(">", append).to_stream().to("aggregate")
    b.stream("b").group_by(lambda _, v: v).count(store="named").to_stream().to("regrouped")
    b.stream("c").select_key(lambda _, v: v).group_by_key(name="grp").count().to_stream().to("rekeyed")


@topology("wordcount", "counts")
def wordcount(b: StreamsBuilder) -> None:
    letters = b.stream("a").flat_map_values(lambda v: list(v))
    letters.group_by(lambda _, v: v).count().to_stream().to("counts")


@topology("tumbling", "count", "aggregate")
def tumbling_windows(b: StreamsBuilder) -> None:
    grouped(b).windowed_by(tumbling(20)).count().to_stream().to("count")
    grouped(b, "b").windowed_by(tumbling(20, grace=15)).aggregate("", append).to_stream().to("aggregate")


@topology("hopping", "reduce")
def hopping_windows(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(hopping(20, 7, grace=10))
    windowed.reduce(plus).to_stream().to("reduce")


@topology("sliding", "aggregate", "count")
def sliding_windows(b: StreamsBuilder) -> None:
    grouped(b).windowed_by(sliding(10, grace=30)).aggregate("", append).to_stream().to("aggregate")
    grouped(b, "b").windowed_by(sliding(10)).count().to_stream().to("count")


@topology("sessions", "count", "aggregate", "reduce")
def sessions(b: StreamsBuilder) -> None:
    grouped(b).windowed_by(session(10)).count().to_stream().to("count")
    windowed = grouped(b, "b").windowed_by(session(10, grace=20))
    windowed.aggregate("", append, lambda _, x, y: x + y).to_stream().to("aggregate")
    reduced = grouped(b, "c").windowed_by(session(5, grace=5)).reduce(plus)
    reduced.to_stream().to("reduce")


@topology("suppress", "final", "sessions", "limited")
def suppress(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(tumbling(20, grace=5)).count()
    windowed.suppress(until_window_closes()).to_stream().to("final")
    in_sessions = grouped(b, "b").windowed_by(session(10, grace=5)).count()
    in_sessions.suppress(until_window_closes()).to_stream().to("sessions")
    counted = grouped(b, "c").count()
    counted.suppress(until_time_limit(15, max_records=2)).to_stream().to("limited")


@topology("emit-on-close", "windows", "sessions", "sliding")
def emit_on_close(b: StreamsBuilder) -> None:
    grouped(b).windowed_by(tumbling(20, grace=5)).emit_on_window_close().count().to_stream().to("windows")
    in_sessions = grouped(b, "b").windowed_by(session(10, grace=5)).emit_on_window_close().count()
    in_sessions.to_stream().to("sessions")
    slid = grouped(b, "c").windowed_by(sliding(10, grace=5)).emit_on_window_close().count()
    slid.to_stream().to("sliding")


@topology("stream-joins", "inner", "left", "outer")
def stream_joins(b: StreamsBuilder) -> None:
    left, right = b.stream("a"), b.stream("b")
    left.join(right, show, within(10, 10, 5)).to("inner")
    left.left_join(right, show, within(15, 5, 10)).to("left")
    left.outer_join(right, show, within(5, 12, 3)).to("outer")


@topology("rekeyed-join", "inner", "table")
def rekeyed_join(b: StreamsBuilder) -> None:
    left = b.stream("a").filter(lambda _, v: v is not None).select_key(lambda _, v: v)
    right = b.stream("b").filter(lambda _, v: v is not None).map(lambda k, v: (v, k))
    left.join(right, show, within(10, 10, 5), store="jn").to("inner")
    left.left_join(b.table("c"), show).to("table")


@topology("stream-table", "inner", "left", "filtered", "global", "global-left")
def stream_table(b: StreamsBuilder) -> None:
    table = b.table("b")
    stream = b.stream("a")
    stream.join(table, show).to("inner")
    stream.left_join(table.map_values(lambda v: v + "'"), show).to("left")
    low = table.filter(lambda _, v: v < "m")
    stream.left_join(low, lambda k, x, y: f"{_or_null(k)}:{x}{_or_null(y)}").to("filtered")
    everywhere = b.global_table("c")
    stream.join(everywhere, show, key=lambda _, v: v).to("global")
    stream.left_join(everywhere, show, key=lambda k, _: k).to("global-left")


def _or_null(value: str | None) -> str:
    return "null" if value is None else value


@topology("tables", "filtered", "filtered-kept", "mapped", "count", "aggregate", "reduce", "made")
def tables(b: StreamsBuilder) -> None:
    table = b.table("a")
    table.filter(lambda _, v: v < "m").to_stream().to("filtered")
    table.filter_not(lambda _, v: v < "m", store="kept").to_stream().to("filtered-kept")
    table.map_values(lambda k, v: k + v).to_stream().to("mapped")
    g = table.group_by(lambda k, v: (v, k))
    g.count().to_stream().to("count")
    g.aggregate("", append, lambda _, v, result: f"{result}-{v}").to_stream().to("aggregate")
    g.reduce(lambda x, y: x + y, lambda x, y: f"{x}-{y}").to_stream().to("reduce")
    b.stream("b").to_table().to_stream(lambda _, v: v).to("made")


@topology("table-joins", "inner", "left", "outer", "counted")
def table_joins(b: StreamsBuilder) -> None:
    left, right = b.table("a"), b.table("b")
    left.join(right, show).to_stream().to("inner")
    left.left_join(right, show).to_stream().to("left")
    left.outer_join(right, show, store="outer-store").to_stream().to("outer")
    low = left.join(right.filter(lambda _, v: v < "m"), show)
    low.group_by(lambda k, v: (v, k)).count().to_stream().to("counted")


@topology("foreign-keys", "inner", "left")
def foreign_keys(b: StreamsBuilder) -> None:
    left, right = b.table("a"), b.table("b")

    def refers_to(value: str) -> str | None:
        return None if value == "z" else value[0]

    left.join(right, show, foreign_key=refers_to).to_stream().to("inner")
    left.left_join(right, show, foreign_key=refers_to).to_stream().to("left")


@topology("cogroup", "all", "windowed")
def cogroup(b: StreamsBuilder) -> None:
    one, two = grouped(b), grouped(b, "b")
    three = b.stream("c").filter(lambda _, v: v is not None).group_by(lambda _, v: v)
    (
        one.cogroup(append)
        .cogroup(two, lambda _, v, result: result + v.upper())
        .cogroup(three, lambda _, v, result: f"{result}.{v}")
        .aggregate("")
        .to_stream()
        .to("all")
    )
    four = b.stream("d").filter(lambda _, v: v is not None).group_by_key()
    windowed = four.cogroup(append).windowed_by(tumbling(20, grace=5))
    windowed.aggregate("").to_stream().to("windowed")


class Tally(Processor):
    """Counts what it sees; forwards the count as stream time passes, and ticks with the clock."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.store = context.store("tally")
        context.schedule(50, PunctuationType.STREAM_TIME, self.emit)
        context.schedule(1000, PunctuationType.WALL_CLOCK_TIME, self.tick)

    def emit(self, now: int) -> None:
        for key, value in self.store.all():
            self.context.forward(Record(key, f"stream:{value}", now))

    def tick(self, now: int) -> None:
        self.context.forward(Record("clock", "tick", now))

    def process(self, record: Record) -> None:
        if record.key is not None:
            held = self.store.get(record.key) or ""
            self.store.put(record.key, held + ("null" if record.value is None else record.value))


@topology("processor", "out")
def processor(b: StreamsBuilder) -> None:
    b.add_state_store("tally")
    b.stream("a").process(Tally, stores=["tally"]).to("out")
