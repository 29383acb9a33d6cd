"""Turns samples into a JSON document with the machine's facts, and such a document into a page of ratios.

`python -m bench.report bench-result.json` prints the page.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

from bench import machine
from bench.sheet import KAFKA, OTTLA, Sheet

Document = dict[str, Any]
"""What `bench-result.json` holds."""


def document(sheet: Sheet, scale: str) -> Document:
    facts = machine.facts()
    return {
        "machine": facts,
        "scale": scale,
        "notes": sheet.notes,
        "metrics": [
            {
                "row": metric.row,
                "name": metric.name,
                "unit": metric.unit,
                "higher_is_better": metric.higher_is_better,
                "samples": metric.samples,
                "ratio": _ratio(metric.samples),
                "commit": facts["commit"],
            }
            for metric in sheet.metrics.values()
        ],
    }


def joined(old: Document, new: Document) -> Document:
    """A run's result with the rows of an earlier one that it did not measure again."""
    again = {metric["row"] for metric in new["metrics"]}
    return new | {
        "notes": list(dict.fromkeys(old["notes"] + new["notes"])),
        "metrics": [metric for metric in old["metrics"] if metric["row"] not in again] + new["metrics"],
    }


def _ratio(samples: dict[str, list[float]]) -> float | None:
    """Ottla / Kafka of the medians."""
    if not samples.get(OTTLA) or not samples.get(KAFKA):
        return None
    peer = statistics.median(samples[KAFKA])
    return statistics.median(samples[OTTLA]) / peer if peer else None


def _figure(values: list[float] | None) -> str:
    if not values:
        return "-"
    middle = statistics.median(values)
    shown = f"{middle:,.0f}" if middle >= 100 else f"{middle:.3g}"
    if len(values) == 1 or not middle:
        return shown
    spread = (max(values) - min(values)) / 2 / middle * 100
    return f"{shown} ±{spread:.0f}%"


def page(result: Document) -> str:
    """The whole result as Markdown: where it was measured, ratios, figures of one side alone, notes."""
    compared = [metric for metric in result["metrics"] if metric["ratio"] is not None]
    alone = [(metric, one) for metric in result["metrics"] for one in _beside(metric)]
    parts = [_machine_line(result)]
    if compared:
        parts.append(_ratios(compared))
    if alone:
        parts.append(_alone(alone))
    if result["notes"]:
        parts.append("\n".join(f"- {note}" for note in result["notes"]))
    return "\n\n".join(parts)


def _machine_line(result: Document) -> str:
    facts = result["machine"]
    commits = ", ".join(dict.fromkeys(metric["commit"] for metric in result["metrics"]))
    return (
        f"{facts['cores']} cores of {facts['cpu']}, {facts['memory_gb']} GB, Linux {facts['kernel']}; "
        f"Python {facts['python']} with uvloop {facts['uvloop']}; Apache Kafka {facts['kafka']} on "
        f"{facts['java']}; {facts['librdkafka']}; commit {commits}; {result['scale']} form."
    )


def _ratios(metrics: list[dict[str, Any]]) -> str:
    lines = ["| row | figure | unit | Ottla | Apache Kafka | Ottla / Kafka |", "|---|---|---|---:|---:|---:|"]
    for metric in metrics:
        ours, theirs = (_figure(metric["samples"].get(name)) for name in (OTTLA, KAFKA))
        ratio = metric["ratio"]
        good = ratio >= 1 if metric["higher_is_better"] else ratio <= 1
        shown = f"{ratio:.2f}x" if good else f"**{ratio:.2f}x**"
        lines.append(
            f"| {metric['row']} | {metric['name']} | {metric['unit']} | {ours} | {theirs} | {shown} |"
        )
    return "\n".join(lines)


def _beside(metric: dict[str, Any]) -> list[str]:
    """The systems whose figures the table of ratios does not have."""
    return [one for one in metric["samples"] if metric["ratio"] is None or one not in (OTTLA, KAFKA)]


def _alone(figures: list[tuple[dict[str, Any], str]]) -> str:
    lines = ["| row | figure | unit | of | value |", "|---|---|---|---|---:|"]
    for metric, system in figures:
        shown = _figure(metric["samples"][system])
        lines.append(f"| {metric['row']} | {metric['name']} | {metric['unit']} | {system} | {shown} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(page(json.loads(Path(sys.argv[1]).read_text())))
