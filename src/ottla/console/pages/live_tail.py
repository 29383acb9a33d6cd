"""The tab Live: the page, and the stream of records behind it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from starlette.responses import StreamingResponse

from ottla.console.live import MAX_STREAMS, event
from ottla.console.pages.records import condition, partitions_of, row
from ottla.console.pages.topic import base_values
from ottla.console.reader.tail import Tail
from ottla.console.security.audit import reading as reading_of
from ottla.console.security.roles import READ
from ottla.console.web import BadInput, Values, View, answer, page

if TYPE_CHECKING:
    from starlette.responses import Response

_VALUE_CHARS: Final = 2_000
_SENT_BYTES: Final = 2 << 20
"""A frame is cut at this size; what is left out is counted."""


@page("/t/{topic}/live", "live.html", verb=READ, resource="topic:{topic}", menu="topics")
async def live_page(view: View) -> Values:
    """The tab."""
    topic = view.topic()
    bootstrap = view.cluster.bootstrap
    problem = ""
    try:
        condition(view, topic.name)
    except BadInput as error:
        problem = error.message
    return {
        **base_values(view, "live"),
        "problem": problem,
        "stream_url": view.url("t", topic.name, "tail") + f"?{view.request.query_params}",
        "commands": [f"ottla consume --bootstrap-server {bootstrap} --topic {topic.name}"],
    }


@answer("/t/{topic}/tail", verb=READ, resource="topic:{topic}")
async def tail(view: View) -> Response:
    """Records as they come in, as events of texts."""
    topic = view.topic()
    found = condition(view, topic.name)
    partitions = partitions_of(view, topic.partitions)
    if view.console.streams.open >= MAX_STREAMS or view.cluster.reader.slots.locked():
        raise BadInput("Too many pages follow topics already; close some of them.")
    view.console.audit.note(
        view.principal.name,
        "follow",
        view.cluster.name,
        f"topic:{topic.name}",
        query=reading_of(view.request.query_params),
    )
    committed = view.text("isolation") != "all"
    following = Tail(view.cluster.reader, topic.name, partitions, found.wanted, committed=committed)

    async def events() -> AsyncIterator[bytes]:
        stopping = asyncio.create_task(view.console.stopping.wait())
        began = time.monotonic()
        with view.console.streams.one():
            yield b"retry: 2000\n\n"
            frames = following.frames()
            try:
                async for frame in frames:
                    if stopping.done():
                        return
                    rows: list[list[object]] = []
                    size = 0
                    for seen in frame.records:
                        shown = row(view.console.masks.apply(seen, found.masks))
                        line = shown.value.line[:_VALUE_CHARS]
                        size += len(line)
                        if size > _SENT_BYTES:
                            break
                        rows.append(
                            [
                                seen.timestamp,
                                seen.partition,
                                str(seen.offset),
                                None if seen.key is None else shown.key.line[:400],
                                None if seen.value is None else line,
                                seen.open,
                            ]
                        )
                    at_ms = int((time.monotonic() - began) * 1000)
                    yield event("frame", {"at": at_ms, "count": frame.count, "rows": rows})
            finally:
                stopping.cancel()
                await frames.aclose()

    return StreamingResponse(events(), media_type="text/event-stream")
