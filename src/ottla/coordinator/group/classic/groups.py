"""The classic groups of a shard: join, sync, heartbeat, leave, and what happens when time runs out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.coordinator.group.context import GroupContext, Replay

if TYPE_CHECKING:
    from ottla.metadata.delta import MetadataDelta


class ClassicGroups:
    """A `GroupModule`."""

    __slots__ = ("_context",)

    def __init__(self, context: GroupContext) -> None:
        self._context = context

    def replays(self) -> Mapping[str, Replay]:
        return {}

    def on_loaded(self, now_ms: int) -> None: ...

    def on_unloaded(self) -> None: ...

    def on_metadata_update(self, delta: MetadataDelta) -> None: ...
