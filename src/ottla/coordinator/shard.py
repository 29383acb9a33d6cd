"""The interface between the runtime and a coordinator's state: one shard per partition of the topic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ottla.clock import Clock
from ottla.coordinator.records import CoordinatorRecord
from ottla.coordinator.timers import Timers

if TYPE_CHECKING:
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image import MetadataImage


@dataclass(frozen=True, slots=True)
class ShardContext:
    """Passed to the factory of a shard. A shard lives as long as this broker leads the partition in one epoch."""

    partition: int
    leader_epoch: int
    clock: Clock
    """For randomness; operations get the time as an argument."""
    timers: Timers


class CoordinatorShard(Protocol):
    """The state of one partition. Only `replay*` changes state that records keep; no I/O, no waiting."""

    def replay(self, offset: int, producer_id: int, producer_epoch: int, record: CoordinatorRecord) -> None:
        """Apply a record that was appended now or read when loading. `producer_id` is -1 outside transactions."""

    def replay_end_transaction_marker(self, producer_id: int, producer_epoch: int, commit: bool) -> None:
        """A transaction of records written by `write_transactional` ended."""

    def on_loaded(self, image: MetadataImage, now_ms: int) -> None:
        """All records were replayed: start timers and apply the metadata. Requests come from now on."""

    def on_unloaded(self) -> None:
        """No longer the coordinator: reject promises with NOT_COORDINATOR. Timers are cancelled already."""

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """New metadata was published (called once loaded). Mark what has to be recomputed; write by a timer of 0 ms."""
