"""Where the records of configurations and statuses go: into memory in standalone mode, into topics otherwise."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from ottla.connect.formats import Entry
from ottla.connect.state import Change, ClusterState

OnChange = Callable[[Change], None]


class Backing(ABC):
    """Holds the replayed state. Readers of `state` hold `lock`."""

    def __init__(self) -> None:
        self.state = ClusterState()
        self.lock = threading.RLock()
        self.on_change: OnChange = lambda change: None

    @abstractmethod
    def write_configs(self, entries: Iterable[Entry]) -> None:
        """Writes configurations; they are replayed when this returns."""

    @abstractmethod
    def write_statuses(self, entries: Iterable[Entry]) -> None:
        """Writes statuses; they are replayed soon."""

    def refresh(self) -> None:
        """Reads what others wrote."""

    def close(self) -> None:
        """Closes connections."""


class MemoryBacking(Backing):
    """Keeps everything in memory, as Kafka's standalone mode does."""

    def write_configs(self, entries: Iterable[Entry]) -> None:
        with self.lock:
            changes = [self.state.replay_config(one.key, one.value) for one in entries]
        for change in changes:
            if change is not None:
                self.on_change(change)

    def write_statuses(self, entries: Iterable[Entry]) -> None:
        with self.lock:
            for one in entries:
                self.state.replay_status(one.key, one.value)
