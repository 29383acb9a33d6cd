"""The design system on one page: colours, type, and every component with made-up content.

People look here before they build a page, and after they change the style sheets.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Final

from ottla.console.pages.log import BatchRow, strip_widths
from ottla.console.pages.records import Row, row
from ottla.console.pages.schemas import differences
from ottla.console.plans import Plan
from ottla.console.reader.records import Seen
from ottla.console.render import num, short
from ottla.console.sampler.why import BAD, INFO, OK, WARN, Finding
from ottla.console.security.roles import CHANGE
from ottla.console.web import Values, View, page
from ottla.records.batch import BatchHeader

SURFACES: Final = ("bg", "surface", "sunken", "line")
INKS: Final = ("ink", "ink-2", "ink-3", "accent", "ok", "warn", "bad", "info")
SOFTS: Final = ("accent", "ok", "warn", "bad", "info")
SERIES: Final = ("orders", "clicks", "users", "payments", "refunds", "others")
TYPES: Final = (
    ("h1", "Title", "22/28, 650"),
    ("h2", "Heading of a card", "15/22, 650"),
    ("text", "Text of a page", "14/22, 400"),
    ("cell", "Cell of a table", "13/20, 400"),
    ("small", "Caption", "12/16, 400"),
    ("label", "Label in capitals", "11/16, 600"),
    ("mono", "orders-3 at 81,204", "12.5, monospace"),
)
_FINDINGS: Final = (
    Finding(
        BAD,
        "",
        "Partition orders-4 stands at 81,204 for 12 min.",
        "4,011 records wait",
        "Look at the record.",
    ),
    Finding(WARN, "", "It reads 1,100/s, 1,900/s come in: about 2 more members are needed.", "lag rises"),
    Finding(INFO, "", "It will be level in about 14 min."),
    Finding(OK, "", "It has read everything."),
)


@dataclass(frozen=True, slots=True)
class Line:
    """A row of the table."""

    name: str
    tag: str
    tone: str
    rate: float
    values: list[float]
    share: float
    lag: int | None
    stale: bool = False


def _wave(turns: float, height: float = 100.0, points: int = 60) -> list[float]:
    return [height * (1.2 + math.sin(turns * 6.28 * index / points)) / 2.2 for index in range(points)]


def _header(base: int, size: int, attributes: int = 4, count: int = 50) -> BatchHeader:
    now_ms = int(time.time() * 1000)
    return BatchHeader(base, size, 3, 2, 0, attributes, count - 1, now_ms, now_ms, 9001, 0, base, count)


def _records() -> list[Row]:
    header = _header(81_200, 3_400)
    now_ms = int(time.time() * 1000)
    value = b'{"id": 12345678901234567890, "total": 41.5}'
    plain = Seen("orders", 4, 81_204, now_ms, b"customer-7", value, [("trace", b"4bf92f")], header)
    gone = Seen("orders", 4, 81_205, now_ms, b"customer-8", b"never seen", [], header, aborted=True)
    marker = Seen("orders", 4, 81_206, now_ms, None, None, [], header, control="ABORT")
    return [row(each) for each in (plain, gone, marker)]


def _batches() -> list[BatchRow]:
    found = []
    tones = ("", "", "transactional", "", "aborted", "marker", "", "broken", "")
    for index, tone in enumerate(tones):
        header = _header(50 * index, 2_000 + 900 * (index % 4), 0x14 if tone == "transactional" else 4)
        marker = "abort" if tone == "marker" else ""
        found.append(BatchRow(header, tone != "broken", None, tone == "aborted", marker, 0))
    return found


async def _nothing() -> str:
    return ""


def _plan() -> Plan:
    return Plan(
        title="Reset billing",
        verb=CHANGE,
        resource="cluster",
        apply=_nothing,
        columns=("Partition", "Now", "Then", "Reads again"),
        rows=[(f"orders-{number}", num(81_204 + number), num(number), num(81_204)) for number in range(3)],
        commands=["ottla consumer-groups --reset-offsets --group billing --topic orders --to-earliest"],
    )


@page("/design", "design.html", menu="settings")
async def design(view: View) -> Values:
    """Every component once."""
    batches = _batches()
    before, after = '{"id": "long"}\n{"note": "string"}', '{"id": "long"}\n{"total": "double"}'
    return {
        "surfaces": SURFACES,
        "inks": INKS,
        "softs": SOFTS,
        "types": TYPES,
        "series": [(name, _wave(1 + index / 2, 100 - 12 * index)) for index, name in enumerate(SERIES)],
        "short": short,
        "findings": _FINDINGS,
        "rows": [
            Line("orders", "compact", "", 8_999.0, _wave(3), 0.62, 884),
            Line("clicks", "under-replicated", "bad", 41_200.0, _wave(5), 0.93, 75_601),
            Line("payments", "old numbers", "warn", 12.5, _wave(1), 0.08, None, stale=True),
        ],
        "tabs": [("one", "Records", view.url("design")), ("two", "Live", view.url("design"))],
        "records": _records(),
        "batches": batches,
        "widths": strip_widths(batches),
        "changed": differences(before, after),
        "plan": _plan(),
        "crumbs": [("Settings", view.url("settings"))],
    }
