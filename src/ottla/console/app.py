"""The application: routes, who may pass them, errors as pages, and the life of its parts."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ottla.admin.connection import ConnectionFailed
from ottla.console import doing, exporter, frame, live, pages, signin
from ottla.console.clusters import OpenCluster, OpenClusters
from ottla.console.probe import Probe, running
from ottla.console.render import FOLDER, Templates
from ottla.console.security.audit import Audit
from ottla.console.security.headers import Guard
from ottla.console.security.kafka_login import KafkaLogins, check_targets
from ottla.console.security.masks import Masks
from ottla.console.security.roles import SEE, Forbidden, Principal
from ottla.console.security.sessions import COOKIE, PLAIN_COOKIE, Sessions
from ottla.console.security.users import Users
from ottla.console.services import ServiceProblem, Services
from ottla.console.web import PAGES, BadInput, NotFound, Page, Values, View
from ottla.errors import ApiException

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp

    from ottla.admin.settings import ClusterSettings
    from ottla.console.services import Service
    from ottla.console.settings import ConsoleSettings
    from ottla.schemas.show import Shower

_logger = logging.getLogger(__name__)

_FIRST_ROUND_S: Final = 5.0
_REGISTRY_TIMEOUT_S: Final = 3.0
_SWEEP_S: Final = 60.0
_STREAM: Final = "text/event-stream"


def _shower(service: Service | None) -> Shower | None:
    """What decodes the records of a cluster with a schema registry."""
    if service is None:
        return None
    from ottla.schemas.client import Registry
    from ottla.schemas.show import Shower

    user, _, password = service.user_info.partition(":")
    return Shower(Registry(service.url, user, password, timeout_s=_REGISTRY_TIMEOUT_S))


class Console:
    """The parts that requests share."""

    def __init__(self, settings: ConsoleSettings, targets: dict[str, ClusterSettings]) -> None:
        users = Users.load(settings.users, read_only=settings.read_only) if settings.users else None
        self.settings = settings
        services = {
            each.name: Services.of(
                each,
                settings.registry,
                settings.connect,
                settings.applications,
                settings.prometheus,
                settings.data,
            )
            for each in settings.targets
        }
        self._services = services
        self.clusters = self._open(targets)
        """Of everybody; with --login kafka nobody uses them, and each session has its own."""
        self.logins: KafkaLogins | None = None
        if settings.login:
            check_targets(targets)
            self.logins = KafkaLogins(targets, self._open)
        self.sessions = Sessions(users, settings.read_only, needed=bool(settings.login))
        self.audit = Audit(settings.audit)
        self.masks = Masks.load(settings.masks)
        self.templates = Templates()
        self.streams = live.Streams()
        self.stopping = asyncio.Event()
        of_probes = self.clusters.by_name.values() if settings.probe else ()
        self.probes = {each.name: Probe(each) for each in of_probes}

    def _open(self, targets: dict[str, ClusterSettings]) -> OpenClusters:
        found = OpenClusters(targets, self._services)
        for name, cluster in found.by_name.items():
            cluster.reader.shower = _shower(self._services[name].registry if name in self._services else None)
        return found

    async def run(self) -> None:
        """Sample until cancelled: the clusters of everybody, or look after those of sessions."""
        if self.logins is None:
            await self.clusters.run()
            return
        while True:
            await asyncio.sleep(_SWEEP_S)
            await self.logins.sweep(lambda key: self.sessions.find(key) is not None)

    # -- requests

    def clusters_of(self, request: Request) -> OpenClusters:
        """The clusters that a request may ask: those of its session, if people sign in to the cluster."""
        found = self.logins.find(self.key_of(request)) if self.logins is not None else None
        return found or self.clusters

    def key_of(self, request: Request) -> str | None:
        """The session's key, from its cookie."""
        return request.cookies.get(COOKIE) or request.cookies.get(PLAIN_COOKIE)

    def principal(self, request: Request) -> Principal | None:
        return self.sessions.find(self.key_of(request))

    def view(self, request: Request, page: Page | None = None) -> View:
        """The view of a request; NotFound for an unknown cluster, SignInFirst without a session."""
        principal = self.principal(request)
        if principal is None:
            raise signin.SignInFirst
        clusters = self.clusters_of(request)
        if self.logins is not None and clusters is self.clusters:
            raise signin.SignInFirst
        name = str(request.path_params.get("cluster", clusters.first.name))
        cluster = clusters.by_name.get(name)
        if cluster is None or not principal.may(SEE, name, "cluster"):
            raise NotFound(f"There is no cluster '{name}' here.")
        cluster.sampler.touch()
        return View(self, request, principal, cluster, page)

    async def wait_ready(self, cluster: OpenCluster) -> bool:
        """Whether the sampler has seen the cluster; the first round may take a moment."""
        if not cluster.state.ready and not cluster.state.problem:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FIRST_ROUND_S):
                    await cluster.sampler.next_round()
        return cluster.state.ready

    def html(self, view: View, template: str, values: Values, status: int = 200) -> Response:
        """A whole page in its frame."""
        text = self.templates.page(template, {**frame.values(view), **values})
        return HTMLResponse(text, status, headers={"vary": "accept, x-block"})


