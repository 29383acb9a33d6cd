"""The two steps of a change: `plan` shows what would be done, `do` does what was shown."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ottla.console.forms import read_form
from ottla.console.plans import CHANGES, Change, Plan
from ottla.console.security.roles import Forbidden
from ottla.console.web import NotFound
from ottla.errors import ApiException

if TYPE_CHECKING:
    from starlette.requests import Request

    from ottla.console.app import Console
    from ottla.console.web import View

_OWN_FIELDS = ("token", "digest")


def routes(console: Console) -> list[Route]:
    """The routes of this module."""

    async def begin(request: Request) -> tuple[View, Change, dict[str, str], str]:
        view = console.view(request)
        found = CHANGES.get(view.part("name"))
        if found is None:
            raise NotFound("There is no such change.")
        fields = await read_form(request)
        token = request.headers.get("x-token") or fields.get("token", "")
        if not console.sessions.token_fits(console.key_of(request), token):
            raise Forbidden("This form is too old, or not from this console: load the page again.")
        digest = fields.get("digest", "")
        return view, found, {name: value for name, value in fields.items() if name not in _OWN_FIELDS}, digest

    async def planned(view: View, change: Change, form: dict[str, str]) -> Plan:
        if not view.principal.may_somewhere(change.verb, view.cluster.name):
            # Not even planned: a planner asks the cluster, and its errors tell what is there.
            view.require(change.verb, "cluster")
            raise Forbidden(f"{view.principal.name} has no role with the verb '{change.verb}'.")
        plan = await change.planner(view, form)
        view.require(plan.verb, plan.resource)
        return plan

    def show(view: View, change: Change, plan: Plan, form: dict[str, str], note: str = "") -> Response:
        values = {
            "plan": plan,
            "change": change,
            "form": form if plan.carried is None else plan.carried,
            "note": note,
            "digest": plan.digest(),
        }
        return console.html(view, "plan.html", values, 409 if note else 200)

    async def plan(request: Request) -> Response:
        view, change, form, _ = await begin(request)
        return show(view, change, await planned(view, change, form), form)

    async def do(request: Request) -> Response:
        view, change, form, digest = await begin(request)
        plan = await planned(view, change, form)
        if plan.refused:
            return show(view, change, plan, form, "It cannot be done now.")
        if plan.digest() != digest:
            return show(
                view, change, plan, form, "Things have changed since this was planned. This is the plan now."
            )
        try:
            done = await plan.apply()
        except ApiException as error:
            console.audit.note(
                view.principal.name,
                change.name,
                view.cluster.name,
                plan.resource,
                "failed",
                error=error.message,
            )
            raise
        console.audit.note(
            view.principal.name, change.name, view.cluster.name, plan.resource, plan=plan.title
        )
        view.cluster.sampler.refresh()
        await view.cluster.sampler.next_round()
        target = plan.then or view.url("")
        joint = "&" if "?" in target else "?"
        return RedirectResponse(f"{target}{joint}{urlencode({'done': done})}", 303)

    return [
        Route("/c/{cluster}/plan/{name}", plan, methods=["POST"]),
        Route("/c/{cluster}/do/{name}", do, methods=["POST"]),
    ]
