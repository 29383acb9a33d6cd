"""The REST server of a worker: the routes, headers and logins, on uvicorn in a thread of its own."""

from __future__ import annotations

import logging
import socket
import threading
from typing import TYPE_CHECKING

from ottla.connect.config.worker import Listener
from ottla.connect.failures import ConnectError

if TYPE_CHECKING:
    from ssl import SSLContext

    import uvicorn
    from starlette.applications import Starlette
    from starlette.types import ASGIApp, Receive, Scope, Send

    from ottla.connect.worker import Worker

_logger = logging.getLogger(__name__)


class _EscapedPaths:
    """Routes by the path as it was sent: a name may hold a slash, as %2F."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw = scope.get("raw_path")
        if raw:
            scope = {**scope, "path": raw.partition(b"?")[0].decode("ascii", "replace")}
        await self._app(scope, receive, send)


def make_app(worker: Worker, *, admin_only: bool = False) -> Starlette:
    """The application that serves a worker; `admin_only` is for listeners of /admin alone."""
    try:
        from starlette.applications import Starlette
        from starlette.middleware import Middleware
        from starlette.middleware.cors import CORSMiddleware
    except ModuleNotFoundError:
        raise ConnectError("a worker needs starlette and uvicorn: pip install 'ottla[connect]'") from None

    from ottla.connect.rest import admin, connectors, plugins
    from ottla.connect.rest.errors import HANDLERS
    from ottla.connect.rest.guards import HEADERS, AnswerHeaders, BasicLogin, header_rules, logins

    config = worker.config
    apart = config.admin_listeners is not None
    routes = [*admin.ROUTES, *connectors.ROUTES, *plugins.ROUTES]
    if admin_only or not apart:
        routes = [*([] if admin_only else routes), *admin.ADMIN_ROUTES]
    middleware = [Middleware(AnswerHeaders, rules=header_rules(config.values[HEADERS]))]
    if origins := config.values["access.control.allow.origin"]:
        methods = config.values["access.control.allow.methods"] or "GET,POST,HEAD"
        middleware.append(
            Middleware(
                CORSMiddleware,
                allow_origins=[one.strip() for one in origins.split(",")],
                allow_methods=[one.strip() for one in methods.split(",")],
                allow_headers=["*"],
            )
        )
    if (passwords := logins(config)) is not None:
        middleware.append(Middleware(BasicLogin, passwords=passwords))
    middleware.append(Middleware(_EscapedPaths))
    app = Starlette(routes=routes, exception_handlers=HANDLERS, middleware=middleware)
    app.router.redirect_slashes = False
    app.state.worker = worker
    return app


class RestServer:
    """Serves an application on one listener."""

    def __init__(self, listener: Listener, app: ASGIApp, tls: SSLContext | None = None) -> None:
        self._listener = listener
        self._tls = tls if listener.scheme == "https" else None
        self._app = app
        self._socket = _bind(listener)
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port that was bound."""
        return int(self._socket.getsockname()[1])

    def start(self) -> None:
        """Serves in a thread of its own."""
        import uvicorn

        config = uvicorn.Config(self._app, log_level="warning", access_log=False, lifespan="off")
        config.load()
        config.ssl = self._tls
        server = self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=lambda: server.run(sockets=[self._socket]), name="rest", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Ends all connections."""
        if self._server is not None:
            self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(5.0)
        self._socket.close()


def _bind(listener: Listener) -> socket.socket:
    family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((listener.host, listener.port))
        made.listen(128)
    except OSError as error:
        made.close()
        raise ConnectError(
            f"cannot listen on {listener.host or '*'}:{listener.port}: {error.strerror}; "
            "another worker may run there, or set `listeners` to another port"
        ) from None
    return made
