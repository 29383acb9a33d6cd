"""Export: the records that a query finds, as a file that is streamed. Masks hold here as everywhere."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from starlette.responses import StreamingResponse

from ottla.console.pages.records import condition, partitions_of, row
from ottla.console.reader import records as reading
from ottla.console.security.audit import reading as reading_of
from ottla.console.security.roles import EXPORT, READ
from ottla.console.web import BadInput, View, answer

if TYPE_CHECKING:
    from starlette.responses import Response

    from ottla.console.reader.records import Seen

MAX_RECORDS: Final = 1_000_000
MAX_S: Final = 600.0
_AT_ONCE: Final = 5_000
_COLUMNS: Final = ("timestamp", "partition", "offset", "key", "value", "headers")
_RISKY: Final = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet would take a cell that begins so for a formula."""


def _cells(seen: Seen) -> list[object]:
    shown = row(seen)
    headers = {name: data.text for name, data in shown.headers}
    key = None if seen.key is None else shown.key.text
    value = None if seen.value is None else shown.value.text
    return [seen.timestamp, seen.partition, seen.offset, key, value, headers]


def json_lines(records: list[Seen]) -> bytes:
    """One JSON object a line; values stay texts."""
    lines = (
        json.dumps(dict(zip(_COLUMNS, _cells(each), strict=True)), ensure_ascii=False) for each in records
    )
    return ("\n".join(lines) + "\n").encode() if records else b""


def csv_lines(records: list[Seen]) -> bytes:
    """Rows for a spreadsheet."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    for each in records:
        *cells, headers = _cells(each)
        writer.writerow([_harmless(cell) for cell in [*cells, json.dumps(headers, ensure_ascii=False)]])
    return out.getvalue().encode()


def _harmless(cell: object) -> object:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_RISKY) else cell


@answer("/t/{topic}/export", verb=READ, resource="topic:{topic}")
async def export(view: View) -> Response:
    """All records from the position of the query on, up to where the topic ends now."""
    topic = view.topic()
    view.require(EXPORT, f"topic:{topic.name}")
    kind = view.text("format", "jsonl")
    if kind not in ("jsonl", "csv"):
        raise BadInput(f"There is no format '{kind[:20]}': jsonl and csv are.")
    found = condition(view, topic.name)
    reader = view.cluster.reader
    partitions = partitions_of(view, topic.partitions)
    starts, ends = await reading.bounds(reader, topic.name, partitions)
    if view.text("at") == "offset":
        starts = {number: max(starts[number], view.number("offset", 0)) for number in partitions}
    view.console.audit.note(
        view.principal.name,
        "export",
        view.cluster.name,
        f"topic:{topic.name}",
        query=reading_of(view.request.query_params),
    )
    write = json_lines if kind == "jsonl" else csv_lines

    async def lines() -> AsyncIterator[bytes]:
        if kind == "csv":
            yield (",".join(_COLUMNS) + "\r\n").encode()
        cursor, left, deadline = dict(starts), MAX_RECORDS, time.monotonic() + MAX_S
        while left > 0 and time.monotonic() < deadline and not view.console.stopping.is_set():
            part = await reading.forward(
                reader,
                topic.name,
                cursor,
                min(_AT_ONCE, left),
                wanted=found.wanted,
                needles=found.needles,
                until=ends,
            )
            masked = [view.console.masks.apply(each, found.masks) for each in part.records]
            yield write(masked)
            left -= len(part.records)
            cursor = part.following
            if part.complete:
                return

    name = f"{topic.name}.{kind}"
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    media = "application/x-ndjson" if kind == "jsonl" else "text/csv; charset=utf-8"
    return StreamingResponse(lines(), media_type=media, headers=headers)
