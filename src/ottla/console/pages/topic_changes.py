"""Changes of topics: create, settings, more partitions, purge, delete. Each is planned first."""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING, Final

from ottla.admin.configs import alter_configs
from ottla.admin.errors import raise_for
from ottla.admin.partitions import EARLIEST, LATEST, Partition, delete_records, elect_leaders, offsets_at
from ottla.admin.topics import NewPartitions, NewTopic, create_partitions, create_topics, delete_topics
from ottla.console.pages.topic import topic_settings
from ottla.console.plans import Form, Plan, change
from ottla.console.security.roles import ADMIN, CHANGE
from ottla.console.waiting import HANDLE, Waiting
from ottla.console.web import BadInput, Values, View, page, whole
from ottla.errors import ErrorCode
from ottla.json_types import JsonObject
from ottla.wire.enums import ConfigResourceType, ConfigSource, ElectionType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.admin.cluster import Cluster

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_MAX_PARTITIONS: Final = 10_000
_waiting: Final = Waiting[dict[Partition, int]]()
"""Up to where plans delete: topics grow while a person looks at one."""


@page("/topics/new", "topic_new.html", verb=CHANGE, resource="topic:*", menu="topics")
async def new(view: View) -> Values:
    """The form of a new topic; `like` copies the settings of another."""
    like = view.state.topics.get(view.text("like"))
    settings = ""
    if like is not None:
        entries = await view.cluster.call(topic_settings, like.name)
        own = [each for each in entries if each.source == ConfigSource.DYNAMIC_TOPIC_CONFIG]
        settings = "\n".join(f"{each.name}={each.value}" for each in own)
    return {
        "like": like,
        "settings": settings,
        "most": len(view.state.nodes),
        "crumbs": [("Topics", view.url("topics"))],
    }


@page("/t/{topic}/change", "topic_change.html", verb=CHANGE, resource="topic:{topic}", menu="topics")
async def change_page(view: View) -> Values:
    """Everything that can be changed about a topic."""
    topic = view.topic()
    entries = await view.cluster.call(topic_settings, topic.name)
    return {
        "topic": topic,
        "names": [each.name for each in entries if not each.is_read_only],
        "own": [each for each in entries if each.source == ConfigSource.DYNAMIC_TOPIC_CONFIG],
        "may_delete": view.may(ADMIN, f"topic:{topic.name}"),
        "crumbs": [("Topics", view.url("topics")), (topic.name, view.url("t", topic.name))],
    }


