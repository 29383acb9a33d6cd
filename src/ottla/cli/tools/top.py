"""`ottla top`: a cluster's rates, lag and partitions in trouble, live."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import click

from ottla.admin.machines import by_machine, is_shared
from ottla.cli.tools.base import Flags, Session, tool
from ottla.cli.tools.cluster_sample import Sample, group_rates, take, topic_rates
from ottla.cli.tools.failures import UsageProblem

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.live import Live

_ROWS: Final = 20
_UNITS: Final = ("B", "kB", "MB", "GB", "TB")


class TopFlags(Flags):
    """The flags of `ottla top`."""

    interval: float
    iterations: int | None
    internal: bool


@tool(
    "top",
    click.option("--interval", type=float, default=2.0, metavar="SECONDS", help="Time between two looks."),
    click.option("--iterations", type=int, metavar="COUNT", help="End after so many looks."),
    click.option("--internal", is_flag=True, help="Also Kafka's own topics."),
)
def top(session: Session, flags: TopFlags) -> None:
    """Watch a cluster. Ctrl-C ends it."""
    if flags.interval <= 0:
        raise UsageProblem(f"--interval {flags.interval}: expected more than 0")
    before = take(session.cluster, internal=flags.internal)
    live = sys.stdout.isatty() and not session.as_json
    left = flags.iterations
    with contextlib.suppress(KeyboardInterrupt), _screen(live) as screen:
        while left is None or left > 0:
            time.sleep(flags.interval)
            now = take(session.cluster, internal=flags.internal)
            if screen is not None:
                screen.update(_page(session, before, now), refresh=True)
            else:
                session.result(_document(before, now), _lines(before, now))
            before = now
            left = None if left is None else left - 1


@contextlib.contextmanager
def _screen(live: bool) -> Iterator[Live | None]:
    if not live:
        yield None
        return
    from rich.live import Live

    with Live(screen=True, auto_refresh=False) as screen:
        yield screen


def size_text(count: float) -> str:
    """Bytes in the unit that leaves three digits."""
    unit = 0
    while count >= 1000 and unit < len(_UNITS) - 1:
        count, unit = count / 1000, unit + 1
    return f"{count:.0f} {_UNITS[unit]}" if unit == 0 else f"{count:.1f} {_UNITS[unit]}"


def _document(before: Sample, now: Sample) -> dict[str, object]:
    return {
        "brokers": now.brokers,
        "controller": now.controller,
        "topics": [asdict(each) for each in topic_rates(before, now)],
        "groups": [asdict(each) for each in group_rates(before, now)],
        "nodes": [asdict(each) for each in now.nodes],
        "machines": by_machine(now.hosts),
        "underReplicated": now.lacking,
        "offline": now.headless,
    }


def _summary(before: Sample, now: Sample) -> str:
    topics = topic_rates(before, now)
    machines = by_machine(now.hosts)
    where = (
        f" on {len(machines)} {'machine' if len(machines) == 1 else 'machines'}"
        if is_shared(machines)
        else ""
    )
    return (
        f"{len(now.brokers)} brokers{where}, {len(topics)} topics, {len(now.ends)} partitions:"
        f" {sum(each.records_per_s for each in topics):,.0f} records/s,"
        f" {size_text(sum(each.bytes_per_s for each in topics))}/s;"
        f" {len(now.lacking)} under-replicated, {len(now.headless)} without a leader"
    )


def _topic_cells(before: Sample, now: Sample) -> list[list[str]]:
    return [
        [
            each.topic,
            str(each.partitions),
            f"{each.records_per_s:,.0f}",
            f"{size_text(each.bytes_per_s)}",
            f"{each.records:,}",
            size_text(each.bytes),
        ]
        for each in topic_rates(before, now)[:_ROWS]
    ]


def _group_cells(before: Sample, now: Sample) -> list[list[str]]:
    return [
        [each.group, each.state, f"{each.records_per_s:,.0f}", f"{each.lag:,}"]
        for each in group_rates(before, now)[:_ROWS]
    ]


def _node_cells(before: Sample, now: Sample) -> list[list[str]]:
    """Nodes that show their metrics; their rates are those between two looks."""
    earlier = {each.node_id: each.requests for each in before.nodes}
    passed_s = max(now.moment_s - before.moment_s, 0.001)
    return [
        [
            str(each.node_id),
            f"{100 * each.busy:.0f} %",
            f"{max(each.requests - earlier.get(each.node_id, each.requests), 0) / passed_s:,.0f}",
            f"{each.produce_p99_ms:,.1f}",
            f"{each.fetch_p99_ms:,.1f}",
            f"{each.connections:,.0f}",
            size_text(each.memory_bytes),
            f"{1000 * each.longest_stall_s:,.0f} ms",
        ]
        for each in now.nodes[:_ROWS]
    ]


def _machine_cells(before: Sample, now: Sample) -> list[list[str]]:
    """Machines that run several brokers: what their brokers show, added up."""
    machines = by_machine(now.hosts)
    if not is_shared(machines):
        return []
    earlier = {each.node_id: each.requests for each in before.nodes}
    shown = {each.node_id: each for each in now.nodes}
    passed_s = max(now.moment_s - before.moment_s, 0.001)
    cells = []
    for host, brokers in machines.items():
        mine = [shown[each] for each in brokers if each in shown]
        answered = sum(max(each.requests - earlier.get(each.node_id, each.requests), 0) for each in mine)
        numbers = (
            [
                f"{sum(each.busy for each in mine):.2f} cores",
                f"{answered / passed_s:,.0f}",
                f"{sum(each.connections for each in mine):,.0f}",
                size_text(sum(each.memory_bytes for each in mine)),
            ]
            if mine
            else ["-"] * 4
        )
        cells.append([host, ", ".join(map(str, brokers)), *numbers])
    return cells[:_ROWS]


_MACHINE_TITLES: Final = ("MACHINE", "BROKERS", "BUSY", "REQUESTS/S", "CONNECTIONS", "MEMORY")
_TOPIC_TITLES: Final = ("TOPIC", "PARTITIONS", "RECORDS/S", "BYTES/S", "RECORDS", "SIZE")
_GROUP_TITLES: Final = ("GROUP", "STATE", "RECORDS/S", "LAG")
_NODE_TITLES: Final = (
    *(
        "NODE",
        "BUSY",
        "REQUESTS/S",
        "PRODUCE P99 MS",
        "FETCH P99 MS",
        "CONNECTIONS",
        "MEMORY",
        "LONGEST STALL",
    ),
)


def _lines(before: Sample, now: Sample) -> list[str]:
    from ottla.cli.tools.columns import row, widest

    lines = [_summary(before, now)]
    for titles, rows in (
        (_TOPIC_TITLES, _topic_cells(before, now)),
        (_GROUP_TITLES, _group_cells(before, now)),
        (_MACHINE_TITLES, _machine_cells(before, now)),
        (_NODE_TITLES, _node_cells(before, now)),
    ):
        if rows:
            widths = [
                widest(8, [cells[index] for cells in [list(titles), *rows]]) for index in range(len(titles))
            ]
            lines += ["", *(row(cells, widths).rstrip() for cells in [titles, *rows])]
    for title, names in (("without a leader", now.headless), ("under-replicated", now.lacking)):
        if names:
            lines += ["", f"{title}: {', '.join(names[:_ROWS])}"]
    return lines


def _page(session: Session, before: Sample, now: Sample) -> Group:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    parts: list[RenderableType] = [
        Text(f"{session.bootstrap}  {time.strftime('%H:%M:%S')}", style="dim"),
        Text(_summary(before, now), style="red bold" if now.headless or now.lacking else "bold"),
    ]
    for titles, rows in (
        (_TOPIC_TITLES, _topic_cells(before, now)),
        (_GROUP_TITLES, _group_cells(before, now)),
        (_MACHINE_TITLES, _machine_cells(before, now)),
        (_NODE_TITLES, _node_cells(before, now)),
    ):
        table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
        for index, title in enumerate(titles):
            table.add_column(title.lower(), justify="left" if index == 0 or title == "STATE" else "right")
        for cells in rows:
            table.add_row(*cells)
        if rows:
            parts += [Text(""), table]
    for title, names in (("without a leader", now.headless), ("under-replicated", now.lacking)):
        if names:
            parts += [Text(""), Text(f"{title}: {', '.join(names[:_ROWS])}", style="red")]
    return Group(*parts)
