"""Assembles a registry: its state, its log, its elector and its HTTP server; runs until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from ottla.admin.cluster import Cluster
from ottla.admin.settings import ClusterSettings
from ottla.registry.extras import Extras, ExtrasState
from ottla.registry.leader import Elector, Identity
from ottla.registry.log import SchemasLog
from ottla.registry.registry import Registry
from ottla.registry.rest.app import App
from ottla.registry.rest.auth import Users
from ottla.registry.rest.routes import Api
from ottla.registry.roles import Roles
from ottla.registry.state import State

_logger = logging.getLogger(__name__)

_BACKLOG: Final = 1024
_KEEP_ALIVE_S: Final = 60
_MAX_CONNECTIONS: Final = 2_000
_EXTRAS_SUFFIX: Final = "_extras"
"""Of the topic that holds keys and associations: Confluent's registry has no such records in `_schemas`."""


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """What `ottla registry` is started with."""

    cluster: ClusterSettings
    host: str = "localhost"
    port: int = 8081
    advertised_host: str | None = None
    topic: str = "_schemas"
    group: str = "schema-registry"
    replication_factor: int = 3
    session_timeout_ms: int = 10_000
    eligible: bool = True
    level: str = "BACKWARD"
    users: Users | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None


async def serve(settings: RegistrySettings, started: Callable[[str], None]) -> None:
    """Run a registry. `started` gets its URL when it answers."""
    import uvicorn

    listener = _listen(settings.host, settings.port)
    port = listener.getsockname()[1]
    scheme = "https" if settings.tls_cert else "http"
    identity = Identity(settings.advertised_host or settings.host, port, scheme, settings.eligible)

    def new_cluster() -> Cluster:
        return Cluster(settings.cluster)

    roles = Roles()
    state = State()
    fence_id = f"{settings.group}-{settings.topic}"
    log = SchemasLog(new_cluster, settings.topic, settings.replication_factor, state, fence_id)
    registry = Registry(state, log, roles.may_write)
    registry.default_level = settings.level

    def extras_log(held: ExtrasState) -> SchemasLog:
        beside = f"{settings.topic}{_EXTRAS_SUFFIX}"
        return SchemasLog(
            new_cluster, beside, settings.replication_factor, held, f"{settings.group}-{beside}"
        )

    extras = Extras(extras_log, roles.may_write)
    roles.registry = registry
    try:
        await log.start()
        cluster_id = await asyncio.to_thread(_cluster_id, new_cluster())
    except BaseException:
        listener.close()
        await log.stop()
        raise
    elector = Elector(new_cluster(), settings.group, identity, settings.session_timeout_ms, roles.elected)
    roles.elector = elector
    elector.start()
    server = uvicorn.Server(
        uvicorn.Config(
            App(Api(registry, cluster_id, extras), roles, settings.users),
            http=_http_class(),
            lifespan="off",
            access_log=False,
            log_config=None,
            log_level="warning",
            server_header=False,
            date_header=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            limit_concurrency=_MAX_CONNECTIONS,
            timeout_graceful_shutdown=5,
            ssl_certfile=settings.tls_cert,
            ssl_keyfile=settings.tls_key,
        )
    )
    started(identity.url)
    try:
        await server.serve(sockets=[listener])
    finally:
        await asyncio.to_thread(elector.stop)
        await log.stop()
        await extras.stop()
        registry.workbench.close()


def _http_class() -> Literal["h11", "httptools"]:
    try:
        import httptools  # noqa: F401
    except ImportError:
        return "h11"
    return "httptools"


def _cluster_id(cluster: Cluster) -> str:
    found = cluster.metadata(()).cluster_id or ""
    cluster.close()
    return str(found)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    listener.listen(_BACKLOG)
    return listener
