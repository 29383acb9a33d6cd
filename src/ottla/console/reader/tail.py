"""The live end of a topic: one long poll per leader, frames of records at a steady pace, and honest counting.

Above a rate that a person can follow, frames hold a sample; the count and the share that is shown go with them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ottla.admin.partitions import LATEST
from ottla.console.reader.records import Seen, unpack_decoded
from ottla.errors import ApiException

if TYPE_CHECKING:
    from ottla.admin.connection import Node
    from ottla.console.reader.fetch import Reader

_logger = logging.getLogger(__name__)

FRAME_S: Final = 0.05
FRAME_RECORDS: Final = 1_000
SHOWN_PER_S: Final = 2_000
_POLL_MS: Final = 1_000
_RETRY_S: Final = 1.0
_IDLE_S: Final = 10.0


@dataclass(slots=True)
class Frame:
    """What came in since the last frame."""

    records: list[Seen] = field(default_factory=list)
    count: int = 0
    """All that came in, shown or not."""
    matched: int = 0


class Tail:
    """Follows partitions of a topic from their ends on."""

    def __init__(
        self,
        reader: Reader,
        topic: str,
        partitions: list[int],
        wanted: Callable[[Seen], bool],
        *,
        committed: bool = False,
    ) -> None:
        """With `committed`, records come when their transaction has ended, and aborted ones are marked."""
        self._reader = reader
        self._committed = committed
        self._topic = topic
        self._partitions = partitions
        self._wanted = wanted
        self._frame = Frame()
        self._fresh = asyncio.Event()
        self._credit = float(SHOWN_PER_S)

    async def frames(self) -> AsyncGenerator[Frame, None]:
        """Frames until the caller leaves; an empty one now and then says that the stream is alive."""
        async with self._reader.slots:
            ends = await self._reader.offsets(self._topic, dict.fromkeys(self._partitions, LATEST))
            leaders = await self._reader.leaders(self._topic)
            by_leader: dict[Node, dict[int, int]] = {}
            for number, end in ends.items():
                by_leader.setdefault(leaders[number], {})[number] = end
            tasks = [asyncio.create_task(self._follow(node, own)) for node, own in by_leader.items()]
            try:
                while True:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_IDLE_S):
                            await self._fresh.wait()
                    await asyncio.sleep(FRAME_S)
                    frame, self._frame = self._frame, Frame()
                    self._fresh.clear()
                    self._credit = min(self._credit + SHOWN_PER_S * FRAME_S, float(SHOWN_PER_S))
                    yield frame
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, node: Node, cursor: dict[int, int]) -> None:
        while True:
            try:
                await self._poll(node, cursor)
            except ApiException as error:
                _logger.info("The tail of %s waits: %s", self._topic, error.message)
                await asyncio.sleep(_RETRY_S)
                self._reader.forget(self._topic)
                with contextlib.suppress(ApiException):
                    node = (await self._reader.leaders(self._topic)).get(next(iter(cursor)), node)

    async def _poll(self, node: Node, cursor: dict[int, int]) -> None:
        connection = await self._reader.connect(node)
        try:
            while True:
                answer = await self._reader.fetch(
                    self._topic,
                    cursor,
                    node=node,
                    connection=connection,
                    wait_ms=_POLL_MS,
                    committed=self._committed,
                )
                for number, fetched in answer.items():
                    if fetched.error:
                        raise ApiException(fetched.error, f"{self._topic}-{number}: {fetched.error.name}")
                    if fetched.batches:
                        await self._take(number, fetched, cursor)
        finally:
            connection.close()

    async def _take(self, number: int, fetched: object, cursor: dict[int, int]) -> None:
        from ottla.console.reader.fetch import Fetched

        assert isinstance(fetched, Fetched)
        low = cursor[number]
        cursor[number] = fetched.batches[-1].header.next_offset
        count = sum(batch.header.count for batch in fetched.batches if not batch.header.is_control)
        self._frame.count += count
        self._fresh.set()
        if self._credit < 1 or len(self._frame.records) >= FRAME_RECORDS:
            # Nobody can read so many: they are counted, and not unpacked.
            return
        aborted = None if self._committed else ()
        shower = self._reader.shower
        for seen in await asyncio.to_thread(unpack_decoded, self._topic, fetched, low, aborted, (), shower):
            if seen.control or not self._wanted(seen):
                continue
            self._frame.matched += 1
            if self._credit >= 1 and len(self._frame.records) < FRAME_RECORDS:
                self._credit -= 1
                self._frame.records.append(seen)
