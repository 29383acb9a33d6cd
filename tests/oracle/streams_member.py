"""A member of a streams group without a Streams application: it says what one would read and make, and lives on."""

from __future__ import annotations

import threading
import time
from typing import Any

from ottla.admin.cluster import Cluster
from ottla.admin.settings import ClusterSettings
from ottla.cli.tools.base import parse_bootstrap
from ottla.errors import ErrorCode
from ottla.wire.messages import StreamsGroupHeartbeatRequest as Heartbeat

_BEAT_S = 2.0
_PATIENCE_S = 60.0
_PASSING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)


class StreamsMember:
    """Reads `source` and keeps a changelog; `join` returns when it has tasks, `leave` ends it."""

    def __init__(self, bootstrap: str, group_id: str, source: str) -> None:
        self._cluster = Cluster(ClusterSettings(tuple(parse_bootstrap(bootstrap)), "streamer"))
        self._group_id = group_id
        self._source = source
        self._epoch = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._live, daemon=True)

    def join(self) -> StreamsMember:
        log = Heartbeat.TopicInfo(name=f"{self._group_id}-store-changelog")
        topology = Heartbeat.Topology(
            epoch=3,
            subtopologies=[
                Heartbeat.Subtopology(
                    subtopology_id="0", source_topics=[self._source], state_changelog_topics=[log]
                )
            ],
        )
        first = Heartbeat(
            rebalance_timeout_ms=10_000,
            process_id="process-1",
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
            topology=topology,
        )
        deadline = time.monotonic() + _PATIENCE_S
        answer = self._beat(first)
        while not answer.active_tasks:
            assert time.monotonic() < deadline, answer
            if answer.error_code == ErrorCode.NONE:
                self._epoch = answer.member_epoch
            else:
                assert answer.error_code in _PASSING, answer
            answer = self._beat(Heartbeat() if self._epoch else first)
        self._epoch = answer.member_epoch
        tasks = [
            Heartbeat.TaskIds(subtopology_id=each.subtopology_id, partitions=each.partitions)
            for each in answer.active_tasks
        ]
        self._beat(Heartbeat(active_tasks=tasks, standby_tasks=[], warmup_tasks=[]))
        self._thread.start()
        return self

    def _beat(self, request: Any) -> Any:
        request.group_id, request.member_id, request.member_epoch = self._group_id, "member-1", self._epoch
        return self._cluster.ask(request, self._cluster.coordinator(self._group_id))

    def _live(self) -> None:
        while not self._ended.wait(_BEAT_S):
            self._beat(Heartbeat())

    def leave(self) -> None:
        if not self._ended.is_set():
            self._ended.set()
            self._thread.join()
            self._epoch = -1
            self._beat(Heartbeat())
            self._cluster.close()
