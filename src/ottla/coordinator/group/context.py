"""The interface between a shard of the group coordinator and the module of each group type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.clock import Clock
from ottla.coordinator.group.groups import Groups
from ottla.coordinator.timers import Timers
from ottla.wire.enums import ConfigResourceType

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.coordinator.group.offsets import Offsets
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image import MetadataImage

Replay = Callable[..., None]
"""`(key, value or None)`: applies one record to the state. Each takes the key and value classes of its record."""


@dataclass(slots=True)
class GroupContext:
    """Shared by all modules of one shard. `config` and `image` are replaced as the cluster changes: keep neither."""

    groups: Groups
    offsets: Offsets
    timers: Timers
    clock: Clock
    """For randomness (member ids) only; the time is an argument of the operations."""
    config: BrokerConfig
    image: MetadataImage

    def group_config(self, group_id: str) -> Mapping[str, str]:
        """The group's own configs (kafka-configs --entity-type groups), as text."""
        return self.image.configs.of(ConfigResourceType.GROUP, group_id)


class GroupModule(Protocol):
    """One type of group in one shard: constructed as `Module(context)`, listed in `shard.py`."""

    def replays(self) -> Mapping[str, Replay]:
        """Its replays, by the NAME of the key message ("ConsumerGroupMetadataKey")."""

    def on_loaded(self, now_ms: int) -> None:
        """All records were replayed: schedule timers for the groups of this type."""

    def on_unloaded(self) -> None:
        """Reject promises with NOT_COORDINATOR."""

    def on_metadata_update(self, delta: MetadataDelta) -> None:
        """Topics changed; `context.image` is the new image already."""


class RequestInfo(NamedTuple):
    """What group operations need of a request's context."""

    api_version: int
    client_id: str
    client_host: str
    """In Kafka's form: "/127.0.0.1"."""
    principal: str = ""
    may_describe: Callable[[str], bool] = lambda topic: True
    """Whether the client may know of a topic: an expression that it subscribes to matches only those."""
