"""`ottla client-metrics`: what kafka-client-metrics does."""

from __future__ import annotations

from typing import Final

import click

from ottla.admin.configs import alter_configs, describe_configs, names_with_configs
from ottla.cli.tools.base import Flags, Session, exactly_one, not_with, require, tool
from ottla.cli.tools.failures import UsageProblem
from ottla.wire.enums import ConfigResourceType
from ottla.wire.uuid import uuid_to_str

_RESOURCE: Final = ConfigResourceType.CLIENT_METRICS
_SETTINGS: Final = {"interval": "interval.ms", "metrics": "metrics", "match": "match"}


class ClientMetricsFlags(Flags):
    """The flags of `ottla client-metrics`."""

    list: bool
    describe: bool
    alter: bool
    delete: bool
    name: str | None
    generate_name: bool
    interval: str | None
    metrics: str | None
    match: str | None


@tool(
    "client-metrics",
    click.option("--list", "list", is_flag=True, help="List the subscriptions."),
    click.option("--describe", is_flag=True, help="Show subscriptions with their settings."),
    click.option("--alter", is_flag=True, help="Make or change a subscription."),
    click.option("--delete", is_flag=True, help="Delete a subscription."),
    click.option("--name", metavar="NAME", help="The subscription."),
    click.option("--generate-name", is_flag=True, help="Alter: a new one with a name of its own."),
    click.option("--interval", metavar="MS", help="How often clients send; empty for the default."),
    click.option("--metrics", metavar="PREFIX,...", help="What clients send; empty for none."),
    click.option("--match", metavar="KEY=VALUE,...", help="Which clients send; empty for all."),
)
def client_metrics(session: Session, flags: ClientMetricsFlags) -> None:
    """Choose the metrics that clients send to the cluster."""
    action = exactly_one(flags, "list", "describe", "alter", "delete")
    if action != "alter":
        not_with(flags, action, "generate_name", *_SETTINGS)
    if action == "list":
        not_with(flags, "list", "name")
    if action == "alter":
        exactly_one(flags, "name", "generate_name")
    if action == "delete":
        require(flags, "name")
    {"list": _list, "describe": _describe, "alter": _alter, "delete": _delete}[action](session, flags)


def _list(session: Session, flags: ClientMetricsFlags) -> None:
    names = names_with_configs(session.cluster, _RESOURCE)
    session.result(names, names or [""])


def _settings(session: Session, name: str) -> dict[str, str | None]:
    found = describe_configs(session.cluster, [(_RESOURCE, name)])
    return {entry.name: entry.value for entry in found[_RESOURCE, name]}


def _describe(session: Session, flags: ClientMetricsFlags) -> None:
    names = names_with_configs(session.cluster, _RESOURCE)
    if flags.name is not None:
        if flags.name not in names:
            line = f"The client metric resource {flags.name} doesn't exist and doesn't have dynamic config."
            session.result({}, [line])
            return
        names = [flags.name]
    found = {name: _settings(session, name) for name in names}
    lines = []
    for name, settings in found.items():
        lines.append(f"Client metrics configs for {name} are:")
        lines += [f"  {key}={value}" for key, value in settings.items()]
    session.result(found, lines)


def _alter(session: Session, flags: ClientMetricsFlags) -> None:
    name = flags.name or _new_name()
    wanted = {
        key: getattr(flags, flag) for flag, key in _SETTINGS.items() if getattr(flags, flag) is not None
    }
    interval = wanted.get("interval.ms")
    if interval and not interval.removeprefix("-").isdecimal():
        raise UsageProblem("Invalid interval value. Enter an integer, or leave empty to reset.")
    alter_configs(
        session.cluster,
        _RESOURCE,
        name,
        added={key: value for key, value in wanted.items() if value},
        deleted=[key for key, value in wanted.items() if not value],
    )
    session.result({"altered": name}, [f"Altered client metrics config for {name}."])


def _new_name() -> str:
    import uuid

    return uuid_to_str(uuid.uuid4().bytes)


def _delete(session: Session, flags: ClientMetricsFlags) -> None:
    assert flags.name is not None
    alter_configs(session.cluster, _RESOURCE, flags.name, deleted=_settings(session, flags.name))
    session.result({"deleted": flags.name}, [f"Deleted client metrics config for {flags.name}."])
