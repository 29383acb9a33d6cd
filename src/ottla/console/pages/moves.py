"""Moves: what is being reassigned and how fast; cancel, new moves from a plan, a broker to empty, throttles."""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from typing import TYPE_CHECKING

from ottla.admin.log_dirs import describe_log_dirs
from ottla.admin.reassignments import alter_reassignments, list_reassignments
from ottla.admin.throttles import broker_throttles, lift_throttles, throttle_moves, throttled_topics
from ottla.console import moving
from ottla.console.frame import AREAS, Area
from ottla.console.plans import Form, Plan, Spread, change
from ottla.console.render import num, size
from ottla.console.security.roles import ADMIN
from ottla.console.web import BadInput, Values, View, page, whole
from ottla.errors import ApiException

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.admin.cluster import Cluster
    from ottla.admin.partitions import Partition

_logger = logging.getLogger(__name__)

AREAS.append(Area("moves", "Moves", "moves", key="m"))
_MEGABYTE = 1_000_000


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


def _throttles(cluster: Cluster, brokers: list[int]) -> dict[int, int]:
    """The throttles of brokers; none where they may not be asked."""
    try:
        return broker_throttles(cluster, brokers)
    except ApiException as error:
        _logger.info("The throttles of brokers are not known: %s", error.message)
        return {}


@page("/moves", "moves.html", live=("rows", "throttles"), menu="moves")
async def moves(view: View) -> Values:
    """Reassignments in progress."""
    found = await view.cluster.call(list_reassignments)
    silent = {each.node_id for each in view.state.nodes.values() if each.fenced or not each.answers}
    brokers = sorted({each for move in found.values() for each in move.replicas if each not in silent})
    sizes = await view.cluster.call(_sizes, brokers, list(found)) if found else {}
    rows = []
    looks = view.cluster.copied
    for gone in looks.keys() - found.keys():
        del looks[gone]
    for partition, move in sorted(found.items()):
        whole_size = max((sizes.get((each, partition), 0) for each in move.replicas), default=0)
        there = sum(sizes.get((each, partition), 0) for each in move.adding)
        wanted = whole_size * len(move.adding)
        seen = looks.setdefault(partition, deque(maxlen=moving.LOOKS))
        seen.append((time.monotonic(), there))
        pace = moving.pace(seen, wanted)
        rows.append((partition, move, there, wanted, there / wanted if wanted else 1.0, pace))
    throttles = await view.cluster.call(_throttles, view.cluster.answering())
    return {
        "rows": rows,
        "throttles": throttles,
        "slowest": min(throttles.values(), default=0),
        "may_move": view.may(ADMIN, "cluster"),
        "topics": [name for name, topic in view.state.topics.items() if not topic.internal],
        "commands": [f"ottla reassign-partitions --bootstrap-server {view.cluster.bootstrap} --list"],
    }


@change("move.cancel", ADMIN)
async def plan_cancel(view: View, form: Form) -> Plan:
    """Cancel the move of a partition, or of all: replicas stay where they were."""
    ongoing = await view.cluster.call(list_reassignments)
    if form.get("topic"):
        partition = form["topic"], whole(form.get("partition", ""), "Partition")
        wanted = [each for each in ongoing if each == partition]
        title = f"Cancel the move of {partition[0]}-{partition[1]}"
    else:
        wanted = sorted(ongoing)
        title = "Cancel all moves"

    async def apply() -> str:
        await _alter(view, dict.fromkeys(wanted))
        if len(wanted) == 1:
            return f"The move of {wanted[0][0]}-{wanted[0][1]} is cancelled."
        return f"{len(wanted)} moves are cancelled."

    return Plan(
        title=title,
        verb=ADMIN,
        resource="cluster",
        apply=apply,
        sentence="New replicas are dropped; the old ones stay.",
        columns=("Partition", "Moved to"),
        rows=[
            (f"{topic}-{number}", ", ".join(map(str, ongoing[topic, number].adding)) or "none")
            for topic, number in wanted
        ],
        refused="" if wanted else "Nothing is being moved there any more.",
        danger=True,
        button="Cancel the move" if len(wanted) == 1 else "Cancel the moves",
        then=view.url("moves"),
    )


async def _alter(view: View, wanted: dict[Partition, Sequence[int] | None]) -> None:
    for (topic, number), (code, message) in (await view.cluster.call(alter_reassignments, wanted)).items():
        if code:
            raise ApiException(code, f"{topic}-{number}: {message or code.name}")


def _brokers(view: View, form: Form) -> list[int]:
    """The brokers that a form names, or all."""
    words = [word.strip() for word in form.get("brokers", "").split(",") if word.strip()]
    brokers = [whole(word, "Broker", 0, 2**31 - 1) for word in words] or list(view.state.nodes)
    if missing := [each for each in brokers if each not in view.state.nodes]:
        raise BadInput(f"There is no broker {missing[0]}.")
    if len(set(brokers)) < len(brokers):
        raise BadInput("A broker is named twice.")
    return brokers


