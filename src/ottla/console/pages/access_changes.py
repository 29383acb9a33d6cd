"""Changes of access: rules, SCRAM users and quotas, each from a plan.

A password is turned into its salted form at once. The page carries a handle to it, never the password.
"""

from __future__ import annotations

import secrets
import shlex
from typing import Final, TypedDict

from ottla.admin.acls import Entry, Pattern, create_acls, delete_acls, describe_acls
from ottla.admin.errors import raise_for
from ottla.admin.users import (
    DEFAULT_SCRAM_ITERATIONS,
    NewCredential,
    alter_quotas,
    alter_scram_credentials,
    describe_quotas,
)
from ottla.console.pages.access import QUOTA_KEYS, sentence
from ottla.console.plans import Form, Plan, change
from ottla.console.security.roles import ADMIN
from ottla.console.waiting import Waiting
from ottla.console.web import BadInput, View
from ottla.wire.enums import AclOperation, AclPermissionType, PatternType, ResourceType, ScramMechanism

MECHANISMS: Final = {
    "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256,
    "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512,
}
_MAX_NAME: Final = 1_000


_waiting: Final = Waiting[NewCredential]()
"""Salted passwords."""


class _OfAccess(TypedDict):
    verb: str
    resource: str
    then: str


def _of_access(view: View) -> _OfAccess:
    """What every change of access needs, and where it leads."""
    return {"verb": ADMIN, "resource": "cluster", "then": view.url("access")}


def _mechanism(form: Form) -> ScramMechanism:
    found = MECHANISMS.get(form.get("mechanism", ""))
    if found is None:
        raise BadInput("Choose SCRAM-SHA-256 or SCRAM-SHA-512.")
    return found


def _name(form: Form, key: str, what: str) -> str:
    found = form.get(key, "").strip()
    if not found or len(found) > _MAX_NAME:
        raise BadInput(f"{what} is missing, or longer than {_MAX_NAME:,} letters.")
    return found


def _rule(form: Form) -> tuple[Pattern, Entry]:
    """The rule of a form."""
    who = _name(form, "principal", "The user")
    principal = who if ":" in who else f"User:{who}"
    try:
        kind = ResourceType[form.get("kind", "").upper()]
        pattern = PatternType[form.get("pattern", "literal").upper()]
        operation = AclOperation[form.get("operation", "").upper()]
        permission = AclPermissionType[form.get("permission", "allow").upper()]
    except KeyError as error:
        raise BadInput(f"There is no {str(error)[:60]} in rules.") from None
    if pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise BadInput("A rule is about one name, or about names that begin with it.")
    name = "kafka-cluster" if kind == ResourceType.CLUSTER else _name(form, "name", "The name")
    host = form.get("host", "").strip() or "*"
    return Pattern(kind, name, pattern), Entry(principal, host, operation, permission)


def _acl_command(view: View, pattern: Pattern, entry: Entry, verb: str) -> str:
    flag = "allow" if entry.permission == AclPermissionType.ALLOW else "deny"
    kind = pattern.kind.name.lower().replace("_", "-")
    where = (
        "--cluster" if pattern.kind == ResourceType.CLUSTER else f"--{kind} {shlex.quote(pattern.name or '')}"
    )
    prefixed = " --resource-pattern-type prefixed" if pattern.pattern == PatternType.PREFIXED else ""
    host = f" --{flag}-host {shlex.quote(entry.host or '')}" if entry.host != "*" else ""
    return (
        f"ottla acls --bootstrap-server {view.cluster.bootstrap} --{verb} --{flag}-principal"
        f" {shlex.quote(entry.principal or '')}{host} --operation {entry.operation.name.title().replace('_', '')}"
        f" {where}{prefixed}"
    )


@change("acl.add", ADMIN)
async def plan_add(view: View, form: Form) -> Plan:
    """Add a rule."""
    pattern, entry = _rule(form)
    known = await view.cluster.call(describe_acls)
    there = entry in known.get(pattern, [])

    async def apply() -> str:
        answer = await view.cluster.call(create_acls, [(pattern, entry)])
        for each in answer.results:
            raise_for(each.error_code, each.error_message, "the rule")
        return f"From now on {sentence(pattern, entry)}."

    return Plan(
        title="New rule",
        **_of_access(view),
        apply=apply,
        sentence=f"{sentence(pattern, entry)}.",
        warnings=["The first rule of a resource ends that everyone may, where the brokers are set so."]
        if not known
        else (),
        commands=[_acl_command(view, pattern, entry, "add")],
        refused="This rule is there already." if there else "",
        button="Add the rule",
    )


@change("acl.remove", ADMIN)
async def plan_remove(view: View, form: Form) -> Plan:
    """Remove a rule."""
    pattern, entry = _rule(form)
    there = entry in (await view.cluster.call(describe_acls)).get(pattern, [])

    async def apply() -> str:
        answer = await view.cluster.call(delete_acls, [(pattern, entry)])
        for each in answer.filter_results:
            raise_for(each.error_code, each.error_message, "the rule")
        return f"The rule is gone: {sentence(pattern, entry)}."

    return Plan(
        title="Remove a rule",
        **_of_access(view),
        apply=apply,
        sentence=f"This rule goes: {sentence(pattern, entry)}.",
        commands=[_acl_command(view, pattern, entry, "remove")],
        refused="" if there else "This rule is not there any more.",
        danger=True,
        button="Remove the rule",
    )