def _serve(console: Console, page: Page) -> Callable[[Request], Awaitable[Response]]:
    """The endpoint of a page: a document, one of its blocks, or its live blocks as a stream."""

    async def endpoint(request: Request) -> Response:
        view = console.view(request, page)
        resource = page.resource_of({**request.path_params, "id": request.query_params.get("id", "")})
        view.require(page.verb, resource)
        if not await console.wait_ready(view.cluster):
            problem = view.state.problem or "The cluster has not answered yet."
            return console.html(view, "unreachable.html", {"problem": problem}, 503)
        if not page.template:
            return cast("Response", await page.handler(view))
        if page.live and _STREAM in request.headers.get("accept", ""):
            return live.stream(view, page)
        values = cast("Values", await page.handler(view))
        block = request.headers.get("x-block")
        if block is not None:
            everything = {**frame.values(view), **values}
            found = console.templates.blocks(page.template, (block,), everything)
            if block not in found:
                raise NotFound("There is no such part of this page.")
            return HTMLResponse(found[block], headers={"vary": "accept, x-block"})
        return console.html(view, page.template, values)

    return endpoint


def _path(page: Page) -> str:
    """Pages are under the cluster; the JSON interface is apart, with its version."""
    if page.path.startswith("/api/"):
        return f"/api/v1/c/{{cluster}}{page.path.removeprefix('/api')}"
    return f"/c/{{cluster}}{page.path}"


def _status_of(error: ApiException) -> int:
    match error:
        case NotFound():
            return 404
        case Forbidden():
            return 403
        case BadInput():
            return 400
        case ServiceProblem() if error.status == 404:
            return 404
        case _ if error.code.name.endswith("_AUTHORIZATION_FAILED"):
            return 403
        case ConnectionFailed() | ServiceProblem(status=0):
            return 503
    return 502


def application(settings: ConsoleSettings, targets: dict[str, ClusterSettings]) -> tuple[Starlette, Console]:
    """The ASGI application, and the console behind it."""
    console = Console(settings, targets)

    async def on_error(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            error = NotFound("There is no such page.") if error.status_code == 404 else BadInput(error.detail)
        assert isinstance(error, ApiException)
        if isinstance(error, signin.SignInFirst):
            if request.url.path.startswith("/api/") or request.method == "POST":
                return JSONResponse({"error": error.message}, 401)
            there = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            return RedirectResponse(f"/signin?to={quote(there, safe='')}", 303)
        status = _status_of(error)
        message = error.message or error.code.name
        if request.url.path.startswith("/api/") or _STREAM in request.headers.get("accept", ""):
            return JSONResponse({"error": message}, status)
        principal = console.principal(request)
        if principal is None:
            return HTMLResponse("", status)
        name = str(request.path_params.get("cluster", ""))
        clusters = console.clusters_of(request)
        cluster = clusters.by_name.get(name, clusters.first)
        view = View(console, request, principal, cluster)
        return console.html(view, "error.html", {"message": message, "status": status}, status)

    async def root(request: Request) -> Response:
        view = console.view(request)
        return RedirectResponse(f"{view.base}/", 303)

    async def design(request: Request) -> Response:
        return RedirectResponse(console.view(request).url("design"), 303)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        sampling = asyncio.create_task(console.run())
        try:
            async with running(console.probes.values()):
                yield
        finally:
            sampling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sampling
            await console.clusters.close()
            if console.logins is not None:
                await console.logins.close()
            console.audit.close()

    routes: list[Route | Mount] = [
        Route("/metrics", exporter.endpoint(console)),
        Route("/health/live", exporter.alive),
        Route("/health/ready", exporter.ready(console)),
    ]
    if settings.pages:
        pages.load()
        routes += [
            Route("/", root),
            Route("/design", design),
            Mount("/static", StaticFiles(directory=FOLDER / "static")),
            *signin.routes(console),
            *doing.routes(console),
            *(Route(_path(page), _serve(console, page)) for page in PAGES),
        ]
    app: ASGIApp = Starlette(
        routes=routes,
        middleware=[Middleware(Guard, settings=settings)],
        exception_handlers={ApiException: on_error, HTTPException: on_error},
        lifespan=lifespan,
    )
    return cast("Starlette", app), console
