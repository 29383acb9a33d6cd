"""The pages of a node's HTTP server: metrics, health, and what helps to find a fault."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Final

import msgspec

from ottla.ids import TopicName
from ottla.metrics.collect import Asked, Collector, compressed
from ottla.metrics.families import Spelling
from ottla.metrics.health import not_ready
from ottla.metrics.http import HttpRequest, HttpResponse, Page, Site, plain
from ottla.metrics.profile import MAX_SECONDS, profile

if TYPE_CHECKING:
    from ottla.credentials.secret import Secret
    from ottla.log.segment import Segment
    from ottla.metrics.client_metrics import ClientMetrics
    from ottla.metrics.replica_metrics import Wanted
    from ottla.metrics.sources import Sources

_PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"
_JSON: Final = "application/json"
_WORTH_GZIP: Final = 1024
_MAX_PATTERN: Final = 200
_HEALTH: Final = "/health/"
_LOG: Final = "/debug/log/"


class Pages:
    """The pages of one node."""

    def __init__(
        self,
        collector: Collector,
        clients: ClientMetrics,
        sources: Sources,
        executor: Executor,
    ) -> None:
        self._collector = collector
        self._clients = clients
        self._node = node = sources.node
        self._broker = sources.broker
        self._watchdog = sources.watchdog
        self._executor = executor
        self._debug = node.config.bool("ottla.http.debug")
        self._each_partition = node.config.bool("ottla.http.metrics.partitions")
        self._stopping = threading.Event()
        self._profiling = False
        self._pages: dict[str, Page] = {
            "/": self._index,
            "/metrics": self._metrics,
            "/metrics/clients": self._of_clients,
            "/health/live": self._live,
            "/health/ready": self._ready,
        }
        if self._debug:
            self._pages["/debug/stalls"] = self._stalls
            self._pages["/debug/profile"] = self._profile

    def site(self, token: Secret | None) -> Site:
        return Site(self._find, lambda path: path.startswith(_HEALTH), token)

    def stop(self) -> None:
        """End a profile that is being taken."""
        self._stopping.set()

    def _find(self, path: str) -> Page | None:
        if self._debug and path.startswith(_LOG):
            return self._log
        return self._pages.get(path)

    async def _index(self, request: HttpRequest) -> HttpResponse:
        pages = [*self._pages, *([f"{_LOG}TOPIC/PARTITION"] if self._debug else [])]
        return plain(200, "\n".join(sorted(pages)))

    async def _metrics(self, request: HttpRequest) -> HttpResponse:
        query = request.query
        try:
            spelling = Spelling(query.get("names", Spelling.KAFKA.value))
        except ValueError:
            known = ", ".join(each.value for each in Spelling)
            return plain(400, f"Unknown names={query['names'][:100]}: expected {known}.")
        topics = query.get("topics", "")
        try:
            wanted = _topic_filter(topics)
        except ValueError as error:
            return plain(400, str(error))
        each = query.get("partitions", "true" if self._each_partition else "false") == "true"
        text = await self._collector.text(Asked(spelling, topics, each), wanted)
        return await self._shown(request, text, _PROMETHEUS)

    async def _of_clients(self, request: HttpRequest) -> HttpResponse:
        """What clients sent of their own metrics."""
        text = await asyncio.get_running_loop().run_in_executor(self._executor, self._clients.text)
        return await self._shown(request, [text], _PROMETHEUS)

    async def _shown(self, request: HttpRequest, text: list[bytes], content_type: str) -> HttpResponse:
        if request.accepts_gzip and sum(map(len, text)) >= _WORTH_GZIP:
            loop = asyncio.get_running_loop()
            packed = await loop.run_in_executor(self._executor, compressed, text)
            return HttpResponse(packed, content_type=content_type, headers={"Content-Encoding": "gzip"})
        return HttpResponse(text, content_type=content_type)

    # -- health

    async def _live(self, request: HttpRequest) -> HttpResponse:
        return _json({"status": "live"})

    async def _ready(self, request: HttpRequest) -> HttpResponse:
        reasons = not_ready(self._node, self._broker())
        if reasons:
            return _json({"status": "not ready", "reasons": reasons}, 503)
        return _json({"status": "ready"})

    # -- faults

    async def _stalls(self, request: HttpRequest) -> HttpResponse:
        if self._watchdog is None:
            return plain(404, "This node has no watchdog.")
        stacks = [
            {"at_ms": each.at_ms, "late_s": round(each.late_s, 6), "frames": each.frames}
            for each in self._watchdog.stacks.copy()
        ]
        return _json({"longest_s": self._watchdog.longest_s, "stacks": stacks})

    async def _profile(self, request: HttpRequest) -> HttpResponse:
        try:
            seconds = float(request.query.get("seconds", "10"))
        except ValueError:
            seconds = 0.0
        if not 0 < seconds <= MAX_SECONDS:
            return plain(400, f"seconds is a number above 0, at most {MAX_SECONDS}.")
        if self._profiling:
            return plain(429, "Another profile is being taken; try again after it.")
        self._profiling = True
        try:
            taken = await asyncio.get_running_loop().run_in_executor(
                self._executor, profile, seconds, self._stopping
            )
        finally:
            self._profiling = False
        return _json(taken)

    async def _log(self, request: HttpRequest) -> HttpResponse:
        """The segments of one replica's log."""
        topic, _, index = request.path.removeprefix(_LOG).rpartition("/")
        broker = self._broker()
        partition = None
        if broker is not None and index.isdecimal() and len(index) < 10:
            hosted = broker.replicas.hosted(TopicName(topic))
            partition = hosted.get(int(index))
        log = None if partition is None else partition.log
        if log is None or partition is None:
            return plain(404, "This node has no log of such a partition.")
        return _json(
            {
                "topic": topic,
                "partition": int(index),
                "leader": partition.leader,
                "leader_epoch": partition.leader_epoch,
                "isr": list(partition.isr),
                "path": log.path,
                "log_start_offset": log.log_start_offset,
                "high_watermark": log.high_watermark,
                "last_stable_offset": log.last_stable_offset,
                "log_end_offset": log.log_end_offset,
                "recovery_point": log.recovery_point,
                "size": log.size,
                "segments": [_segment(each) for each in log.segments],
            }
        )


def _segment(segment: Segment) -> dict[str, int]:
    return {"base_offset": segment.base_offset, "size": segment.size}


def _json(content: object, status: int = 200) -> HttpResponse:
    return HttpResponse(msgspec.json.encode(content) + b"\n", status, _JSON)


def _topic_filter(text: str) -> Wanted | None:
    """`?topics=REGEX`, by an engine whose time is bounded. Raises ValueError."""
    if not text:
        return None
    if len(text) > _MAX_PATTERN:
        raise ValueError(f"The pattern of topics has more than {_MAX_PATTERN} characters.")
    import re2  # type: ignore[import-untyped]  # loaded where a scrape asks for it

    options = re2.Options()
    options.log_errors = False
    try:
        pattern = re2.compile(text, options)
    except re2.error as error:
        raise ValueError(f"The pattern of topics is not a regular expression: {error}") from None
    return lambda topic: pattern.search(topic) is not None
