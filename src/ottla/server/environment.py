"""A node's access to its machine: time, files, threads and the network. A simulation passes its own."""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from ottla.broker.services import Node
from ottla.clock import Clock, SystemClock
from ottla.config.broker import BrokerConfig
from ottla.log.cleaner.log_cleaner import MakeThreads, make_threads
from ottla.log.fs import Fs, OsFs
from ottla.log.write_gate import Probe
from ottla.net.connecting import Connect, connect_socket
from ottla.net.endpoints import ListenerSet
from ottla.net.watchdog import LoopWatchdog
from ottla.server.page_cache import page_cache_probe

if TYPE_CHECKING:
    from ottla.security.tls_material import TlsEndpoint

_THREADS: Final = 4
"""For fsync, cold reads and codecs: enough to keep a disk busy, few enough to leave a core to the event loop."""


class Listeners(Protocol):
    """The node's listeners, bound at creation. `ottla.net.endpoints.ListenerSet` implements them with sockets."""

    @property
    def addresses(self) -> dict[str, tuple[str, int]]:
        """Host and port of each listener by name."""
        ...

    def open(self, node: Node, *, controllers: bool) -> None:
        """Accept connections on the controllers' listeners, or on all others."""
        ...

    def tls_endpoints(self) -> list[TlsEndpoint]:
        """The TLS of the listeners that use it."""
        ...

    def update(self, config: BrokerConfig) -> None:
        """Apply changed settings."""
        ...

    async def stop(self, grace_s: float, *, controllers: bool) -> None:
        """Stop accepting on these, answer the requests that were taken, close the connections."""
        ...

    def discard(self) -> None:
        """Release the addresses."""
        ...


def _threads() -> Executor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="ottla")


class Environment(msgspec.Struct, frozen=True):
    """The real machine by default."""

    clock: Clock = msgspec.field(default_factory=SystemClock)
    fs: Fs = msgspec.field(default_factory=OsFs)
    executor: Executor = msgspec.field(default_factory=_threads)
    """The node shuts it down when it stops."""
    page_cache: Probe | None = msgspec.field(default_factory=page_cache_probe)
    """Reads how much of the page cache waits for the disk; None on systems that do not report it."""
    cleaner_threads: MakeThreads = make_threads
    connect: Connect = connect_socket
    make_listeners: Callable[[BrokerConfig, Clock], Listeners] = ListenerSet
    watchdog: LoopWatchdog | None = None
    """Measures how long the event loop is held up. The node starts and stops it."""
    host_name: Callable[[], str] = socket.gethostname
    """The machine's name, for listeners that accept connections on every interface."""
