"""Sign in and sign out."""

from __future__ import annotations

import asyncio
import hmac
from typing import TYPE_CHECKING

from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from ottla.console.forms import read_form
from ottla.console.security.roles import EVERYTHING, Forbidden, Principal
from ottla.console.security.sessions import COOKIE, LASTS_S, PLAIN_COOKIE
from ottla.console.web import NotFound
from ottla.errors import ApiException, ErrorCode

if TYPE_CHECKING:
    from starlette.requests import Request

    from ottla.admin.settings import ClusterSettings
    from ottla.console.app import Console

_SLOWLY = "Too many attempts failed. Wait a minute, then try again."
_FULL = "Too many people are signed in. Try again later."
_WRONG = "The name or the password is wrong."
_STATE = "ottla-oidc"


class SignInFirst(ApiException):
    """Nobody is signed in."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.SASL_AUTHENTICATION_FAILED, "Sign in first.")


def _there(text: str) -> str:
    """Where to go after signing in: a path of ours, never another site."""
    return text if text.startswith("/") and not text.startswith(("//", "/\\")) else "/"


def routes(console: Console) -> list[Route]:
    """The routes of this module."""

    oidc = console.sessions.users.oidc if console.sessions.users is not None else None

    def form(request: Request, to: str, problem: str = "", status: int = 200) -> Response:
        token = console.sessions.token(None)
        text = console.templates.page(
            "signin.html", {"to": to, "problem": problem, "token": token, "oidc": oidc}
        )
        return HTMLResponse(text, status)

    async def show(request: Request) -> Response:
        to = _there(request.query_params.get("to", "/"))
        if console.principal(request) is not None:
            return RedirectResponse(to, 303)
        return form(request, to)

    async def sign_in(request: Request) -> Response:
        values = await read_form(request, 10)
        name, password = values.get("name", ""), values.get("password", "")
        to = _there(values.get("to", "/"))
        sessions, users = console.sessions, console.sessions.users
        address = request.client.host if request.client else ""
        if not sessions.asks:
            return RedirectResponse(to, 303)
        if not sessions.token_fits(None, values.get("token", "")):
            raise Forbidden("This form is too old: load the page again.")
        sources = f"address {address}", f"name {name}"
        if sessions.must_wait(*sources):
            return form(request, to, _SLOWLY, 429)
        own: dict[str, ClusterSettings] = {}
        if users is not None:
            principal = await asyncio.to_thread(users.check, name, password)
        else:
            if console.logins is None or console.logins.full:
                return form(request, to, _FULL, 429)
            try:
                own = await console.logins.check(name, password)
            except ApiException as error:
                return form(request, to, error.message, 503)
            principal = Principal(name, (EVERYTHING,), console.settings.read_only) if own else None
        if principal is None:
            sessions.note_failure(*sources)
            console.audit.note(name[:100], "sign in", "", "", "refused", address=address)
            return form(request, to, _WRONG, 403)
        console.audit.note(principal.name, "sign in", "", "", address=address)
        response = RedirectResponse(to, 303)
        enter(request, response, principal, own)
        return response

    def enter(
        request: Request,
        response: Response,
        principal: Principal,
        own: dict[str, ClusterSettings] | None = None,
    ) -> None:
        secure = is_secure(request)
        key = console.sessions.open(principal)
        if own and console.logins is not None:
            console.logins.enter(key, own)
        response.set_cookie(
            COOKIE if secure else PLAIN_COOKIE,
            key,
            max_age=int(LASTS_S),
            path="/",
            secure=secure,
            httponly=True,
            samesite="strict",
        )

    def is_secure(request: Request) -> bool:
        return request.url.scheme == "https" or console.settings.is_loopback

    async def oidc_start(request: Request) -> Response:
        if oidc is None:
            raise NotFound("There is no such page.")
        root = f"{request.url.scheme}://{request.headers.get('host', '')}"
        to = _there(request.query_params.get("to", "/"))
        state, address = await asyncio.to_thread(oidc.begin, to, root)
        response = RedirectResponse(address, 303)
        # Lax: the browser comes back from the issuer's site. It binds the sign-in to this browser.
        response.set_cookie(
            _STATE, state, max_age=600, path="/oidc", secure=is_secure(request), httponly=True, samesite="lax"
        )
        return response

    async def oidc_done(request: Request) -> Response:
        if oidc is None:
            raise NotFound("There is no such page.")
        state, code = request.query_params.get("state", ""), request.query_params.get("code", "")
        address = request.client.host if request.client else ""
        if not state or not hmac.compare_digest(request.cookies.get(_STATE, "").encode(), state.encode()):
            return form(
                request, "/", "This sign-in began in another browser, or too long ago: begin again.", 403
            )
        if not code:
            return form(request, "/", "The issuer refuses the sign-in.", 403)
        try:
            principal, to = await asyncio.to_thread(oidc.finish, state, code)
        except ApiException as error:
            console.audit.note("", "sign in", "", "", "refused", address=address)
            return form(request, "/", error.message, 403)
        console.audit.note(principal.name, "sign in", "", "", address=address, by="oidc")
        # A page of our own leads on: a strict cookie does not travel with the redirect of another site.
        response = HTMLResponse(console.templates.page("entered.html", {"to": to}))
        enter(request, response, principal)
        response.delete_cookie(_STATE, path="/oidc")
        return response

    async def sign_out(request: Request) -> Response:
        values = await read_form(request, 10)
        key = console.key_of(request)
        if not console.sessions.token_fits(key, values.get("token", "")):
            raise Forbidden("This form is too old: load the page again.")
        console.sessions.close(key)
        if console.logins is not None:
            await console.logins.leave(key)
        response = RedirectResponse("/signin", 303)
        for name, secure in ((COOKIE, True), (PLAIN_COOKIE, False)):
            response.delete_cookie(name, path="/", secure=secure, httponly=True, samesite="strict")
        return response

    return [
        Route("/signin", show, methods=["GET"]),
        Route("/signin", sign_in, methods=["POST"]),
        Route("/signout", sign_out, methods=["POST"]),
        Route("/oidc/start", oidc_start, methods=["GET"]),
        Route("/oidc/done", oidc_done, methods=["GET"]),
    ]
