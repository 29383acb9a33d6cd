"""Sign in with a user of the cluster: its brokers check the password, and its ACLs decide what the user may do.

Every session has clients of its own, which log in as its user. The console holds no rights of its own then.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from ottla.admin.cluster import Cluster
from ottla.errors import ApiException, ErrorCode

if TYPE_CHECKING:
    from ottla.admin.settings import ClusterSettings
    from ottla.console.clusters import OpenClusters

MAX_USERS: Final = 50
"""Sessions at the same time: each has a sampler."""
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_REFUSALS: Final = frozenset({ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.ILLEGAL_SASL_STATE})
_CONNECT_S: Final = 5.0


def check_targets(targets: Mapping[str, ClusterSettings]) -> None:
    """Refuse clusters that nobody signs in to with a name and a password."""
    for name, settings in targets.items():
        security = settings.security
        if not security.uses_sasl or security.mechanism not in MECHANISMS:
            raise ApiException(
                ErrorCode.INVALID_REQUEST,
                f"--login kafka needs SASL with a name and a password: set security.protocol=SASL_SSL and"
                f" sasl.mechanism (one of {', '.join(MECHANISMS)}) for {name}",
            )


def accepted(targets: Mapping[str, ClusterSettings], user: str, password: str) -> dict[str, ClusterSettings]:
    """The clusters that accept a user, with the settings of that user. It blocks.

    Empty if all that answer refuse the user; ApiException if none answers.
    """
    found: dict[str, ClusterSettings] = {}
    failure: ApiException | None = None
    refused = False
    for name, settings in targets.items():
        security = replace(settings.security, user=user, password=password, token=False)
        own = replace(settings, security=security)
        client = Cluster(replace(own, request_timeout_s=_CONNECT_S))
        try:
            client.any()
            found[name] = own
        except ApiException as error:
            refused = refused or error.code in _REFUSALS
            failure = error
        finally:
            client.close()
    if not found and not refused and failure is not None:
        raise failure
    return found


@dataclass(slots=True)
class KafkaLogins:
    """The clients of everyone who is signed in, by the key of the session."""

    targets: Mapping[str, ClusterSettings]
    open_clusters: Callable[[dict[str, ClusterSettings]], OpenClusters]
    _open: dict[str, tuple[OpenClusters, asyncio.Task[None]]] = field(default_factory=dict, repr=False)

    @property
    def full(self) -> bool:
        return len(self._open) >= MAX_USERS

    async def check(self, user: str, password: str) -> dict[str, ClusterSettings]:
        return await asyncio.to_thread(accepted, self.targets, user, password)

    def enter(self, key: str, settings: dict[str, ClusterSettings]) -> None:
        """Open the clients of a new session."""
        clusters = self.open_clusters(settings)
        self._open[key] = clusters, asyncio.create_task(clusters.run())

    def find(self, key: str | None) -> OpenClusters | None:
        found = self._open.get(key) if key else None
        return None if found is None else found[0]

    async def leave(self, key: str | None) -> None:
        """Close the clients of a session."""
        found = self._open.pop(key, None) if key else None
        if found is None:
            return
        clusters, task = found
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await clusters.close()

    async def sweep(self, alive: Callable[[str], bool]) -> None:
        """Close the clients of sessions that have ended."""
        for key in [key for key in self._open if not alive(key)]:
            await self.leave(key)

    async def close(self) -> None:
        for key in list(self._open):
            await self.leave(key)
