"""The coordinators of a broker, made when they are first needed.

Nobody needs them until one of their topics is there or a client asks about a group or a transaction, and their
modules are a third of what a broker would have to load before its first answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.errors import ApiException, ErrorCode
from ottla.metadata.topic_names import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC

if TYPE_CHECKING:
    from ottla.broker.share_services import ShareServices
    from ottla.config.broker import BrokerConfig
    from ottla.coordinator.group.service import GroupCoordinator
    from ottla.coordinator.transaction.service import TransactionCoordinator
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image import MetadataImage

_TOPICS: Final = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC)


class CoordinatorSet(NamedTuple):
    """The coordinators themselves."""

    groups: GroupCoordinator
    share: ShareServices
    transactions: TransactionCoordinator


class Coordinators:
    """`make` puts them together, on the newest image."""

    __slots__ = ("_closed", "_made", "_make")

    def __init__(self, make: Callable[[], CoordinatorSet]) -> None:
        self._make = make
        self._made: CoordinatorSet | None = None
        self._closed = False

    def get(self) -> CoordinatorSet:
        """All of them, at work."""
        if self._made is None:
            if self._closed:
                raise ApiException(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker is stopping")
            self._made = self._make()
            self._made.transactions.start()
            self._made.share.coordinator.start()
        return self._made

    def publish(self, delta: MetadataDelta, image: MetadataImage, node_id: int) -> None:
        """A metadata publisher, after the replicas."""
        needed = not self._closed and any(topic in image.topics.by_name for topic in _TOPICS)
        if self._made is None and not needed:
            return
        made = self.get()
        made.groups.runtime.publish(delta, image, node_id)
        made.share.publish(delta, image, node_id)
        made.transactions.publish(delta, image, node_id)

    def update_config(self, config: BrokerConfig) -> None:
        if self._made is not None:
            self._made.groups.update_config(config)
            self._made.share.config = config
            self._made.transactions.config = config

    def stop_groups(self) -> None:
        """While requests are still answered: those that are parked at groups and queues are let go."""
        self._closed = True
        if self._made is not None:
            self._made.share.shutdown()
            self._made.groups.runtime.shutdown()

    def stop_transactions(self) -> None:
        """When no requests come any more."""
        self._closed = True
        if self._made is not None:
            self._made.transactions.shutdown()
