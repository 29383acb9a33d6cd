"""Moves: what is being reassigned, with how much of it is there; cancel, and a new move from a plan."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from ottla.admin.log_dirs import describe_log_dirs
from ottla.admin.reassignments import alter_reassignments, list_reassignments
from ottla.console.frame import AREAS, Area
from ottla.console.plans import Form, Plan, change
from ottla.console.render import size
from ottla.console.security.roles import ADMIN
from ottla.console.web import BadInput, Values, View, page, whole
from ottla.errors import ApiException

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.admin.cluster import Cluster
    from ottla.admin.partitions import Partition

_logger = logging.getLogger(__name__)

AREAS.append(Area("moves", "Moves", "moves", key="m"))


def _sizes(
    cluster: Cluster, brokers: list[int], partitions: list[Partition]
) -> dict[tuple[int, Partition], int]:
    """The sizes of replicas. Those of a broker that does not answer are left out: moves often lead away from one."""
    found: dict[tuple[int, Partition], int] = {}
    for broker in brokers:
        try:
            answer = describe_log_dirs(cluster, broker, partitions)
        except ApiException as error:
            _logger.info("Broker %d does not tell the sizes of its replicas: %s", broker, error.message)
            continue
        for directory in answer.results:
            for topic in directory.topics:
                for each in topic.partitions:
                    found[broker, (topic.name, each.partition_index)] = each.partition_size
    return found


@page("/moves", "moves.html", live=("rows",), menu="moves")
async def moves(view: View) -> Values:
    """Reassignments in progress."""
    found = await view.cluster.call(list_reassignments)
    silent = {each.node_id for each in view.state.nodes.values() if each.fenced or not each.answers}
    brokers = sorted({each for move in found.values() for each in move.replicas if each not in silent})
    sizes = await view.cluster.call(_sizes, brokers, list(found)) if found else {}
    rows = []
    for partition, move in sorted(found.items()):
        whole_size = max((sizes.get((each, partition), 0) for each in move.replicas), default=0)
        there = sum(sizes.get((each, partition), 0) for each in move.adding)
        wanted = whole_size * len(move.adding)
        rows.append((partition, move, there, wanted, there / wanted if wanted else 1.0))
    return {
        "rows": rows,
        "may_move": view.may(ADMIN, "cluster"),
        "topics": [name for name, topic in view.state.topics.items() if not topic.internal],
        "commands": [f"ottla reassign-partitions --bootstrap-server {view.cluster.bootstrap} --list"],
    }


@change("move.cancel", ADMIN)
async def plan_cancel(view: View, form: Form) -> Plan:
    """Cancel the move of a partition: its replicas stay where they were."""
    partition = form.get("topic", ""), whole(form.get("partition", ""), "Partition")

    async def apply() -> str:
        await _alter(view, {partition: None})
        return f"The move of {partition[0]}-{partition[1]} is cancelled."

    return Plan(
        title=f"Cancel the move of {partition[0]}-{partition[1]}",
        verb=ADMIN,
        resource="cluster",
        apply=apply,
        sentence="New replicas are dropped; the old ones stay.",
        button="Cancel the move",
        then=view.url("moves"),
    )


async def _alter(view: View, wanted: dict[Partition, Sequence[int] | None]) -> None:
    for (topic, number), (code, message) in (await view.cluster.call(alter_reassignments, wanted)).items():
        if code:
            raise ApiException(code, f"{topic}-{number}: {message or code.name}")


@change("move.topic", ADMIN)
async def plan_move(view: View, form: Form) -> Plan:
    """Spread the partitions of a topic over brokers: in turn, each replica on another broker."""
    name = form.get("topic", "")
    topic = view.state.topics.get(name)
    if topic is None:
        raise BadInput(f"There is no topic '{name[:80]}'.")
    words = [word.strip() for word in form.get("brokers", "").split(",") if word.strip()]
    brokers = [whole(word, "Broker", 0, 2**31 - 1) for word in words] or list(view.state.nodes)
    missing = [each for each in brokers if each not in view.state.nodes]
    if missing:
        raise BadInput(f"There is no broker {missing[0]}.")
    factor = whole(form.get("replicas") or str(topic.replication), "Replicas", 1, len(brokers))
    wanted: dict[Partition, list[int]] = {}
    rows = []
    copied = 0
    for number in range(topic.partitions):
        target = [brokers[(number + index) % len(brokers)] for index in range(factor)]
        if sorted(target) == sorted(topic.replicas[number]):
            continue
        wanted[name, number] = target
        bytes_ = topic.sizes[number] if number < len(topic.sizes) else 0
        fresh = [each for each in target if each not in topic.replicas[number]]
        copied += bytes_ * len(fresh)
        rows.append(
            (
                f"{name}-{number}",
                ", ".join(map(str, topic.replicas[number])),
                ", ".join(map(str, target)),
                size(bytes_),
            )
        )
    document = {
        "version": 1,
        "partitions": [
            {"topic": each, "partition": number, "replicas": target}
            for (each, number), target in wanted.items()
        ],
    }

    async def apply() -> str:
        await _alter(view, dict(wanted))
        return f"{len(wanted)} partitions of {name} are on their way."

    return Plan(
        title=f"Move {name}",
        verb=ADMIN,
        resource="cluster",
        apply=apply,
        sentence=f"{size(copied)} are copied to brokers that do not have them yet.",
        columns=("Partition", "Replicas now", "Then", "Size"),
        rows=rows,
        commands=[
            f"echo '{json.dumps(document)}' > move.json",
            "ottla reassign-partitions --bootstrap-server"
            f" {view.cluster.bootstrap} --reassignment-json-file move.json --execute",
        ],
        refused="" if wanted else "Every partition is there already.",
        button="Start the move",
        then=view.url("moves"),
    )
