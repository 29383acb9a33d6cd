"""An operation of a coordinator whose records are bytes from the beginning: for requests that repeat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from ottla.coordinator.shard import CoordinatorShard

if TYPE_CHECKING:
    from ottla.log.fs import Buffer

S_contra = TypeVar("S_contra", bound=CoordinatorShard, contravariant=True)


class BuiltOperation(Protocol[S_contra]):
    """A write operation whose batch is built in one step, without records as objects."""

    @property
    def count(self) -> int:
        """The number of records."""
        ...

    def allowed(self, shard: S_contra) -> bool:
        """Whether it may be done now. False: `CoordinatorRuntime.write` responds with the reason."""
        ...

    def build(self, base_offset: int, leader_epoch: int, now_ms: int) -> Buffer:
        """The batch."""
        ...

    def replay(self, shard: S_contra, record_offset: int, now_ms: int) -> None:
        """Change the state; the first record is at this offset. It cannot fail."""
        ...