def parse_settings(text: str) -> dict[str, str]:
    """Lines of KEY=VALUE; BadInput for another line."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key, equals, value = line.partition("=")
        if not equals or not key.strip():
            raise BadInput(f"Settings: '{line[:60]}' is not KEY=VALUE.")
        found[key.strip()] = value.strip()
    return found


def config_flags(added: Mapping[str, str], deleted: Sequence[str]) -> str:
    """The flags with which `ottla configs --alter` sets and deletes keys; values with commas stand in brackets."""
    flags = ""
    if added:
        pairs = (f"{key}=[{value}]" if "," in value else f"{key}={value}" for key, value in added.items())
        flags += f" --add-config {shlex.quote(','.join(pairs))}"
    return flags + (f" --delete-config {','.join(deleted)}" if deleted else "")


def _words(settings: Mapping[str, str]) -> str:
    return "".join(f" --config {shlex.quote(f'{key}={value}')}" for key, value in settings.items())


@change("topic.create", CHANGE)
async def plan_create(view: View, form: Form) -> Plan:
    """Create a topic. The broker checks the plan first, so that a mistake shows before anything is made."""
    name = form.get("name", "").strip()
    if not _NAME.fullmatch(name) or name in (".", ".."):
        raise BadInput("A topic's name has up to 249 letters, digits, dots, underscores and hyphens.")
    view.require(CHANGE, f"topic:{name}")
    partitions = whole(form.get("partitions") or "1", "Partitions", 1, _MAX_PARTITIONS)
    replicas = whole(form.get("replicas") or "1", "Replicas", 1, 1000)
    settings = parse_settings(form.get("settings", ""))
    topic = NewTopic(name, partitions, replicas, topic_configs=settings)

    def create(cluster: Cluster, validate_only: bool) -> None:
        for each in create_topics(cluster, [topic], validate_only=validate_only).topics:
            raise_for(each.error_code, each.error_message, name)

    await view.cluster.call(create, True)

    async def apply() -> str:
        await view.cluster.call(create, False)
        return f"The topic {name} is there."

    rows = [("partitions", partitions), ("replicas of each", replicas), *sorted(settings.items())]
    return Plan(
        title=f"Create {name}",
        verb=CHANGE,
        resource=f"topic:{name}",
        apply=apply,
        sentence="The brokers have checked this and would accept it.",
        columns=("What", "Value"),
        rows=rows,
        commands=[
            f"ottla topics --bootstrap-server {view.cluster.bootstrap} --create --topic {name}"
            f" --partitions {partitions} --replication-factor {replicas}{_words(settings)}"
        ],
        button="Create the topic",
        then=view.url("t", name),
    )


@change("topic.settings", CHANGE)
async def plan_settings(view: View, form: Form) -> Plan:
    """Set keys of a topic; an empty value gives a key back to the cluster."""
    name = form.get("topic", "")
    wanted = parse_settings(form.get("settings", ""))
    if not wanted:
        raise BadInput("Write at least one KEY=VALUE. An empty value takes the cluster's own.")
    now = {each.name: each for each in await view.cluster.call(topic_settings, name)}
    unknown = [key for key in wanted if key not in now]
    if unknown:
        raise BadInput(f"A topic has no setting '{unknown[0][:80]}'.")
    added = {key: value for key, value in wanted.items() if value}
    deleted = [key for key, value in wanted.items() if not value]

    async def apply() -> str:
        await view.cluster.call(alter_configs, ConfigResourceType.TOPIC, name, added=added, deleted=deleted)
        return f"The settings of {name} are changed."

    flags = config_flags(added, deleted)
    return Plan(
        title=f"Settings of {name}",
        verb=CHANGE,
        resource=f"topic:{name}",
        apply=apply,
        columns=("Key", "Now", "Then"),
        rows=[
            (key, now[key].value or "", value or "the cluster's own") for key, value in sorted(wanted.items())
        ],
        commands=[f"ottla configs --bootstrap-server {view.cluster.bootstrap} --alter --topic {name}{flags}"],
        button="Change the settings",
        then=view.url("t", name, "settings"),
    )


@change("topic.partitions", CHANGE)
async def plan_partitions(view: View, form: Form) -> Plan:
    """Give a topic more partitions."""
    name = form.get("topic", "")
    topic = view.state.topics.get(name)
    now = topic.partitions if topic is not None else 0
    count = whole(form.get("partitions", ""), "Partitions", now + 1, _MAX_PARTITIONS)

    def create(cluster: Cluster, validate_only: bool) -> None:
        answer = create_partitions(cluster, {name: NewPartitions(count)}, validate_only=validate_only)
        for each in answer.results:
            raise_for(each.error_code, each.error_message, name)

    await view.cluster.call(create, True)

    async def apply() -> str:
        await view.cluster.call(create, False)
        return f"{name} has {count} partitions."

    return Plan(
        title=f"More partitions for {name}",
        verb=CHANGE,
        resource=f"topic:{name}",
        apply=apply,
        columns=("Topic", "Partitions now", "Then"),
        rows=[(name, now, count)],
        warnings=[
            "Keys go to other partitions from then on, so their order is only kept within each part of time."
        ],
        commands=[
            f"ottla topics --bootstrap-server {view.cluster.bootstrap} --alter --topic {name} --partitions {count}"
        ],
        button="Add the partitions",
        then=view.url("t", name, "partitions"),
    )


@change("topic.elect", ADMIN)
async def plan_elect(view: View, form: Form) -> Plan:
    """Let the first replica of each partition lead it, where another one does and the first is in sync."""
    name = form.get("topic", "")
    topic = view.state.topics.get(name)
    if topic is None:
        raise BadInput(f"There is no topic '{name[:80]}'.")
    rows, wanted = [], []
    for number in topic.led_by_others:
        first, leader = topic.replicas[number][0], topic.leaders[number]
        ready = first in topic.isr[number]
        if ready:
            wanted.append((name, number))
        rows.append(
            (number, leader if leader >= 0 else "none", first if ready else f"{first} is not in sync")
        )

    async def apply() -> str:
        await view.cluster.call(_elect, ElectionType.PREFERRED, wanted)
        return f"The first replicas of {name} lead."

    bootstrap = view.cluster.bootstrap
    return Plan(
        title=f"Elect the first replicas of {name}",
        verb=ADMIN,
        resource=f"topic:{name}",
        apply=apply,
        columns=("Partition", "Led by", "Then by"),
        rows=rows,
        commands=[
            f"ottla leader-election --bootstrap-server {bootstrap} --election-type preferred --topic {name}"
            f" --partition {number}"
            for _, number in wanted
        ],
        refused="" if wanted else "No other replica could lead: the first ones do, or are not in sync.",
        button="Elect",
        then=view.url("t", name, "partitions"),
    )


@change("topic.elect.unclean", ADMIN)
async def plan_elect_unclean(view: View, form: Form) -> Plan:
    """Let any replica that is there lead the partitions without a leader, whatever it lacks."""
    name = form.get("topic", "")
    topic = view.state.topics.get(name)
    if topic is None:
        raise BadInput(f"There is no topic '{name[:80]}'.")
    answering = set(view.cluster.answering())
    rows, wanted = [], []
    for number in topic.headless:
        there = [each for each in topic.replicas[number] if each in answering]
        if there:
            wanted.append((name, number))
        rows.append(
            (
                number,
                ", ".join(map(str, topic.replicas[number])),
                ", ".join(map(str, there)) or "none: start one of its brokers",
            )
        )

    async def apply() -> str:
        await view.cluster.call(_elect, ElectionType.UNCLEAN, wanted)
        if len(wanted) == 1:
            return f"1 partition of {name} has a leader."
        return f"{len(wanted)} partitions of {name} have leaders."

    bootstrap = view.cluster.bootstrap
    return Plan(
        title=f"Elect leaders of {name} that may lack records",
        verb=ADMIN,
        resource=f"topic:{name}",
        apply=apply,
        sentence="Records that only lost replicas have are lost for good. Start their brokers instead, if you can.",
        columns=("Partition", "Replicas", "There"),
        rows=rows,
        commands=[
            f"ottla leader-election --bootstrap-server {bootstrap} --election-type unclean --topic {name}"
            f" --partition {number}"
            for _, number in wanted
        ],
        refused="" if wanted else "Every partition has a leader, or none of its brokers is there.",
        danger=True,
        button="Elect, and lose records",
        then=view.url("t", name, "partitions"),
    )


def _elect(cluster: Cluster, kind: ElectionType, wanted: Sequence[Partition]) -> None:
    answer = elect_leaders(cluster, kind, wanted)
    raise_for(answer.error_code, None, "the election")
    for result in answer.replica_election_results:
        for each in result.partition_result:
            if each.error_code != ErrorCode.ELECTION_NOT_NEEDED:
                raise_for(each.error_code, each.error_message, f"{result.topic}-{each.partition_id}")


@change("topic.purge", ADMIN)
async def plan_purge(view: View, form: Form) -> Plan:
    """Delete all records of a topic, up to where they end now."""
    name = form.get("topic", "")
    partitions = view.state.topics[name].partitions if name in view.state.topics else 0
    wanted = [(name, number) for number in range(partitions)]
    if not wanted:
        raise BadInput(f"There is no topic '{name[:80]}'.")
    starts = await view.cluster.call(offsets_at, wanted, EARLIEST)
    handle = form.get(HANDLE, "")
    planned = _waiting.get(handle, name)
    ends = planned if planned is not None else await view.cluster.call(offsets_at, wanted, LATEST)
    if planned is None:
        handle = _waiting.put(ends, name)
    # Retention may have deleted records since then.
    ends = {each: max(ends.get(each, 0), starts[each]) for each in wanted}

    async def apply() -> str:
        def purge(cluster: Cluster) -> None:
            for answer in delete_records(cluster, ends):
                for topic in answer.topics:
                    for each in topic.partitions:
                        raise_for(each.error_code, None, f"{topic.name}-{each.partition_index}")

        await view.cluster.call(purge)
        _waiting.forget(handle)
        return f"The records of {name} are deleted."

    return Plan(
        title=f"Purge {name}",
        verb=ADMIN,
        resource=f"topic:{name}",
        apply=apply,
        sentence=f"{sum(ends[each] - starts[each] for each in wanted):,} offsets are deleted. This cannot be undone.",
        columns=("Partition", "From", "Up to"),
        rows=[(number, f"{starts[name, number]:,}", f"{ends[name, number]:,}") for _, number in wanted],
        commands=[
            f"echo {shlex.quote(json.dumps(_offsets_file(ends)))} > offsets.json",
            f"ottla delete-records --bootstrap-server {view.cluster.bootstrap} --offset-json-file offsets.json",
        ],
        danger=True,
        button="Delete the records",
        carried={**form, HANDLE: handle},
        agreed=sorted(ends.items()),
        then=view.url("t", name),
    )


def _offsets_file(ends: Mapping[Partition, int]) -> JsonObject:
    """What the tool reads from its file."""
    return {
        "version": 1,
        "partitions": [
            {"topic": topic, "partition": number, "offset": offset}
            for (topic, number), offset in sorted(ends.items())
        ],
    }


@change("topic.delete", ADMIN)
async def plan_delete(view: View, form: Form) -> Plan:
    """Delete a topic."""
    name = form.get("topic", "")
    topic = view.state.topics.get(name)
    if topic is None:
        raise BadInput(f"There is no topic '{name[:80]}'.")
    readers = sorted(view.state.topic_lags.get(name, {}))
    refused = (
        "Kafka keeps its own state in this topic: deleting it breaks the cluster." if topic.internal else ""
    )
    if form.get("confirm", "") != name and not refused:
        refused = "Type the topic's name to confirm, then plan again."

    async def apply() -> str:
        def delete(cluster: Cluster) -> None:
            for each in delete_topics(cluster, [name]).responses:
                raise_for(each.error_code, each.error_message, name)

        await view.cluster.call(delete)
        return f"The topic {name} is deleted."

    return Plan(
        title=f"Delete {name}",
        verb=ADMIN,
        resource=f"topic:{name}",
        apply=apply,
        sentence="The topic and all its records go. This cannot be undone.",
        columns=("Partitions", "Groups that read it"),
        rows=[(topic.partitions, ", ".join(readers) or "none")],
        commands=[f"ottla topics --bootstrap-server {view.cluster.bootstrap} --delete --topic {name}"],
        refused=refused,
        danger=True,
        button="Delete the topic",
        then=view.url("topics"),
    )
