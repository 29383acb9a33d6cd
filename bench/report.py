"""Turns samples into a table of ratios and a JSON document with the machine's facts."""

from __future__ import annotations

import json
import os
import platform
import statistics
from pathlib import Path
from typing import Any

from bench.rows import Metric, Sheet


def ratio(metric: Metric) -> float | None:
    """Ottla / Kafka of the medians."""
    if not metric.samples.get("ottla") or not metric.samples.get("kafka"):
        return None
    peer = statistics.median(metric.samples["kafka"])
    return statistics.median(metric.samples["ottla"]) / peer if peer else None


def _figure(values: list[float] | None) -> str:
    if not values:
        return "-"
    middle = statistics.median(values)
    spread = (max(values) - min(values)) / 2 / middle * 100 if middle else 0.0
    shown = f"{middle:,.0f}" if middle >= 100 else f"{middle:.3g}"
    return f"{shown} ±{spread:.0f}%"


def table(sheet: Sheet) -> str:
    lines = [
        "| row | figure | unit | Ottla | Apache Kafka | Ottla / Kafka |",
        "|---|---|---|---:|---:|---:|",
    ]
    for metric in sheet.metrics.values():
        value = ratio(metric)
        shown = f"{value:.2f}x" if value is not None else "-"
        ours, theirs = (_figure(metric.samples.get(name)) for name in ("ottla", "kafka"))
        lines.append(f"| {metric.row} | {metric.name} | {metric.unit} | {ours} | {theirs} | {shown} |")
    return "\n".join(lines)


def document(sheet: Sheet) -> dict[str, Any]:
    return {
        "machine": {
            "cpu": _cpu_model(),
            "cores": os.cpu_count(),
            "kernel": platform.release(),
            "python": platform.python_version(),
        },
        "metrics": [
            {
                "row": metric.row,
                "name": metric.name,
                "unit": metric.unit,
                "higher_is_better": metric.higher_is_better,
                "samples": metric.samples,
                "ratio": ratio(metric),
            }
            for metric in sheet.metrics.values()
        ],
    }


def write_json(sheet: Sheet, path: Path) -> None:
    path.write_text(json.dumps(document(sheet), indent=1) + "\n")


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown"
    )
