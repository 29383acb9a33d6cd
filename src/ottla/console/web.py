"""What pages are made of: the view of one request, and the list of pages and actions that the application serves.

A page is an asynchronous function from a view to the values of its template. Its live blocks are the blocks of the
template that are sent again after each round of the sampler, where they have changed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from ottla.console.security.roles import SEE
from ottla.errors import ApiException, ErrorCode

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.console.app import Console
    from ottla.console.clusters import OpenCluster, OpenClusters
    from ottla.console.sampler.state import ClusterState, GroupState, TopicState
    from ottla.console.security.roles import Principal

Values = dict[str, Any]


class NotFound(ApiException):
    """There is nothing at this address; the sentence says what is missing."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.RESOURCE_NOT_FOUND, message)


class BadInput(ApiException):
    """What a person typed cannot be used; the sentence says why."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, message)


@dataclass(slots=True)
class View:
    """One request of one principal to one cluster."""

    console: Console
    request: Request
    principal: Principal
    cluster: OpenCluster
    page: Page | None = None

    @property
    def clusters(self) -> OpenClusters:
        """All clusters that the request may ask."""
        return self.console.clusters_of(self.request)

    @property
    def state(self) -> ClusterState:
        return self.cluster.state

    @property
    def base(self) -> str:
        """The beginning of the addresses of this cluster's pages."""
        return f"/c/{quote(self.cluster.name, safe='')}"

    def url(self, *parts: object, **query: object) -> str:
        """The address of a page of this cluster; parts are quoted."""
        path = "/".join([self.base, *(quote(str(part), safe="") for part in parts)])
        shown = {name: value for name, value in query.items() if value not in (None, "")}
        return f"{path}?{urlencode(shown)}" if shown else path

    def same(self, **changes: object) -> str:
        """This page with other values in its query."""
        query: dict[str, object] = dict(self.request.query_params)
        query.update(changes)
        shown = {name: value for name, value in query.items() if value not in (None, "")}
        return self.request.url.path + (f"?{urlencode(shown)}" if shown else "")

    def text(self, name: str, default: str = "") -> str:
        """A value of the query."""
        return self.request.query_params.get(name, default).strip()

    def number(self, name: str, default: int, low: int = 0, high: int = 2**63 - 1) -> int:
        """A whole number of the query, within bounds; BadInput for anything else."""
        found = self.text(name)
        return default if not found else whole(found, name, low, high)

    def part(self, name: str) -> str:
        """A part of the path."""
        return str(self.request.path_params[name])

    def may(self, verb: str, resource: str = "cluster") -> bool:
        return self.principal.may(verb, self.cluster.name, resource)

    def seer(self, kind: str) -> Callable[[str], bool]:
        """Whether the principal may see a topic or group by its name; quick for lists of thousands."""
        if self.principal.may_everywhere(SEE, self.cluster.name):
            return sees_all
        return lambda name: self.may(SEE, f"{kind}:{name}")

    def require(self, verb: str, resource: str = "cluster") -> None:
        self.principal.require(verb, self.cluster.name, resource)

    def topic(self) -> TopicState:
        """The topic of the path; NotFound if there is none."""
        name = self.part("topic")
        found = self.state.topics.get(name)
        if found is None:
            raise NotFound(f"There is no topic '{name}' in {self.cluster.name}.")
        return found

    def group(self) -> GroupState:
        """The group of the query, which may have any name; NotFound if there is none."""
        name = self.request.query_params.get("id", "")
        found = self.state.groups.get(name)
        if found is None:
            raise NotFound(f"There is no group '{name}' in {self.cluster.name}.")
        return found


def sees_all(name: str) -> bool:
    """What `View.seer` gives to a principal that may see everything."""
    return True


def whole(text: str, name: str, low: int = 0, high: int = 2**63 - 1) -> int:
    """A whole number that a person typed."""
    plain = text.replace(",", "").replace("_", "")
    if not plain.lstrip("-").isdecimal() or len(plain) > 20 or not low <= int(plain) <= high:
        raise BadInput(f"{name}: '{text[:40]}' is not a whole number from {low:,} to {high:,}.")
    return int(plain)


Handler = Callable[[View], Awaitable[Values]]
Answer = Callable[[View], Awaitable["Response"]]


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a cluster, or an answer of another kind."""

    path: str
    template: str
    handler: Handler | Answer
    verb: str
    resource: str
    """`cluster`, or a pattern over the parts of the path like `topic:{topic}`."""
    live: tuple[str, ...] = ()
    menu: str = ""
    """The entry of the rail that is marked while this page is shown."""

    def resource_of(self, parts: Mapping[str, object]) -> str:
        return self.resource.format(**parts)


PAGES: Final[list[Page]] = []


def page(
    path: str,
    template: str,
    *,
    verb: str = SEE,
    resource: str = "cluster",
    live: tuple[str, ...] = (),
    menu: str = "",
) -> Callable[[Handler], Handler]:
    """Serve a function as a page under `/c/{cluster}`."""

    def add(handler: Handler) -> Handler:
        PAGES.append(Page(path, template, handler, verb, resource, live, menu))
        return handler

    return add


def answer(path: str, *, verb: str = SEE, resource: str = "cluster") -> Callable[[Answer], Answer]:
    """Serve a function that makes its own response under `/c/{cluster}`: a stream, a file, JSON."""

    def add(handler: Answer) -> Answer:
        PAGES.append(Page(path, "", handler, verb, resource))
        return handler

    return add
