"""Live pages: after each round of the sampler, the blocks of a page that have changed go out as an event.

The stream of a page has the page's own address, asked for as an event stream, so that filters and rights are the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Final, cast

from starlette.responses import StreamingResponse

from ottla.console import frame
from ottla.console.web import NotFound, Values
from ottla.errors import ApiException

if TYPE_CHECKING:
    from starlette.responses import Response

    from ottla.console.web import Page, View

_logger = logging.getLogger(__name__)

MAX_STREAMS: Final = 200
_SIGN_OF_LIFE_S: Final = 15.0
FRAME_BLOCKS: Final = ("badge",)


class Streams:
    """How many streams are open."""

    def __init__(self) -> None:
        self.open = 0

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1


def event(name: str, document: object) -> bytes:
    """One event of a stream."""
    return f"event: {name}\ndata: {json.dumps(document, ensure_ascii=False)}\n\n".encode()


def stream(view: View, page: Page) -> Response:
    """The live blocks of a page as a stream."""
    if view.console.streams.open >= MAX_STREAMS:
        raise NotFound(f"{MAX_STREAMS} pages are live already; close some of them.")
    return StreamingResponse(_events(view, page), media_type="text/event-stream")


async def _events(view: View, page: Page) -> AsyncIterator[bytes]:
    console, sampler = view.console, view.cluster.sampler
    sent: dict[str, str] = {}
    group = view.request.query_params.get("id") if page.menu == "groups" else None
    stopping = asyncio.create_task(console.stopping.wait())
    with console.streams.one(), sampler.watch(group):
        yield b"retry: 2000\n\n"
        try:
            while not stopping.done():
                turn = asyncio.create_task(sampler.next_round())
                await asyncio.wait(
                    {turn, stopping}, timeout=_SIGN_OF_LIFE_S, return_when=asyncio.FIRST_COMPLETED
                )
                if not turn.done():
                    turn.cancel()
                    yield b": still here\n\n"
                    continue
                changed = await _changed(view, page, sent)
                if changed:
                    yield event("blocks", changed)
        finally:
            stopping.cancel()


async def _changed(view: View, page: Page, sent: dict[str, str]) -> dict[str, str]:
    try:
        values = {**frame.values(view), **cast("Values", await page.handler(view))}
    except NotFound as error:
        return {"gone": error.message}
    except ApiException as error:
        _logger.info("A live page waits: %s", error.message)
        return {}
    found = view.console.templates.blocks(page.template, page.live, values)
    found |= view.console.templates.blocks("frame.html", FRAME_BLOCKS, values)
    changed = {name: text for name, text in found.items() if sent.get(name) != text}
    sent.update(changed)
    return changed
