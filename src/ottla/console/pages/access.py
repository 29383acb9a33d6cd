"""Access: ACLs as sentences, a question box, SCRAM users, quotas, tokens. `access_changes` changes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from ottla.admin.acls import Acls, Entry, Pattern, describe_acls
from ottla.admin.node_metrics import read_numbers
from ottla.admin.users import Quotas, describe_quotas, describe_scram_credentials
from ottla.console.frame import AREAS, Area
from ottla.console.pages.access_more import Token, subscriptions, tokens
from ottla.console.security.roles import ADMIN
from ottla.console.web import Values, View, page
from ottla.errors import ApiException
from ottla.wire.enums import AclOperation, AclPermissionType, PatternType, ResourceType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.admin.cluster import Cluster
    from ottla.wire.messages import DescribeUserScramCredentialsResponse

T = TypeVar("T")

AREAS.append(Area("access", "Access", "access", key="a", verb=ADMIN))
NO_AUTHORIZER: Final = "No Authorizer"
EVERYONE: Final = "The brokers have no authorizer: everyone may do everything."
_IMPLIED: Final = {
    AclOperation.DESCRIBE: (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
}
QUOTA_KEYS: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
OPERATIONS: Final = ("read", "write", "create", "delete", "alter", "describe")
_ASKED: Final = 20
"""So many brokers are asked what clients use of their quotas."""
_KINDS: Final = ("topic", "group", "cluster", "transactional_id")


def sentence(pattern: Pattern, entry: Entry) -> str:
    """An entry in words."""
    who = (entry.principal or "").removeprefix("User:")
    who = "everyone" if who == "*" else who
    allowed = entry.permission == AclPermissionType.ALLOW
    verb = "may" if allowed else "may not"
    what = (
        f"do {'everything' if allowed else 'anything'} with"
        if entry.operation == AclOperation.ALL
        else entry.operation.name.lower().replace("_", " ")
    )
    kind = pattern.kind.name.lower().replace("_", " ")
    if pattern.kind == ResourceType.CLUSTER:
        where = "the cluster"
    elif pattern.name == "*":
        where = f"any {kind}"
    elif pattern.pattern == PatternType.PREFIXED:
        where = f"{kind}s that begin with {pattern.name}"
    else:
        where = f"the {kind} {pattern.name}"
    host = "" if entry.host in ("*", None) else f" from {entry.host}"
    return f"{who} {verb} {what} {where}{host}"


def covers(pattern: Pattern, kind: ResourceType, name: str) -> bool:
    """Whether a pattern is about a resource."""
    if pattern.kind != kind:
        return False
    if pattern.pattern == PatternType.PREFIXED:
        return name.startswith(pattern.name or "")
    return pattern.name in ("*", name)


def decide(
    acls: Iterable[tuple[Pattern, Entry]],
    principal: str,
    operation: AclOperation,
    kind: ResourceType,
    name: str,
) -> tuple[bool, str]:
    """Whether a principal may, and the rule that decides. A denial wins over every permission."""
    mine = [
        (pattern, entry)
        for pattern, entry in acls
        if entry.principal in (principal, "User:*") and covers(pattern, kind, name)
    ]
    allowing = (operation, AclOperation.ALL, *_IMPLIED.get(operation, ()))
    for pattern, entry in mine:
        if entry.permission == AclPermissionType.DENY and entry.operation in (operation, AclOperation.ALL):
            return False, sentence(pattern, entry)
    for pattern, entry in mine:
        if entry.permission == AclPermissionType.ALLOW and entry.operation in allowing:
            return True, sentence(pattern, entry)
    return (
        False,
        "No rule allows it. (Super users and allow.everyone.if.no.acl.found are the brokers' own settings.)",
    )


def tried(call: Callable[[Cluster], T], cluster: Cluster) -> tuple[T | None, str]:
    """What a cluster answers, or why it does not."""
    try:
        return call(cluster), ""
    except ApiException as error:
        return None, error.message or error.code.name


def _quotas(cluster: Cluster) -> list[Quotas]:
    kinds = (("user",), ("client-id",), ("user", "client-id"), ("ip",))
    return [each for kind in kinds for each in describe_quotas(cluster, {}, any_of=kind)]


class _Looked(NamedTuple):
    """What a cluster says, each with why it does not say it."""

    acls: tuple[Acls | None, str]
    users: tuple[DescribeUserScramCredentialsResponse | None, str]
    quotas: tuple[list[Quotas] | None, str]
    tokens: tuple[list[Token] | None, str]
    telemetry: tuple[dict[str, dict[str, str]] | None, str]


def _look(cluster: Cluster) -> _Looked:
    return _Looked(
        tried(describe_acls, cluster),
        tried(describe_scram_credentials, cluster),
        tried(_quotas, cluster),
        tried(tokens, cluster),
        tried(subscriptions, cluster),
    )


@page("/access", "access.html", verb=ADMIN, menu="access")
async def access(view: View) -> Values:
    """Who may do what."""
    found = await view.cluster.call(_look)
    acls = pairs(found.acls[0]) if found.acls[0] is not None else []
    who, what, kind, name = (view.text(each) for each in ("who", "may", "kind", "name"))
    verdict = None
    if who and what in OPERATIONS and kind in _KINDS:
        principal = who if ":" in who else f"User:{who}"
        resource = "kafka-cluster" if kind == "cluster" else name
        if found.acls[0] is not None:
            verdict = decide(
                acls, principal, AclOperation[what.upper()], ResourceType[kind.upper()], resource
            )
        elif found.acls[1].startswith(NO_AUTHORIZER):
            verdict = True, EVERYONE
    quotas = found.quotas[0] or []
    used = await _used(view, quotas) if quotas else {}
    return {
        "quota_use": [use_in_words(each, used) for each in quotas],
        "acls": in_words(acls),
        "acls_problem": found.acls[1],
        "users": found.users[0],
        "users_problem": found.users[1],
        "quotas": found.quotas[0],
        "quotas_problem": found.quotas[1],
        "tokens": found.tokens[0],
        "tokens_problem": found.tokens[1],
        "telemetry": found.telemetry[0],
        "telemetry_problem": found.telemetry[1],
        "verdict": verdict,
        "asked": OPERATIONS,
        "kinds": _KINDS,
        "may_change": view.may(ADMIN),
        "patterns": ("literal", "prefixed"),
        "quota_keys": QUOTA_KEYS,
        "commands": [f"ottla acls --bootstrap-server {view.cluster.bootstrap} --list"],
    }


async def _used(view: View, quotas: list[Quotas]) -> dict[tuple[str, str, str], float]:
    """What clients use of their quotas, over the brokers that tell: by key, user and client id."""
    used: dict[tuple[str, str, str], float] = {}
    for number in view.cluster.answering()[:_ASKED]:
        url = await view.cluster.segments.address(number)
        numbers = await view.cluster.run(read_numbers, number, url) if url else None
        for key, user, client_id, value in numbers.quotas if numbers is not None else ():
            used[key, user, client_id] = used.get((key, user, client_id), 0.0) + value
    return used


def use_in_words(quotas: Quotas, used: dict[tuple[str, str, str], float]) -> str:
    """What the clients of a quota use of it now; empty where no broker tells."""
    user, client_id = quotas.entity.get("user", ""), quotas.entity.get("client-id", "")
    words = []
    for key in quotas.values:
        of = [
            value
            for (other, who, client), value in used.items()
            if other == key and user in (None, who) and client_id in (None, client)
        ]
        if of:
            words.append(f"{key} {sum(of):,.0f} by {len(of)} {'client' if len(of) == 1 else 'clients'}")
    return "; ".join(words)


def in_words(acls: Iterable[tuple[Pattern, Entry]]) -> list[tuple[str, dict[str, str]]]:
    """Rules as sentences, in their order, each with the fields of the form that removes it."""
    return sorted(
        ((sentence(pattern, entry), rule_fields(pattern, entry)) for pattern, entry in acls),
        key=lambda pair: pair[0],
    )


def rule_fields(pattern: Pattern, entry: Entry) -> dict[str, str]:
    """A rule as the fields of the form that removes it."""
    return {
        "principal": entry.principal or "",
        "host": entry.host or "*",
        "operation": entry.operation.name.lower(),
        "permission": entry.permission.name.lower(),
        "kind": pattern.kind.name.lower(),
        "name": pattern.name or "",
        "pattern": pattern.pattern.name.lower(),
    }


def pairs(acls: Acls) -> list[tuple[Pattern, Entry]]:
    """Every rule with what it is about."""
    return [(pattern, entry) for pattern, entries in acls.items() for entry in entries]
