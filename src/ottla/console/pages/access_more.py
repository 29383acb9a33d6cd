"""More of the page Access, each changed from a plan: delegation tokens, and the metrics that clients send."""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.admin.configs import alter_configs, describe_configs, names_with_configs
from ottla.admin.users import describe_tokens, expire_token
from ottla.console.plans import Form, Plan, change
from ottla.console.render import when
from ottla.console.security.roles import ADMIN
from ottla.console.web import BadInput, View, whole
from ottla.wire.enums import ConfigResourceType

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster

_NOW: Final = -1
"""The period after which a token expires at once."""
_MAX_NAME: Final = 200
_KEYS: Final = ("interval.ms", "metrics", "match")


@dataclass(frozen=True, slots=True)
class Token:
    """A delegation token; what proves it is not among this."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    ends_ms: int


def tokens(cluster: Cluster) -> list[Token]:
    """The tokens that the console's user may see."""
    found = [
        Token(
            each.token_id,
            f"{each.principal_type}:{each.principal_name}",
            f"{each.token_requester_principal_type}:{each.token_requester_principal_name}"
            if each.token_requester_principal_name
            else "",
            tuple(f"{one.principal_type}:{one.principal_name}" for one in each.renewers),
            each.issue_timestamp,
            each.expiry_timestamp,
            each.max_timestamp,
        )
        for each in describe_tokens(cluster).tokens
    ]
    return sorted(found, key=lambda each: (each.owner, each.issued_ms))


def subscriptions(cluster: Cluster) -> dict[str, dict[str, str]]:
    """The settings of each subscription to metrics of clients, as far as they are set."""
    kind = ConfigResourceType.CLIENT_METRICS
    names = names_with_configs(cluster, kind)
    found = describe_configs(cluster, [(kind, name) for name in names]) if names else {}
    return {
        name: {each.name: each.value for each in found[kind, name] if each.value is not None}
        for name in sorted(names)
    }


@change("token.expire", ADMIN)
async def plan_expire(view: View, form: Form) -> Plan:
    """Let a delegation token expire at once."""
    name = form.get("token_id", "")

    def look(cluster: Cluster) -> tuple[str, int, bytes] | None:
        for each in describe_tokens(cluster).tokens:
            if each.token_id == name:
                return f"{each.principal_type}:{each.principal_name}", each.expiry_timestamp, each.hmac
        return None

    found = await view.cluster.call(look)
    if found is None:
        raise BadInput(f"There is no token '{name[:80]}', or it has expired.")
    owner, expires_ms, hmac = found

    async def apply() -> str:
        await view.cluster.call(expire_token, hmac, _NOW)
        return f"The token {name} has expired."

    return Plan(
        title="Let a token expire",
        verb=ADMIN,
        resource="cluster",
        apply=apply,
        sentence="Clients that sign in with it are refused from now on. Connections that are open stay.",
        columns=("Token", "Owner", "Would expire"),
        rows=[(name, owner, when(expires_ms))],
        commands=[
            f"ottla delegation-tokens --bootstrap-server {view.cluster.bootstrap} --expire --hmac HMAC"
            f" --expiry-time-period {_NOW}"
        ],
        refused="" if expires_ms > time.time() * 1000 else "It has expired already.",
        danger=True,
        button="Let it expire",
        then=view.url("access"),
    )


def _subscription(form: Form) -> str:
    name = form.get("name", "").strip()
    if not name or len(name) > _MAX_NAME:
        raise BadInput(f"The subscription needs a name of up to {_MAX_NAME} letters.")
    return name


@change("telemetry.set", ADMIN)
async def plan_subscribe(view: View, form: Form) -> Plan:
    """Make or change a subscription to metrics of clients."""
    name = _subscription(form)
    wanted = {
        "interval.ms": str(whole(form["interval"].strip(), "Seconds", 1, 3_600) * 1000)
        if form.get("interval", "").strip()
        else "",
        "metrics": form.get("metrics", "").strip(),
        "match": form.get("match", "").strip(),
    }
    now = (await view.cluster.call(subscriptions)).get(name, {})
    added = {key: value for key, value in wanted.items() if value}
    deleted = [key for key, value in wanted.items() if not value and key in now]

    async def apply() -> str:
        await view.cluster.call(
            alter_configs, ConfigResourceType.CLIENT_METRICS, name, added=added, deleted=deleted
        )
        return f"Clients are asked for the metrics of {name} from now on."

    flags = "".join(
        f" --{key.removesuffix('.ms')} {shlex.quote(wanted[key])}" for key in _KEYS if key in added
    )
    return Plan(
        title=f"Metrics of clients: {name}",
        verb=ADMIN,
        resource="cluster",
        apply=apply,
        sentence="Clients that fit learn of it within their interval, and push to the brokers.",
        columns=("Key", "Now", "Then"),
        rows=[(key, now.get(key, "not set"), wanted[key] or "not set") for key in _KEYS],
        commands=[
            f"ottla client-metrics --bootstrap-server {view.cluster.bootstrap} --alter --name"
            f" {shlex.quote(name)}{flags}"
        ],
        refused="" if added else "Name at least the metrics: a prefix like org.apache.kafka.consumer.",
        button="Ask clients",
        then=view.url("access"),
    )


@change("telemetry.delete", ADMIN)
async def plan_unsubscribe(view: View, form: Form) -> Plan:
    """Delete a subscription to metrics of clients."""
    name = _subscription(form)
    now = (await view.cluster.call(subscriptions)).get(name)

    async def apply() -> str:
        await view.cluster.call(
            alter_configs, ConfigResourceType.CLIENT_METRICS, name, deleted=list(now or ())
        )
        return f"Clients are not asked for the metrics of {name} any more."

    return Plan(
        title=f"Delete {name}",
        verb=ADMIN,
        resource="cluster",
        apply=apply,
        columns=("Key", "Value"),
        rows=sorted((now or {}).items()),
        commands=[
            f"ottla client-metrics --bootstrap-server {view.cluster.bootstrap} --delete --name {shlex.quote(name)}"
        ],
        refused="" if now is not None else "There is no such subscription.",
        danger=True,
        button="Delete it",
        then=view.url("access"),
    )
