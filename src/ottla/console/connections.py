"""Connections of browsers that hold up nobody: where there are many, those that wait for nothing give way to new ones.

uvicorn refuses every request while there are too many connections. A program that opened that many and sent nothing
would keep all others out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio

    from uvicorn.protocols.http.h11_impl import H11Protocol as Protocol
else:
    from uvicorn.protocols.http.auto import AutoHTTPProtocol as Protocol

MAX_CONNECTIONS: Final = 1_000
"""How many there are at most, where others can give way."""
MAX_BUSY: Final = 2 * MAX_CONNECTIONS
"""From so many on, all of them in the middle of an answer, requests are refused."""

_open: Final[dict[Connection, None]] = {}
"""Oldest first."""


class Connection(Protocol):
    """uvicorn's connection. A new one takes the place of the oldest that waits, if there are too many."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(_open) >= MAX_CONNECTIONS:
            oldest = next((each for each in _open if each.waits), None)
            if oldest is not None:
                del _open[oldest]
                oldest.transport.abort()
        _open[self] = None

    def connection_lost(self, exc: Exception | None) -> None:
        _open.pop(self, None)
        super().connection_lost(exc)

    @property
    def waits(self) -> bool:
        """Whether no answer is on its way to a reader: nothing was asked, or not all of it, or nobody reads."""
        cycle = self.cycle
        return cycle is None or cycle.response_complete or cycle.more_body or self.flow.write_paused
