"""A network namespace for every node, with one link to a common bridge that can be cut per direction.

A cut is a wrong hardware address for the other side: packets leave and are lost silently, as in a real partition.
It needs root and Linux; `usable()` returns whether it works here.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Final

_NOBODY: Final = "02:00:00:00:00:01"
"""An unused hardware address."""
OUTSIDE: Final = 0
"""The node id of the clients' side."""


class NetworkFailed(Exception):
    """A network command failed; the message is its output."""


def usable() -> bool:
    """Return whether this process may create networks."""
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("nsenter"):
        return False
    name = f"ottla-try-{os.getpid()}"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
    if tried.returncode:
        return False
    bridge = subprocess.run(
        ["ip", "-n", name, "link", "add", "try0", "type", "bridge"], capture_output=True, check=False
    )
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return bridge.returncode == 0


class Network:
    """The links of the nodes by id, all connected at first. `close` removes everything."""

    def __init__(self, node_ids: Iterable[int]) -> None:
        self.node_ids = list(node_ids)
        # Two runs on one machine have different names and addresses.
        self._tag = os.getpid() % 100_000
        self._subnet = f"10.{64 + self._tag % 128}.{self._tag // 128 % 256}"
        self._bridge = f"ob{self._tag}"
        self._hardware: dict[int, str] = {}
        self._cut: set[tuple[int, int]] = set()
        self._build()

    def host(self, node_id: int) -> str:
        return f"{self._subnet}.{node_id}" if node_id != OUTSIDE else f"{self._subnet}.254"

    @property
    def hosts(self) -> dict[int, str]:
        return {node_id: self.host(node_id) for node_id in self.node_ids}

    @property
    def launchers(self) -> dict[int, Sequence[str]]:
        """The command prefix that starts a process in a node's namespace."""
        return {
            node_id: ["nsenter", f"--net=/var/run/netns/{self._space(node_id)}"] for node_id in self.node_ids
        }

    def cut(self, sender: int, receiver: int) -> None:
        """Drop everything from the sender to the receiver; the other direction works."""
        self._cut.add((sender, receiver))
        self._point(sender, receiver, _NOBODY)

    def separate(self, one: Iterable[int], other: Iterable[int]) -> None:
        """Cut all links between two sides, in both directions."""
        others = list(other)
        for a in one:
            for b in others:
                self.cut(a, b)
                self.cut(b, a)

    def heal(self) -> None:
        for sender, receiver in sorted(self._cut):
            self._point(sender, receiver, self._hardware[receiver])
        self._cut.clear()

    def close(self) -> None:
        for node_id in self.node_ids:
            with contextlib.suppress(NetworkFailed):
                _ip("link", "del", f"ov{self._tag}-{node_id}")
            with contextlib.suppress(NetworkFailed):
                _ip("netns", "del", self._space(node_id))
        with contextlib.suppress(NetworkFailed):
            _ip("link", "del", self._bridge)

    def _space(self, node_id: int) -> str:
        return f"ottla-{self._tag}-{node_id}"

    def _point(self, sender: int, receiver: int, hardware: str) -> None:
        words = ["neigh", "replace", self.host(receiver), "lladdr", hardware, "nud", "permanent"]
        if sender == OUTSIDE:
            _ip(*words, "dev", self._bridge)
        else:
            _ip("-n", self._space(sender), *words, "dev", "eth0")

    def _build(self) -> None:
        try:
            _ip("link", "add", self._bridge, "type", "bridge")
            _ip("addr", "add", f"{self.host(OUTSIDE)}/24", "dev", self._bridge)
            self._hardware[OUTSIDE] = f"02:00:00:01:00:{OUTSIDE:02x}"
            _ip("link", "set", self._bridge, "address", self._hardware[OUTSIDE], "up")
            for node_id in self.node_ids:
                self._plug_in(node_id)
            everyone = [OUTSIDE, *self.node_ids]
            for sender in everyone:
                for receiver in everyone:
                    if sender != receiver:
                        self._point(sender, receiver, self._hardware[receiver])
        except NetworkFailed:
            self.close()
            raise

    def _plug_in(self, node_id: int) -> None:
        space, cable = self._space(node_id), f"ov{self._tag}-{node_id}"
        self._hardware[node_id] = f"02:00:00:01:00:{node_id:02x}"
        _ip("netns", "add", space)
        _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
        _ip("link", "set", cable, "master", self._bridge, "up")
        _ip("-n", space, "link", "set", "eth0", "address", self._hardware[node_id])
        _ip("-n", space, "addr", "add", f"{self.host(node_id)}/24", "dev", "eth0")
        _ip("-n", space, "link", "set", "eth0", "up")
        _ip("-n", space, "link", "set", "lo", "up")

    def __enter__(self) -> Network:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def reaches(host: str, port: int, timeout_s: float) -> bool:
    """Return whether a connection to the address works."""
    try:
        with socket.create_connection((host, port), timeout_s):
            return True
    except OSError:
        return False


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NetworkFailed(f"ip {' '.join(words)}: {done.stderr.strip()}")