@change("user.set", ADMIN)
async def plan_user(view: View, form: Form) -> Plan:
    """Set a user's SCRAM password."""
    user = _name(form, "user", "The user")
    mechanism = _mechanism(form)
    handle = form.get("handle", "")
    credential = _waiting.get(handle) if handle else None
    if credential is None:
        if handle:
            raise BadInput("The plan is too old: type the password again.")
        if not form.get("password"):
            raise BadInput("The password is missing.")
        salt = secrets.token_bytes(32)
        credential = await view.cluster.run(
            NewCredential.of, user, mechanism, form["password"].encode(), DEFAULT_SCRAM_ITERATIONS, salt
        )
        handle = _waiting.put(credential)
    if (credential.user, credential.mechanism) != (user, mechanism):
        raise BadInput("The plan was made for another user: type the password again.")
    wanted = credential

    async def apply() -> str:
        answer = await view.cluster.call(alter_scram_credentials, set_=[wanted])
        for each in answer.results:
            raise_for(each.error_code, each.error_message, f"user {user}")
        _waiting.forget(handle)
        return f"{user} signs in with the new password from now on."

    return Plan(
        title=f"Password of {user}",
        **_of_access(view),
        apply=apply,
        sentence="The cluster gets the salted password; nobody can read it there.",
        columns=("User", "Mechanism", "Iterations"),
        rows=[(user, form["mechanism"], f"{credential.iterations:,}")],
        commands=[
            f"ottla configs --bootstrap-server {view.cluster.bootstrap} --alter --entity-type users --entity-name"
            f" {shlex.quote(user)} --add-config '{form['mechanism']}=[password=...]'"
        ],
        button="Set the password",
        carried={"user": user, "mechanism": form["mechanism"], "handle": handle},
    )


@change("user.delete", ADMIN)
async def plan_user_delete(view: View, form: Form) -> Plan:
    """Take a user's SCRAM password away."""
    user = _name(form, "user", "The user")
    mechanism = _mechanism(form)

    async def apply() -> str:
        answer = await view.cluster.call(alter_scram_credentials, deleted=[(user, mechanism)])
        for each in answer.results:
            raise_for(each.error_code, each.error_message, f"user {user}")
        return f"{user} has no {form['mechanism']} password any more."

    return Plan(
        title=f"Delete the password of {user}",
        **_of_access(view),
        apply=apply,
        sentence="The user cannot sign in with it any more. Open connections stay until they sign in again.",
        columns=("User", "Mechanism"),
        rows=[(user, form["mechanism"])],
        commands=[
            f"ottla configs --bootstrap-server {view.cluster.bootstrap} --alter --entity-type users --entity-name"
            f" {shlex.quote(user)} --delete-config {form['mechanism']}"
        ],
        danger=True,
        button="Delete the password",
    )


def _entity(form: Form) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for key in ("user", "client-id", "ip"):
        if form.get(f"default {key}"):
            found[key] = None
        elif form.get(key, "").strip():
            found[key] = form[key].strip()[:_MAX_NAME]
    if not found or ("ip" in found and len(found) > 1):
        raise BadInput("Name a user, a client id, both, or an address alone.")
    return found


@change("quota.set", ADMIN)
async def plan_quota(view: View, form: Form) -> Plan:
    """Set or remove a quota; an empty value removes it."""
    entity, key = _entity(form), form.get("key", "")
    if key not in QUOTA_KEYS:
        raise BadInput(f"There is no quota '{key[:40]}'.")
    text = form.get("value", "").strip().replace(",", "")
    try:
        value = float(text) if text else None
    except ValueError:
        raise BadInput(f"'{text[:40]}' is not a number.") from None
    if value is not None and not 0 < value < 1e18:
        raise BadInput("A quota is a number above 0.")
    now: float | None = None
    for each in await view.cluster.call(describe_quotas, entity):
        if each.entity == entity:
            now = each.values.get(key)

    async def apply() -> str:
        added = {} if value is None else {key: value}
        await view.cluster.call(alter_quotas, entity, added, [key] if value is None else [])
        return f"The quota {key} of {words(entity)} is {'gone' if value is None else f'{value:,.0f}'}."

    flags = " ".join(
        f"--entity-type {kind}s"
        + (" --entity-default" if name is None else f" --entity-name {shlex.quote(name)}")
        for kind, name in (("client" if each == "client-id" else each, entity[each]) for each in entity)
    )
    action = f"--delete-config {key}" if value is None else f"--add-config {key}={value:g}"
    return Plan(
        title=f"Quota of {words(entity)}",
        **_of_access(view),
        apply=apply,
        columns=("Quota", "Now", "Then"),
        rows=[(key, "none" if now is None else f"{now:,.0f}", "none" if value is None else f"{value:,.0f}")],
        commands=[f"ottla configs --bootstrap-server {view.cluster.bootstrap} --alter {flags} {action}"],
        refused="There is no such quota." if value is None and now is None else "",
        button="Remove the quota" if value is None else "Set the quota",
    )


def words(entity: dict[str, str | None]) -> str:
    """An entity of quotas in words."""
    return ", ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in entity.items())
