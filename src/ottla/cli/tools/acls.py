"""`ottla acls`: what kafka-acls does."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Final

import click

from ottla.admin.acls import (
    ANY_ENTRY,
    ANY_PATTERN,
    OPERATIONS_OF,
    Acls,
    Entry,
    Pattern,
    create_acls,
    delete_acls,
    describe_acls,
)
from ottla.admin.errors import raise_for
from ottla.cli.tools.base import Flags, Session, exactly_one, not_with, only_with, tool
from ottla.cli.tools.principals import parse_principal
from ottla.wire.enums import CLUSTER_NAME, AclOperation, AclPermissionType, PatternType, ResourceType

_CLUSTER: Final = Pattern(ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL)
_RESOURCES: Final = (
    ("topic", ResourceType.TOPIC),
    ("group", ResourceType.GROUP),
    ("transactional_id", ResourceType.TRANSACTIONAL_ID),
    ("delegation_token", ResourceType.DELEGATION_TOKEN),
    ("user_principal", ResourceType.USER),
)
_PRODUCES: Final = {
    ResourceType.TOPIC: (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
}
_CONSUMES: Final = {
    ResourceType.TOPIC: (AclOperation.READ, AclOperation.DESCRIBE),
    ResourceType.GROUP: (AclOperation.READ,),
}


class AclsFlags(Flags):
    """The flags of `ottla acls`."""

    list: bool
    add: bool
    remove: bool
    topic: tuple[str, ...]
    group: tuple[str, ...]
    cluster: bool
    transactional_id: tuple[str, ...]
    delegation_token: tuple[str, ...]
    user_principal: tuple[str, ...]
    resource_pattern_type: str
    operation: tuple[str, ...]
    allow_principal: tuple[str, ...]
    deny_principal: tuple[str, ...]
    allow_host: tuple[str, ...]
    deny_host: tuple[str, ...]
    principal: tuple[str, ...]
    producer: bool
    consumer: bool
    idempotent: bool
    force: bool


@tool(
    "acls",
    click.option("--list", "list", is_flag=True, help="List what is allowed and denied."),
    click.option("--add", is_flag=True, help="Allow or deny something."),
    click.option("--remove", is_flag=True, help="Take something allowed or denied back."),
    click.option("--topic", multiple=True, metavar="NAME", help="A topic; '*' for all."),
    click.option("--group", multiple=True, metavar="NAME", help="A group; '*' for all."),
    click.option("--cluster", is_flag=True, help="The cluster itself."),
    click.option(
        "--transactional-id", multiple=True, metavar="NAME", help="A transactional id; '*' for all."
    ),
    click.option("--delegation-token", multiple=True, metavar="ID", help="A delegation token; '*' for all."),
    click.option("--user-principal", multiple=True, metavar="TYPE:NAME", help="A user as a resource."),
    click.option("--resource-pattern-type", default="literal", help="literal, prefixed, match or any."),
    click.option(
        "--operation", multiple=True, metavar="NAME", help="What is allowed or denied; all without."
    ),
    click.option("--allow-principal", multiple=True, metavar="TYPE:NAME", help="Who may."),
    click.option("--deny-principal", multiple=True, metavar="TYPE:NAME", help="Who may not."),
    click.option("--allow-host", multiple=True, metavar="ADDRESS", help="From where one may."),
    click.option("--deny-host", multiple=True, metavar="ADDRESS", help="From where one may not."),
    click.option("--principal", multiple=True, metavar="TYPE:NAME", help="List: only about these."),
    click.option("--producer", is_flag=True, help="All that a producer to --topic needs."),
    click.option("--consumer", is_flag=True, help="All that a consumer of --topic in --group needs."),
    click.option("--idempotent", is_flag=True, help="With --producer: also idempotent writes."),
    click.option("--force", is_flag=True, help="Do not ask back."),
    controllers=True,
)
def acls(session: Session, flags: AclsFlags) -> None:
    """List, add or remove access control entries."""
    action = exactly_one(flags, "list", "add", "remove")
    _check(flags)
    {"list": _list, "add": _add, "remove": _remove}[action](session, flags)


def _check(flags: AclsFlags) -> None:
    not_with(
        flags,
        *("list", "producer", "consumer", "allow_host", "allow_principal", "deny_host", "deny_principal"),
    )
    for role in ("producer", "consumer"):
        not_with(flags, role, "operation", "deny_principal", "deny_host")
    only_with(flags, "principal", "list")
    only_with(flags, "idempotent", "producer")
    if flags.producer and not flags.topic:
        raise click.UsageError("With --producer you must specify a --topic")
    apart = not flags.producer and (flags.cluster or flags.transactional_id)
    if flags.consumer and (not flags.topic or not flags.group or apart):
        raise click.UsageError(
            "With --consumer you must specify a --topic and a --group and no --cluster or --transactional-id"
        )


def _pattern_kind(flags: AclsFlags) -> PatternType:
    name = flags.resource_pattern_type.upper()
    if name == "UNKNOWN" or name not in PatternType.__members__:
        raise click.UsageError(f"Unknown resource-pattern-type: {flags.resource_pattern_type}")
    return PatternType[name]


def _patterns(flags: AclsFlags) -> list[Pattern]:
    kind = _pattern_kind(flags)
    found = [
        Pattern(resource, name.strip(), kind)
        for flag, resource in _RESOURCES
        for name in getattr(flags, flag)
    ]
    if kind == PatternType.LITERAL and (flags.cluster or flags.idempotent):
        found.append(_CLUSTER)
    return list(dict.fromkeys(found))


def _operations(flags: AclsFlags) -> list[AclOperation]:
    if not flags.operation:
        return [AclOperation.ALL]
    spelled = {each.name.replace("_", ""): each for each in AclOperation if each >= AclOperation.ALL}
    words = {word: word.strip().replace("_", "").upper() for word in flags.operation}
    for word, key in words.items():
        if key not in spelled:
            names = ", ".join(each.name.title().replace("_", "") for each in spelled.values())
            raise click.UsageError(f"--operation {word}: expected one of {names}")
    return [spelled[key] for key in words.values()]


def _entries(flags: AclsFlags, operations: Iterable[AclOperation]) -> list[Entry]:
    sides = (
        (AclPermissionType.ALLOW, flags.allow_principal, flags.allow_host),
        (AclPermissionType.DENY, flags.deny_principal, flags.deny_host),
    )
    operations = list(operations)
    return [
        Entry(str(parse_principal(principal)), host.strip(), operation, permission)
        for permission, principals, hosts in sides
        for principal in principals
        for operation in operations
        for host in (hosts or ("*",))
    ]


def _meant(flags: AclsFlags) -> Acls:
    """The entries that the flags speak of, by resource."""
    patterns = _patterns(flags)
    if not patterns:
        raise click.UsageError(
            "You must provide at least one resource: --topic, --cluster, --group, --transactional-id,"
            " --delegation-token or --user-principal"
        )
    meant: Acls = {}
    if not flags.producer and not flags.consumer:
        entries = _entries(flags, _operations(flags))
        meant = {pattern: list(entries) for pattern in patterns}
    for role, needs in (("producer", _PRODUCES), ("consumer", _CONSUMES)):
        for pattern in patterns if getattr(flags, role) else ():
            if pattern.kind in needs:
                entries = _entries(flags, needs[pattern.kind])
                meant[pattern] = list(dict.fromkeys([*meant.get(pattern, []), *entries]))
    if flags.idempotent:
        meant[_CLUSTER] = _entries(flags, [AclOperation.IDEMPOTENT_WRITE])
    for pattern, entries in meant.items():
        valid = {*OPERATIONS_OF[pattern.kind], AclOperation.ALL}
        if any(entry.operation not in valid for entry in entries):
            names = ", ".join(sorted(each.name for each in valid))
            raise click.UsageError(f"ResourceType {pattern.kind.name} only supports operations {names}")
    return meant


def _add(session: Session, flags: AclsFlags) -> None:
    if _pattern_kind(flags) not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise click.UsageError(
            f"A '--resource-pattern-type' value of '{flags.resource_pattern_type}' is not valid when adding acls"
        )
    meant = _meant(flags)
    if not all(meant.values()):
        raise click.UsageError(
            "You must specify one of: --allow-principal, --deny-principal when trying to add ACLs"
        )
    documents: list[object] = []
    for pattern, entries in meant.items():
        existing = describe_acls(session.cluster, pattern).get(pattern, [])
        for entry in entries:
            if entry in existing:
                session.print(f"Acl (pattern={pattern}, entry={entry}) already exists.")
        new = [entry for entry in entries if entry not in existing]
        if new:
            session.print(f"Adding ACLs for resource `{pattern}`: \n " + _indented(new) + "\n")
            for result in create_acls(session.cluster, [(pattern, entry) for entry in new]).results:
                raise_for(result.error_code, result.error_message)
        documents += [_document(pattern, entry) for entry in new]
    if session.as_json:
        session.dump(documents)


def _indented(entries: Iterable[Entry]) -> str:
    return "\n".join(f"\t{entry}" for entry in entries)


def _document(pattern: Pattern, entry: Entry) -> dict[str, str | None]:
    resource: dict[str, str | None] = {
        "resource": pattern.kind.name,
        "name": pattern.name,
        "pattern": pattern.pattern.name,
    }
    return resource | {
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation.name,
        "permission": entry.permission.name,
    }


def _remove(session: Session, flags: AclsFlags) -> None:
    for pattern, entries in _meant(flags).items():
        if entries:
            question = (
                f"Are you sure you want to remove ACLs: \n {_indented(entries)}\n from resource filter"
                f" `{pattern}`? (y/n)"
            )
        else:
            question = f"Are you sure you want to delete all ACLs for resource filter `{pattern}`? (y/n)"
        if flags.force or _confirmed(session, question):
            filters = [(pattern, entry) for entry in entries or [ANY_ENTRY]]
            for result in delete_acls(session.cluster, filters).filter_results:
                raise_for(result.error_code, result.error_message)
                for each in result.matching_acls:
                    raise_for(each.error_code, each.error_message)


def _confirmed(session: Session, question: str) -> bool:
    click.echo(question, err=session.as_json)
    answer = sys.stdin.readline()
    if not answer:
        raise click.UsageError(
            "standard input is closed, so the question has no answer; --force removes without asking"
        )
    return answer.strip().lower() == "y"


def _list(session: Session, flags: AclsFlags) -> None:
    found: Acls = {}
    for pattern in _patterns(flags) or [ANY_PATTERN]:
        for resource, entries in describe_acls(session.cluster, pattern).items():
            known = found.setdefault(resource, [])
            known += [entry for entry in entries if entry not in known]
    principals = [str(parse_principal(text)) for text in flags.principal]
    lines: list[str] = []
    everybody: list[str | None] = [*principals] or [None]
    for principal in everybody:
        if principal:
            lines.append(f"ACLs for principal `{principal}`")
        for resource, entries in sorted(found.items()):
            shown = [entry for entry in entries if principal in (None, entry.principal)]
            if shown:
                lines += [f"Current ACLs for resource `{resource}`:", _indented(shown), ""]
    documents = [
        _document(resource, entry)
        for resource, entries in sorted(found.items())
        for entry in entries
        if not principals or entry.principal in principals
    ]
    session.result(documents, lines)
