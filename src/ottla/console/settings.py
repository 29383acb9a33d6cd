"""What `ottla console` was started with, as one value that all parts read and none changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

DEFAULT_HOST: Final = "localhost"
DEFAULT_PORT: Final = 9021
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Target:
    """A cluster to look at: its name in addresses, its brokers, and the properties of its clients."""

    name: str
    bootstrap: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """The options of the command."""

    targets: tuple[Target, ...]
    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    hosts: tuple[str, ...] = ()
    """Further values that the Host header may have."""
    users: Path | None = None
    masks: Path | None = None
    audit: Path | None = None
    login: str = ""
    """`kafka`: people sign in with their users of the cluster."""
    read_only: bool = False
    open_to_all: bool = False
    """`--no-auth`: an address beyond this machine, without users."""
    pages: bool = True
    probe: bool = False
    """Write a record a second to a topic of the probe's own, and time it."""
    registry: str = field(default="", repr=False)
    connect: str = field(default="", repr=False)
    applications: tuple[str, ...] = ()
    prometheus: str = field(default="", repr=False)
    data: Path | None = None
    """A broker's directory on this machine: its file names tell where segments begin."""
    snapshots: Path | None = None
    """A directory of cluster snapshots that Compare offers."""

    @property
    def is_loopback(self) -> bool:
        return self.host in LOOPBACK
