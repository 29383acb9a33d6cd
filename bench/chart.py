"""Draws the result: ratios as bars around the line of equality, and curves over size. Plain SVG, light and dark.

`python -m bench.chart bench-result.json docs` draws both into a directory.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Mapping
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from bench.rows.growth import LOG_SIZE, PARTITION_CURVE
from bench.rows.processes import PROCESSES
from bench.sheet import KAFKA, OTTLA

_STYLE = """<style>
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.small { font-size: 11px; fill: #59636e }
.title { font-weight: 600; font-size: 15px }
.better, .ottla { fill: #1a7f64; stroke: #1a7f64 }
.worse { fill: #bc4c00; stroke: #bc4c00 }
.kafka { fill: #6e7781; stroke: #6e7781 }
.line { fill: none; stroke-width: 2 }
tspan { stroke: none }
.axis { stroke: #1f2328; stroke-width: 1 }
.grid { stroke: #d1d9e0; stroke-width: 1 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc }
  .small { fill: #9198a1 }
  .better, .ottla { fill: #3fb68b; stroke: #3fb68b }
  .worse { fill: #f0883e; stroke: #f0883e }
  .kafka { fill: #9198a1; stroke: #9198a1 }
  .axis { stroke: #f0f6fc }
  .grid { stroke: #3d444d }
}
</style>"""

_WIDTH = 860
_BARS_WIDTH = 905
_LABEL_WIDTH = 420
_BAR_HEIGHT = 14
_BAR_STEP = 22
_MOST = 32.0
"""Ratios beyond this (or its inverse) are drawn at the edge; their label has the figure."""

_SHOWN = (
    ("100 B", "produce"),
    ("1000 B", "produce"),
    ("100 B", "consume"),
    ("1000 B", "consume"),
    ("100 B", "fetch, bare socket"),
    ("1000 B", "fetch, bare socket"),
    ("100 B acks=all", "produce"),
    ("100 B 1,000 partitions", "produce"),
    ("100 B zstd", "produce"),
    ("one-record requests, 1 in flight", "librdkafka"),
    ("one-record requests, 5 in flight", "librdkafka"),
    ("200 connections, 100 B", "requests"),
    ("Java tools, 100 B acks=1", "ProducerPerformance"),
    ("Java tools, 1000 B acks=1", "ProducerPerformance"),
    ("Java tools, 1000 B acks=1", "ConsumerPerformance"),
    ("commits", "one after the other"),
    ("transactions", "one after the other"),
    ("latency at 20 k/s", "ack p99"),
    ("latency at 20 k/s", "end-to-end p99"),
    ("100 B", "produce broker CPU"),
    ("1000 B", "produce broker CPU"),
    ("1000 B", "consume broker CPU"),
    ("1000 B", "memory under load"),
    ("start", "exec to first answer"),
    ("restart with 5,000 partitions", "first write after a clean stop"),
    ("restart with 5,000 partitions", "first write after kill -9"),
)
"""The figures for the README's chart, as far as a run has them."""


class Bar(NamedTuple):
    label: str
    ratio: float
    better: bool


def write(result: dict[str, Any], directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "bench.svg").write_text(bars(result))
    (directory / "bench-curves.svg").write_text(curves(result))
    if points := _points(result, PROCESSES_PANEL, {"requests": "produce"}):
        (directory / "bench-processes.svg").write_text(over_processes(points))


# -- ratios


def bars(result: dict[str, Any]) -> str:
    """Throughput above, where longer is better; costs below, where shorter is."""
    metrics = {(metric["row"], metric["name"]): metric for metric in result["metrics"]}
    shown = [metrics[key] for key in _SHOWN if key in metrics and metrics[key]["ratio"]]
    parts: list[str] = []
    y = 30
    for higher, title in (
        (True, "Throughput, Ottla / Apache Kafka: right of the line Ottla does more"),
        (False, "Cost, Ottla / Apache Kafka: left of the line Ottla takes less"),
    ):
        group = [
            Bar(f"{metric['row']}: {metric['name']}", metric["ratio"], (metric["ratio"] >= 1) == higher)
            for metric in shown
            if metric["higher_is_better"] == higher
        ]
        if group:
            parts.append(f'<text class="title" x="12" y="{y}">{escape(title)}</text>')
            parts.append(_bar_group(group, y + 16))
            y += 16 + len(group) * _BAR_STEP + 50
    return _svg(parts, y - 20, "Ottla beside Apache Kafka: ratios", _BARS_WIDTH)


def _bar_group(group: list[Bar], top: int) -> str:
    left, right = _LABEL_WIDTH, _BARS_WIDTH - 70
    ratios = [min(max(bar.ratio, 1 / _MOST), _MOST) for bar in group]
    low = math.log2(min(0.5, *ratios))
    high = math.log2(max(2.0, *ratios))

    def x(ratio: float) -> float:
        place = min(max(math.log2(max(ratio, 1e-9)), low), high)
        return left + (place - low) / (high - low) * (right - left)

    bottom = top + len(group) * _BAR_STEP
    parts = []
    for power in range(math.ceil(low), math.floor(high) + 1):
        at = x(2.0**power)
        name = f"{2**power}x" if power >= 0 else f"1/{2**-power}x"
        parts.append(
            f'<line class="{"axis" if power == 0 else "grid"}" x1="{at:.1f}" y1="{top}" x2="{at:.1f}" '
            f'y2="{bottom}"/><text class="small" x="{at:.1f}" y="{bottom + 14}" text-anchor="middle">{name}</text>'
        )
    for n, bar in enumerate(group):
        y = top + n * _BAR_STEP + 4
        start, end = sorted((x(1.0), x(bar.ratio)))
        parts.append(
            f'<text x="{left - 10}" y="{y + 11}" text-anchor="end">{escape(bar.label)}</text>'
            f'<rect class="{"better" if bar.better else "worse"}" x="{start:.1f}" y="{y}" '
            f'width="{max(end - start, 1):.1f}" height="{_BAR_HEIGHT}"/>'
            f'<text x="{right + 8}" y="{y + 11}">{bar.ratio:.2f}x</text>'
        )
    return "\n".join(parts)


# -- curves


class _Panel(NamedTuple):
    title: str
    prefix: str
    suffix: str
    unit: str


_PANELS = (
    _Panel("Records/s of 100 B over the number of partitions", PARTITION_CURVE, "partitions", ""),
    _Panel("Records/s of 1 kB at the end of a growing log", LOG_SIZE, "GB", " GB"),
)
PROCESSES_PANEL = _Panel(
    "Requests/s of 200 connections over the broker processes of one machine", PROCESSES, "processes", ""
)
_PANEL_HEIGHT = 230


def curves(result: dict[str, Any]) -> str:
    """One panel for each kind of growth: produce as a full line, consume as a dashed one."""
    parts: list[str] = []
    y = 30
    for panel in _PANELS:
        points = _points(result, panel)
        if points:
            parts.append(f'<text class="title" x="12" y="{y}">{escape(panel.title)}</text>')
            parts.append(_panel(points, panel, y + 20))
            y += _PANEL_HEIGHT + 90
    if parts:
        parts.append(
            f'<text class="small" x="12" y="{y - 20}">full line: produce, dashed: consume; '
            f'<tspan class="ottla">Ottla</tspan> and <tspan class="kafka">Apache Kafka</tspan></text>'
        )
    return _svg(parts, y, "Throughput as work grows")


Curve = dict[float, float]


def over_processes(points: dict[tuple[str, str], Curve]) -> str:
    """One panel: what a machine does with one process, with two, and so on."""
    top, title = 30, PROCESSES_PANEL.title
    bottom = top + _PANEL_HEIGHT + 60
    parts = [
        f'<text class="title" x="12" y="{top}">{escape(title)}</text>',
        _panel(points, PROCESSES_PANEL, top + 20),
        f'<text class="small" x="12" y="{bottom}"><tspan class="ottla">Ottla</tspan> and '
        f'<tspan class="kafka">Apache Kafka</tspan>, always one process; the clients run on the same cores</text>',
    ]
    return _svg(parts, bottom + 20, title)


_DIRECTIONS = {"produce": "produce", "consume": "consume"}


def _points(
    result: dict[str, Any], panel: _Panel, names: Mapping[str, str] = MappingProxyType(_DIRECTIONS)
) -> dict[tuple[str, str], Curve]:
    """Size to records/s, by system and direction; `names` are the figures of a direction."""
    found: dict[tuple[str, str], Curve] = {}
    for metric in result["metrics"]:
        row = metric["row"]
        if not row.startswith(panel.prefix) or metric["name"] not in names:
            continue
        size = float(row.removeprefix(panel.prefix).removesuffix(panel.suffix).strip().replace(",", ""))
        for system in (OTTLA, KAFKA):
            if values := metric["samples"].get(system):
                found.setdefault((system, names[metric["name"]]), {})[size] = statistics.median(values)
    return found


def _panel(points: dict[tuple[str, str], Curve], panel: _Panel, top: int) -> str:
    left, right, bottom = 90, _WIDTH - 40, top + _PANEL_HEIGHT
    sizes = sorted({size for curve in points.values() for size in curve})
    most = max(rate for curve in points.values() for rate in curve.values())
    step = 10 ** math.floor(math.log10(most))
    step = step if most / step >= 4 else step / 2
    span = math.log(sizes[-1] / sizes[0]) if len(sizes) > 1 else 1.0

    def x(size: float) -> float:
        return left + math.log(size / sizes[0]) / span * (right - left)

    def y(rate: float) -> float:
        return bottom - rate / (most * 1.05) * _PANEL_HEIGHT

    parts = []
    for n in range(int(most / step) + 1):
        at = y(n * step)
        parts.append(
            f'<line class="{"grid" if n else "axis"}" x1="{left}" y1="{at:.1f}" x2="{right}" y2="{at:.1f}"/>'
            f'<text class="small" x="{left - 8}" y="{at + 4:.1f}" text-anchor="end">{n * step:,.0f}</text>'
        )
    for size in sizes:
        parts.append(
            f'<text class="small" x="{x(size):.1f}" y="{bottom + 16}" text-anchor="middle">'
            f"{size:,g}{panel.unit}</text>"
        )
    for (system, name), curve in points.items():
        path = " ".join(f"{x(size):.1f},{y(rate):.1f}" for size, rate in sorted(curve.items()))
        dashes = ' stroke-dasharray="6 4"' if name == "consume" else ""
        parts.append(f'<polyline class="{system} line" style="fill: none"{dashes} points="{path}"/>')
        parts += [
            f'<circle class="{system}" cx="{x(size):.1f}" cy="{y(rate):.1f}" r="3"/>'
            for size, rate in curve.items()
        ]
    return "\n".join(parts)


def _svg(parts: list[str], height: int, title: str, width: int = _WIDTH) -> str:
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img">\n<title>{escape(title)}</title>\n{_STYLE}\n{body}\n</svg>\n'
    )


if __name__ == "__main__":
    write(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
