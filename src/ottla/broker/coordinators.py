"""The coordinators of a broker, created when they are first needed.

They are needed once one of their topics exists or a client asks about a group or a transaction. Their modules are a
third of what a broker would have to load before its first response.
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
    """The three coordinators."""

    groups: GroupCoordinator
    share: ShareServices
    transactions: TransactionCoordinator


class Coordinators:
    """Creates the coordinators by `make`, on the newest image, and passes metadata and configs on to them."""

    __slots__ = ("_closed", "_made", "_make")

    def __init__(self, make: Callable[[], CoordinatorSet]) -> None:
        self._make = make
        self._made: CoordinatorSet | None = None
        self._closed = False

    def get(self) -> CoordinatorSet:
        """The started coordinators. Raises COORDINATOR_NOT_AVAILABLE when the broker stops."""
        if self._made is None:
            if self._closed:
                raise ApiException(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The broker is stopping")
            self._made = self._make()
            self._made.transactions.start()
            self._made.share.coordinator.start()
        return self._made

    @property
    def started(self) -> CoordinatorSet | None:
        """The coordinators, if there are any yet."""
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
        """The broker's configs changed."""
        if self._made is not None:
            self._made.groups.update_config(config)
            self._made.share.config = config
            self._made.transactions.config = config

    def stop_groups(self) -> None:
        """Stop while requests are still answered: requests parked in group and share coordinators fail."""
        self._closed = True
        if self._made is not None:
            self._made.share.shutdown()
            self._made.groups.runtime.shutdown()

    def stop_transactions(self) -> None:
        """Stop the transaction coordinator, after the last request."""
        self._closed = True
        if self._made is not None:
            self._made.transactions.shutdown()