@change("move.topic", ADMIN)
async def plan_move(view: View, form: Form) -> Plan:
    """Spread the partitions of a topic over brokers: in turn, each replica on another broker."""
    name = form.get("topic", "")
    topic = view.state.topics.get(name)
    if topic is None:
        raise BadInput(f"There is no topic '{name[:80]}'.")
    brokers = _brokers(view, form)
    factor = whole(form.get("replicas") or str(topic.replication), "Replicas", 1, len(brokers))
    wanted = moving.spread_out(name, topic, brokers, factor)
    refused = "" if wanted else "Every partition is there already."
    return _plan(view, form, f"Move {name}", wanted, refused)


@change("move.empty", ADMIN)
async def plan_empty(view: View, form: Form) -> Plan:
    """Give all replicas of a broker to others, so that it can be taken away."""
    broker = whole(form.get("broker", ""), "Broker", 0, 2**31 - 1)
    if broker not in view.state.nodes:
        raise BadInput(f"There is no broker {broker}.")
    nodes = view.state.nodes
    targets = [each for each in _brokers(view, form) if each != broker and not nodes[each].fenced]
    refused, wanted = "", moving.Places()
    try:
        wanted = moving.emptied(
            view.state.topics, broker, targets, {each: nodes[each].rack for each in nodes}
        )
        refused = "" if wanted else f"Broker {broker} holds no replica."
    except moving.NoRoom as error:
        refused = f"Every other broker has a replica of {error} already: it needs one more broker, or fewer replicas."
    return _plan(view, form, f"Empty broker {broker}", wanted, refused)


def _plan(view: View, form: Form, title: str, wanted: moving.Places, refused: str) -> Plan:
    """The plan of a move: its partitions, what brokers hold before and after, and the throttle."""
    topics = view.state.topics
    rate = 0
    if form.get("throttle", "").strip():
        rate = whole(form["throttle"].strip(), "Throttle", 1, 1_000_000) * _MEGABYTE
    document = {
        "version": 1,
        "partitions": [
            {"topic": name, "partition": number, "replicas": target}
            for (name, number), target in sorted(wanted.items())
        ],
    }
    current = {(name, number): topics[name].replicas[number] for name, number in wanted}

    def throttle(cluster: Cluster) -> None:
        throttle_moves(cluster, list_reassignments(cluster), wanted, current, rate)

    async def apply() -> str:
        if rate:
            await view.cluster.call(throttle)
        await _alter(view, dict(wanted))
        count = len(wanted)
        return f"{count:,} {'partition is' if count == 1 else 'partitions are'} on the way."

    before = moving.loads(topics, {}, view.state.nodes)
    after = moving.loads(topics, wanted, view.state.nodes)
    sentence = f"{size(moving.copied(topics, wanted))} are copied to brokers that do not have them yet."
    if rate:
        sentence += f" Each broker copies at most {size(rate)} a second, until you lift the throttle."
    return Plan(
        title=title,
        verb=ADMIN,
        resource="cluster",
        apply=apply,
        sentence=sentence if wanted else "",
        columns=("Partition", "Replicas now", "Then", "Size"),
        rows=[
            (
                f"{name}-{number}",
                ", ".join(map(str, current[name, number])),
                ", ".join(map(str, target)),
                size(topics[name].sizes[number] if number < len(topics[name].sizes) else None),
            )
            for (name, number), target in sorted(wanted.items())
        ],
        spread=_spread(before, after) if wanted else (),
        commands=[
            f"echo '{json.dumps(document)}' > move.json",
            "ottla reassign-partitions --bootstrap-server"
            f" {view.cluster.bootstrap} --reassignment-json-file move.json --execute"
            + (f" --throttle {rate}" if rate else ""),
        ]
        if wanted
        else (),
        # Sizes grow while one looks at the plan.
        agreed=[sorted(wanted.items()), rate],
        refused=refused,
        button="Start the move",
        then=view.url("moves"),
    )


def _spread(before: dict[int, moving.Load], after: dict[int, moving.Load]) -> list[Spread]:
    found: list[Spread] = []
    for broker, now in before.items():
        then = after[broker]
        found.append(
            (
                f"Broker {broker}",
                ((num(now.replicas), now.replicas), (num(then.replicas), then.replicas)),
                ((num(now.first), now.first), (num(then.first), then.first)),
                ((size(now.size), now.size), (size(then.size), then.size)),
            )
        )
    return found


@change("move.unthrottle", ADMIN)
async def plan_unthrottle(view: View, form: Form) -> Plan:
    """Let brokers copy as fast as they can again."""
    brokers = sorted(await view.cluster.call(_throttles, view.cluster.answering()))
    topics = await view.cluster.call(throttled_topics, list(view.state.topics)) if brokers else []
    ongoing = await view.cluster.call(list_reassignments)

    async def apply() -> str:
        await view.cluster.call(lift_throttles, brokers, topics)
        return "Brokers copy as fast as they can."

    return Plan(
        title="Lift the throttle",
        verb=ADMIN,
        resource="cluster",
        apply=apply,
        columns=("Of", "Which"),
        rows=[("brokers", ", ".join(map(str, brokers))), ("topics", ", ".join(topics) or "none")],
        warnings=[f"{len(ongoing)} partitions are still on the way: they take all the network they get."]
        if ongoing
        else [],
        refused="" if brokers else "No broker has a throttle.",
        button="Lift it",
        then=view.url("moves"),
    )
