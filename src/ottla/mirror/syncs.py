"""MirrorMaker 2's offset syncs: pairs of offsets, from which it and its clients translate."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.connect.formats import Entry
from ottla.mirror.config import FlowConfig
from ottla.mirror.formats import OffsetSync
from ottla.mirror.internal_topics import InternalTopic
from ottla.pipeline.writer import Place

if TYPE_CHECKING:
    from ottla.mirror.flow import PartitionState


class OffsetSyncs:
    """Writes the last pair of each partition whose copy grew."""

    def __init__(self, flow: FlowConfig) -> None:
        at_source = flow.values["offset-syncs.topic.location"] == "source"
        settings = flow.source_settings if at_source else flow.target_settings
        self._enabled = flow.flag("emit.offset-syncs.enabled")
        replicas = flow.number("offset-syncs.topic.replication.factor")
        self._topic = InternalTopic(settings, flow.offset_syncs_topic, replicas)
        self._written: dict[Place, int] = {}

    def open(self) -> None:
        """Creates the topic where it is missing."""
        if self._enabled:
            self._topic.open()

    def write(self, states: Iterable[PartitionState]) -> None:
        """After a cycle: its data is written."""
        if not self._enabled:
            return
        entries = []
        for state in states:
            pair = state.last_pair
            if pair is not None and self._written.get(state.place) != pair[0]:
                self._written[state.place] = pair[0]
                sync = OffsetSync(state.place, *pair)
                entries.append(Entry(sync.key(), sync.value()))
        self._topic.write(entries)

    def close(self) -> None:
        """Closes connections."""
        self._topic.close()
