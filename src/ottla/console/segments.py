"""Where the segments of a partition's log begin: from the HTTP port of an Ottla broker, or from its directory.

Kafka's protocol does not tell this. A broker shows it with `ottla.http.debug=true`; `--data DIR` reads the file names.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.admin.node_metrics import http_url
from ottla.console.services import Service, ServiceProblem
from ottla.errors import ApiException

if TYPE_CHECKING:
    from ottla.console.clusters import OpenCluster

_TIMEOUT_S: Final = 2.0
_KNOWN_FOR_S: Final = 60.0
_MOST: Final = 10_000


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment of a log."""

    base: int
    size: int

    @property
    def file(self) -> str:
        return f"{self.base:020}.log"


class Segments:
    """Asks brokers for segments, and remembers for a minute which of them tell."""

    def __init__(self, cluster: OpenCluster, data: Path | None) -> None:
        self._cluster = cluster
        self._data = data
        self._urls: dict[int, tuple[float, str]] = {}

    async def of(self, topic: str, partition: int, leader: int) -> list[Segment]:
        """The segments of a partition in order; empty where nobody tells."""
        if self._data is not None:
            return await self._cluster.run(_in_directory, self._data, topic, partition)
        url = await self.address(leader)
        if not url:
            return []
        service = Service("broker", url, timeout_s=_TIMEOUT_S)
        try:
            found = await self._cluster.ask(service, "GET", f"/debug/log/{topic}/{partition}")
        except ServiceProblem:
            return []
        return _read(found)

    async def address(self, leader: int) -> str:
        """Where a broker shows itself over HTTP; empty if it does not."""
        known = self._urls.get(leader)
        if known is not None and time.monotonic() - known[0] < _KNOWN_FOR_S:
            return known[1]
        try:
            url = await self._cluster.call(http_url, leader)
        except ApiException:
            url = ""
        self._urls[leader] = time.monotonic(), url
        return url


def _read(found: object) -> list[Segment]:
    listed = found.get("segments") if isinstance(found, dict) else None
    segments = []
    for each in listed[:_MOST] if isinstance(listed, list) else ():
        base, size = (each.get("base_offset"), each.get("size")) if isinstance(each, dict) else (None, None)
        if isinstance(base, int) and isinstance(size, int):
            segments.append(Segment(base, size))
    return sorted(segments, key=lambda each: each.base)


def _in_directory(data: Path, topic: str, partition: int) -> list[Segment]:
    folder = data / f"{topic}-{partition}"
    try:
        files = [(each.stem, each.stat().st_size) for each in folder.glob("*.log")]
    except OSError:
        return []
    found = [Segment(int(stem), size) for stem, size in files if stem.isdecimal() and len(stem) == 20]
    return sorted(found, key=lambda each: each.base)[:_MOST]
