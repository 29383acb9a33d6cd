"""Export: the records that a query finds, as a file that is streamed. Masks hold here as everywhere."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import time
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from starlette.responses import StreamingResponse

from ottla.console import parquet
from ottla.console.pages.records import condition, partitions_of, place, row
from ottla.console.parquet import Cells
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
_MEDIA: Final = {
    "jsonl": "application/x-ndjson",
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
}
_RISKY: Final = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet would take a cell that begins so for a formula."""


class Writer(Protocol):
    """Turns records into the bytes of a file, part by part."""

    def add(self, records: Sequence[Cells]) -> bytes: ...

    def end(self) -> bytes: ...


class JsonLines:
    """One JSON object a line; values stay texts."""

    def add(self, records: Sequence[Cells]) -> bytes:
        documents = ({**each._asdict(), "headers": dict(each.headers)} for each in records)
        return "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in documents).encode()

    def end(self) -> bytes:
        return b""


class Csv:
    """Rows for a spreadsheet."""

    def __init__(self) -> None:
        self._head = (",".join(Cells._fields) + "\r\n").encode()

    def add(self, records: Sequence[Cells]) -> bytes:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\r\n")
        for *cells, headers in records:
            texts = json.dumps(dict(headers), ensure_ascii=False)
            writer.writerow([_harmless(cell) for cell in (*cells, texts)])
        head, self._head = self._head, b""
        return head + out.getvalue().encode()

    def end(self) -> bytes:
        return self._head


def _cells(seen: Seen) -> Cells:
    shown = row(seen)
    return Cells(
        seen.timestamp,
        seen.partition,
        seen.offset,
        None if seen.key is None else shown.key.text,
        None if seen.value is None else shown.value.text,
        [(name, None if data.kind == "null" else data.text) for name, data in shown.headers],
    )


def _harmless(cell: object) -> object:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_RISKY) else cell


def writer_of(kind: str) -> Writer:
    """What writes a format; BadInput for one that there is not."""
    match kind:
        case "jsonl":
            return JsonLines()
        case "csv":
            return Csv()
        case "parquet" if parquet.is_installed():
            return parquet.Parquet()
        case "parquet":
            raise BadInput("Parquet files need pyarrow beside the console: pip install pyarrow.")
    raise BadInput(f"There is no format '{kind[:20]}': {', '.join(_MEDIA)} are.")


@answer("/t/{topic}/export", verb=READ, resource="topic:{topic}")
async def export(view: View) -> Response:
    """All records from the position of the query on, up to where the topic ends now."""
    topic = view.topic()
    view.require(EXPORT, f"topic:{topic.name}")
    kind = view.text("format", "jsonl")
    writer = writer_of(kind)
    found = condition(view, topic.name)
    reader = view.cluster.reader
    partitions = partitions_of(view, topic.partitions)
    starts = await place(view, topic.name, partitions)
    _, ends = await reading.bounds(reader, topic.name, partitions)
    view.console.audit.note(
        view.principal.name,
        "export",
        view.cluster.name,
        f"topic:{topic.name}",
        query=reading_of(view.request.query_params),
    )

    def written(records: list[Seen]) -> bytes:
        return writer.add([_cells(view.console.masks.apply(each, found.masks)) for each in records])

    async def parts() -> AsyncIterator[bytes]:
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
            # Thousands of records take longer than the loop may be held up.
            yield await asyncio.to_thread(written, part.records)
            left -= len(part.records)
            cursor = part.following
            if part.complete:
                break
        yield await asyncio.to_thread(writer.end)

    headers = {"content-disposition": f'attachment; filename="{topic.name}.{kind}"'}
    return StreamingResponse(parts(), media_type=_MEDIA[kind], headers=headers)
