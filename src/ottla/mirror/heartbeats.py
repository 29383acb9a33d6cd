"""Heartbeats of a flow: one record now and then into the target, by which others see that it is at work."""

from __future__ import annotations

import time

from ottla.connect.formats import Entry
from ottla.mirror.config import FlowConfig
from ottla.mirror.formats import Heartbeat
from ottla.mirror.internal_topics import InternalTopic
from ottla.mirror.policy import HEARTBEATS


class Heartbeats:
    """Writes heartbeats. Not for several threads at once."""

    def __init__(self, flow: FlowConfig) -> None:
        self._flow = flow
        replicas = flow.number("heartbeats.topic.replication.factor")
        self._topic = InternalTopic(flow.target_settings, HEARTBEATS, replicas)
        self._opened = False

    def beat(self) -> None:
        """Writes one; creates the topic first where it is missing."""
        if not self._opened:
            self._topic.open()
            self._opened = True
        beat = Heartbeat(self._flow.source, self._flow.target, time.time_ns() // 1_000_000)
        self._topic.write([Entry(beat.key(), beat.value())])

    def close(self) -> None:
        """Closes connections."""
        self._topic.close()
