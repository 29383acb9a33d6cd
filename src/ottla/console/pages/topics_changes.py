"""Changes of several topics at once: their settings, or their deletion, from one plan."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from ottla.admin.configs import alter_configs
from ottla.admin.errors import raise_for
from ottla.admin.topics import delete_topics
from ottla.console.pages.topic_changes import config_flags, parse_settings
from ottla.console.plans import Form, Plan, change
from ottla.console.render import num, size
from ottla.console.security.roles import ADMIN, CHANGE
from ottla.console.web import BadInput, View
from ottla.errors import ApiException
from ottla.wire.enums import ConfigResourceType

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster

_MOST: Final = 1_000
_COMMANDS: Final = 20


def _topics(view: View, form: Form, verb: str) -> list[str]:
    """The topics of a form, which the principal may change."""
    # Browsers send line ends as two characters.
    names = sorted(filter(None, map(str.strip, form.get("topics", "").split("\n"))))
    if not names or len(names) > _MOST:
        raise BadInput(f"Choose from 1 to {_MOST:,} topics.")
    for name in names:
        if name not in view.state.topics:
            raise BadInput(f"There is no topic '{name[:80]}'.")
        view.require(verb, f"topic:{name}")
    return names


def _short(commands: list[str]) -> list[str]:
    """The first commands of many; the rest differ in the name only."""
    return commands[:_COMMANDS]


@change("topics.settings", CHANGE)
async def plan_settings(view: View, form: Form) -> Plan:
    """Set the same keys of several topics."""
    names = _topics(view, form, CHANGE)
    wanted = parse_settings(form.get("settings", ""))
    if not wanted:
        raise BadInput("Write at least one KEY=VALUE. An empty value takes the cluster's own.")
    added = {key: value for key, value in wanted.items() if value}
    deleted = [key for key, value in wanted.items() if not value]

    def alter(cluster: Cluster) -> None:
        for done, name in enumerate(names):
            try:
                alter_configs(cluster, ConfigResourceType.TOPIC, name, added=added, deleted=deleted)
            except ApiException as error:
                raise ApiException(
                    error.code, f"{name}: {error.message}. {done} of {len(names)} topics are changed."
                ) from None

    async def apply() -> str:
        await view.cluster.call(alter)
        return f"The settings of {len(names)} topics are changed."

    words = "; ".join(f"{key} = {value or 'what the cluster has'}" for key, value in sorted(wanted.items()))
    return Plan(
        title=f"Settings of {len(names)} topics",
        verb=CHANGE,
        resource=f"topic:{names[0]}",
        apply=apply,
        sentence=f"Each of them gets {words}.",
        columns=("Topic",),
        rows=[(name,) for name in names],
        commands=_short(
            [
                f"ottla configs --bootstrap-server {view.cluster.bootstrap} --alter --topic {shlex.quote(name)}"
                f"{config_flags(added, deleted)}"
                for name in names
            ]
        ),
        button="Change the settings",
        then=view.url("topics"),
    )


@change("topics.delete", ADMIN)
async def plan_delete(view: View, form: Form) -> Plan:
    """Delete several topics."""
    names = _topics(view, form, ADMIN)
    topics = view.state.topics
    refused = ""
    if form.get("confirm", "").strip() != str(len(names)):
        refused = f"Type their number, {len(names)}, to confirm, then plan again."
    if own := [name for name in names if topics[name].internal]:
        refused = f"Kafka keeps its own state in {own[0]}: deleting it breaks the cluster."

    def delete(cluster: Cluster) -> None:
        for each in delete_topics(cluster, names).responses:
            raise_for(each.error_code, each.error_message, each.name or "a topic")

    async def apply() -> str:
        await view.cluster.call(delete)
        return f"{len(names)} topics are deleted."

    readers = {name: ", ".join(sorted(view.state.topic_lags.get(name, {}))) or "none" for name in names}
    return Plan(
        title=f"Delete {len(names)} topics",
        verb=ADMIN,
        resource=f"topic:{names[0]}",
        apply=apply,
        sentence="The topics and all their records go. This cannot be undone.",
        columns=("Topic", "Records", "Size", "Groups that read it"),
        rows=[(name, num(topics[name].records), size(topics[name].size), readers[name]) for name in names],
        agreed=[[name, topics[name].topic_id, readers[name]] for name in names],
        commands=_short(
            [
                f"ottla topics --bootstrap-server {view.cluster.bootstrap} --delete --topic {shlex.quote(name)}"
                for name in names
            ]
        ),
        refused=refused,
        danger=True,
        button="Delete the topics",
        then=view.url("topics"),
    )
