"""The outer wall of the application: the Host header, the headers of every answer, and the source of changes.

Plain ASGI, so that streams pass through it untouched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse

from ottla.console.settings import LOOPBACK

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from ottla.console.settings import ConsoleSettings

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
_HEADERS: Final = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_SAFE: Final = ("GET", "HEAD")
MAX_BODY_BYTES: Final = 4 << 20


class Guard:
    """Refuses a foreign Host, and changes that do not come from our own pages."""

    def __init__(self, app: ASGIApp, settings: ConsoleSettings) -> None:
        self._app = app
        self._hosts = {settings.host.lower(), *(each.lower() for each in settings.hosts)}
        if settings.is_loopback:
            self._hosts.update(LOOPBACK)
        self._any_host = settings.host in ("0.0.0.0", "::", "") and not settings.hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        reason = self._refusal(scope["method"], headers)
        if reason is not None:
            await PlainTextResponse(reason + "\n", 403, headers=_HEADERS)(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    present.setdefault(name, value)
                present.setdefault("cache-control", "no-store")
            await send(message)

        await self._app(scope, receive, send_with_headers)

    def _refusal(self, method: str, headers: Headers) -> str | None:
        host = headers.get("host", "")
        if not self._any_host and host_name(host) not in self._hosts:
            return f"The console does not answer for the host {host_name(host)[:80]!r}; --host allows it."
        if method in _SAFE:
            return None
        length = headers.get("content-length", "")
        if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
            return "The request has no length, or a body that is too long."
        site = headers.get("sec-fetch-site")
        if site is not None:
            return None if site == "same-origin" else "Changes must come from the console's own pages."
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            return "Changes must come from the console's own pages."
        return None


def host_name(header: str) -> str:
    """The host of a Host header, without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower()
