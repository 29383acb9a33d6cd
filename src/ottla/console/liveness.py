"""Which brokers hang: they hold a connection open and do not answer, so that every request to them waits for long.

Each broker is asked for its versions every second or two, on a connection of its own. While an answer is overdue, pages
get an error with the broker's name at once, and requests that only read and wait for it already are cut off.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.admin.cluster import Cluster
from ottla.admin.connection import Connection, ConnectionFailed, Node
from ottla.console.reader.connection import DOES_NOT_ANSWER, AsyncConnection
from ottla.errors import ApiException
from ottla.wire.apis import API_VERSIONS
from ottla.wire.messages import ApiVersionsRequest

if TYPE_CHECKING:
    from ottla.admin.settings import ClusterSettings
    from ottla.wire.classes import WireRequest, WireResponse

R = TypeVar("R", bound="WireResponse")
Address = tuple[str, int]

EACH_S: Final = 1.0
OVERDUE_S: Final = 1.5
"""A broker that has not answered for this long hangs. A long pause of a busy broker looks the same, and ends."""
_OWN_DELAY_S: Final = 0.2
"""If the console itself comes this late, the machine is busy, and brokers get the time again."""
_READS: Final = ("Describe", "List", "Find", "Metadata", "OffsetFetch", "Fetch", "Get", "ApiVersions")


def _only_reads(api_key: int) -> bool:
    name = API_VERSIONS[api_key].name
    return name.startswith(_READS) or name.endswith("Describe")


class Liveness:
    """The brokers of one cluster that hang. Threads and the event loop ask it."""

    def __init__(self, settings: ClusterSettings, cut: Callable[[str, int], None]) -> None:
        """`cut` ends what waits for a broker on the event loop."""
        self._settings = settings
        self._cut = cut
        self._hanging: set[Address] = set()
        self._waiting: dict[Connection, Address] = {}
        self._lock = threading.Lock()
        self._watched: dict[Address, asyncio.Task[None]] = {}
        self._timers: dict[Address, asyncio.TimerHandle] = {}

    def hangs(self, host: str, port: int) -> bool:
        return (host, port) in self._hanging

    def refuse(self, node: Node) -> None:
        """Raise ConnectionFailed if the broker hangs."""
        if self.hangs(node.host, node.port):
            raise ConnectionFailed(node.address, TimeoutError(DOES_NOT_ANSWER))

    @contextlib.contextmanager
    def waiting(self, connection: Connection) -> Iterator[None]:
        """While a request that only reads waits on a connection: it is cut off if its broker hangs."""
        with self._lock:
            self._waiting[connection] = connection.node.host, connection.node.port
        try:
            yield
        finally:
            with self._lock:
                self._waiting.pop(connection, None)

    # -- on the event loop

    async def run(self, brokers: Callable[[], Iterable[Address]], awake: Callable[[], bool]) -> None:
        """Ask all brokers until cancelled, as long as somebody looks."""
        try:
            while True:
                wanted = set(brokers()) if awake() else set()
                for address in [*self._watched]:
                    if address not in wanted:
                        self._watched.pop(address).cancel()
                        self._hanging.discard(address)
                for address in wanted:
                    if address not in self._watched:
                        self._watched[address] = asyncio.create_task(self._watch(address))
                await asyncio.sleep(EACH_S)
        finally:
            for task in self._watched.values():
                task.cancel()
            await asyncio.gather(*self._watched.values(), return_exceptions=True)

    async def _watch(self, address: Address) -> None:
        while True:
            self._expect(address)
            connection: AsyncConnection | None = None
            try:
                connection = await AsyncConnection.open(
                    Node(-1, *address), self._settings, self._settings.security.tls_context()
                )
                while True:
                    self._answered(address)
                    await asyncio.sleep(EACH_S)
                    self._expect(address)
                    await connection.ask(ApiVersionsRequest(), 0)
            except (ApiException, TimeoutError) as error:
                # A broker that refuses the connection does not hang: requests to it fail by themselves.
                if not (isinstance(error, TimeoutError) or getattr(error, "timed_out", False)):
                    self._answered(address)
            finally:
                self._timers[address].cancel()
                if connection is not None:
                    connection.close()
            await asyncio.sleep(EACH_S)

    def _expect(self, address: Address) -> None:
        """An answer has to come soon."""
        loop = asyncio.get_running_loop()
        due = loop.time() + OVERDUE_S
        self._timers[address] = loop.call_at(due, self._overdue, address, due)

    def _answered(self, address: Address) -> None:
        self._timers[address].cancel()
        self._hanging.discard(address)

    def _overdue(self, address: Address, due: float) -> None:
        if asyncio.get_running_loop().time() - due > _OWN_DELAY_S:
            self._expect(address)
            return
        self._hanging.add(address)
        with self._lock:
            cut = [connection for connection, place in self._waiting.items() if place == address]
        for connection in cut:
            connection.shut()
        self._cut(*address)


class WatchedCluster(Cluster):
    """A cluster client that does not wait for brokers that hang."""

    def __init__(self, settings: ClusterSettings, liveness: Liveness) -> None:
        super().__init__(settings)
        self._liveness = liveness

    def any(self) -> Connection:
        first = self._first
        if first is not None and self._liveness.hangs(first.node.host, first.node.port):
            self.drop(first)
        return super().any()

    def connect_to(self, node: Node) -> Connection:
        self._liveness.refuse(node)
        return super().connect_to(node)

    def ask_on(self, connection: Connection, request: WireRequest[R], max_version: int | None = None) -> R:
        if not _only_reads(request.API_KEY):
            return super().ask_on(connection, request, max_version)
        with self._liveness.waiting(connection):
            return super().ask_on(connection, request, max_version)

    def ask_each_on(
        self, connection: Connection, requests: Iterable[WireRequest[R]], max_version: int | None = None
    ) -> Iterator[R]:
        with self._liveness.waiting(connection):
            yield from super().ask_each_on(connection, requests, max_version)

    def reading(self, connection: Connection) -> AbstractContextManager[object]:
        return self._liveness.waiting(connection)
