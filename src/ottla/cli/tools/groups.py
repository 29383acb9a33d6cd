"""`ottla groups`: the groups of all types, as kafka-groups lists them."""

from __future__ import annotations

from typing import Final

import click

from ottla.admin.groups import ListedGroup, list_groups
from ottla.cli.tools.base import Flags, Session, not_with, require, tool
from ottla.cli.tools.columns import row, widest
from ottla.cli.tools.failures import UsageProblem

_TYPES: Final = ("classic", "consumer", "share", "streams")


class GroupsFlags(Flags):
    """The flags of `ottla groups`."""

    list: bool
    group_type: str | None
    protocol: str | None
    consumer: bool
    share: bool
    streams: bool


@tool(
    "groups",
    click.option("--list", "list", is_flag=True, help="List the groups."),
    click.option("--group-type", metavar="TYPE", help=f"Only this type: {', '.join(_TYPES)}."),
    click.option("--protocol", metavar="NAME", help="Only this protocol."),
    click.option("--consumer", is_flag=True, help="Only groups of consumers, of both protocols."),
    click.option("--share", is_flag=True, help="Only share groups."),
    click.option("--streams", is_flag=True, help="Only streams groups."),
)
def groups(session: Session, flags: GroupsFlags) -> None:
    """List groups of all types."""
    require(flags, "list")
    for one, others in (("consumer", ("share", "streams")), ("share", ("streams",)), ("streams", ())):
        not_with(flags, one, "group_type", "protocol", *others)
    if flags.group_type is not None and flags.group_type.lower() not in _TYPES:
        raise UsageProblem(f"--group-type {flags.group_type}: expected one of {', '.join(_TYPES)}")
    found = [group for group in list_groups(session.cluster) if _fits(group, flags)]
    rows = [(group.group_id, group.type, group.protocol) for group in found]
    width = widest(20, [cell for cells in rows for cell in cells])
    lines = [row(("GROUP", "TYPE", "PROTOCOL"), (width,) * 3)]
    lines += [row(cells, (width,) * 3) + " " for cells in rows]
    names = ("group", "type", "protocol")
    session.result([dict(zip(names, cells, strict=True)) for cells in rows], lines)


def _fits(group: ListedGroup, flags: GroupsFlags) -> bool:
    if flags.group_type is not None and group.type.lower() != flags.group_type.lower():
        return False
    if flags.protocol is not None and group.protocol != flags.protocol:
        return False
    if flags.consumer:
        return group.protocol in ("consumer", "") or group.type == "Consumer"
    if flags.share:
        return group.type == "Share"
    return not flags.streams or group.type == "Streams"
