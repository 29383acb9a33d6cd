"""The share partitions and share sessions of this broker: created on demand, dropped when they are no longer used."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.clock import Clock
from ottla.errors import ApiException, ErrorCode
from ottla.replica.share.partition import SharePartition
from ottla.replica.share.persister import ShareKey, ShareStatePersister
from ottla.replica.share.sessions import PartitionKey, ShareSessions
from ottla.replica.share.states import Acknowledgement, ShareSettings

if TYPE_CHECKING:
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image import MetadataImage
    from ottla.replica.manager import ReplicaManager

_logger = logging.getLogger(__name__)

Outcomes = dict[PartitionKey, ApiException | None]

_FENCED: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""After these errors the state of a share partition is outdated: it is created again."""


class SharePartitions:
    """Serves the share APIs. `settings(group_id)` gives a group's effective settings."""

    __slots__ = ("_clock", "_partitions", "_persister", "_settings", "replicas", "sessions")

    def __init__(
        self,
        replicas: ReplicaManager,
        clock: Clock,
        persister: ShareStatePersister,
        settings: Callable[[str], ShareSettings],
        max_sessions: int,
    ) -> None:
        self.replicas = replicas
        self.sessions = ShareSessions(max_sessions)
        self._clock = clock
        self._persister = persister
        self._settings = settings
        self._partitions: dict[ShareKey, SharePartition] = {}

    def settings(self, group_id: str) -> ShareSettings:
        return self._settings(group_id)

    # -- share partitions

    def find(self, key: ShareKey) -> SharePartition | None:
        """The share partition, if it is in use."""
        return self._partitions.get(key)

    def obtain(self, key: ShareKey) -> SharePartition:
        """The share partition, created and loading if it is new; raises the error for the client."""
        share = self._partitions.get(key)
        if share is not None:
            if share.still_leads and share.error is None:
                return share
            # The client gets the error and may retry: then the share partition is created again.
            error = _not_leader(share)
            self.drop(key, error)
            raise error
        partition = self.replicas.find((key.topic_id, key.partition))
        partition.check_leader()
        share = SharePartition(
            key,
            partition,
            clock=self._clock,
            offload=self.replicas.offload,
            persister=self._persister,
            settings=partial(self._settings, key.group_id),
        )
        self._partitions[key] = share
        share.load()
        if share.error is not None:
            del self._partitions[key]
            raise share.error
        return share

    def drop(self, key: ShareKey, error: ApiException) -> None:
        """Drop a share partition; requests that wait for it get the error."""
        share = self._partitions.pop(key, None)
        if share is not None and share.error is None:
            share.close(error)

    def drop_if_fenced(self, key: ShareKey, error: ApiException | None) -> None:
        if error is not None and error.code in _FENCED:
            self.drop(key, error)

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """A metadata publisher, after the replicas: drop share partitions that this broker no longer leads."""
        for key, share in list(self._partitions.items()):
            if not share.still_leads:
                self.drop(key, _not_leader(share))

    def shutdown(self) -> None:
        """Drop everything: locks end with the broker, and all changes are persisted."""
        self.sessions.clear()
        for key in list(self._partitions):
            self.drop(key, ApiException(ErrorCode.NOT_LEADER_OR_FOLLOWER, "The broker stops"))

    def __len__(self) -> int:
        return len(self._partitions)

    # -- acknowledging

    def acknowledge(
        self,
        group_id: str,
        member_id: str,
        acknowledgements: Mapping[PartitionKey, list[Acknowledgement]],
        done: Callable[[Outcomes], None],
    ) -> None:
        """Acknowledge a member's records of several partitions; `done` gets the outcome of each."""
        gather = _Gather(len(acknowledgements), done)
        for part, batches in acknowledgements.items():
            key = ShareKey(group_id, *part)
            share = self._partitions.get(key)
            if share is None:
                gather.settled(
                    part,
                    ApiException(
                        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        "No member has acquired records of this partition on this broker",
                    ),
                )
            else:
                share.acknowledge(member_id, batches, partial(self._settled, key, part, gather))

    def _settled(
        self, key: ShareKey, part: PartitionKey, gather: _Gather, error: ApiException | None
    ) -> None:
        self.drop_if_fenced(key, error)
        gather.settled(part, error)

    # -- the end of a session

    def end_session(self, group_id: str, member_id: str) -> bool:
        """Release what a member holds and remove its session; whether there was one."""
        session = self.sessions.remove(group_id, member_id)
        if session is None:
            return False
        for part in session.partitions:
            key = ShareKey(group_id, *part)
            share = self._partitions.get(key)
            if share is not None:
                share.release(member_id, partial(self._released, key))
        if not self.sessions.has_members(group_id):
            # The persisted state is complete: the next member loads it, with offsets that were reset meanwhile.
            for key in [key for key in self._partitions if key.group_id == group_id]:
                self.drop(
                    key,
                    ApiException(ErrorCode.NOT_LEADER_OR_FOLLOWER, "The share group has no sessions here"),
                )
        return True

    def connection_lost(self, connection_id: str) -> None:
        """A connection is closed: end the sessions that were opened on it."""
        for group_id, member_id in self.sessions.of_connection(connection_id):
            self.end_session(group_id, member_id)

    def _released(self, key: ShareKey, error: ApiException | None) -> None:
        if error is not None:
            _logger.warning("Cannot release records of share group %s: %s", key.group_id, error.message)
        self.drop_if_fenced(key, error)


class _Gather:
    """Collects the outcomes of several partitions and reports them together."""

    __slots__ = ("_done", "_missing", "_outcomes")

    def __init__(self, count: int, done: Callable[[Outcomes], None]) -> None:
        self._missing = count
        self._done = done
        self._outcomes: Outcomes = {}
        if not count:
            done(self._outcomes)

    def settled(self, part: PartitionKey, error: ApiException | None) -> None:
        self._outcomes[part] = error
        self._missing -= 1
        if not self._missing:
            self._done(self._outcomes)


def _not_leader(share: SharePartition) -> ApiException:
    return share.error or ApiException(
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        f"This broker no longer leads {share.partition.topic}-{share.partition.index}",
    )
