"""Changes of a broker, each from a plan: replicas to another of its directories, and a broker that is gone for good."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

from ottla.admin.log_dirs import Replica, alter_replica_log_dirs
from ottla.admin.quorum import unregister_broker
from ottla.console.plans import Form, Plan, change
from ottla.console.render import size
from ottla.console.security.roles import ADMIN
from ottla.console.web import BadInput, View, whole
from ottla.errors import ApiException, ErrorCode

if TYPE_CHECKING:
    from ottla.console.sampler.state import NodeState


def _node(view: View, form: Form) -> NodeState:
    number = whole(form.get("node", ""), "Broker", 0, 2**31 - 1)
    found = view.state.nodes.get(number)
    if found is None:
        raise BadInput(f"There is no broker {number}.")
    return found


@change("replica.directory", ADMIN)
async def plan_directory(view: View, form: Form) -> Plan:
    """Move a replica to another directory of its broker."""
    node = _node(view, form)
    digits, _, topic = form.get("replica", "").partition(":")
    number = whole(digits, "Partition", 0, 2**31 - 1)
    path = form.get("path", "")
    known = view.state.topics.get(topic)
    if known is None or number >= known.partitions or node.node_id not in known.replicas[number]:
        raise BadInput(f"Broker {node.node_id} has no replica of {topic[:80]}-{number}.")
    place = next((each for each in node.directories if each.path == path), None)
    if place is None:
        raise BadInput(f"Broker {node.node_id} has no directory '{path[:200]}'.")
    replica = Replica(node.node_id, topic, number)
    weight = known.sizes[number] if number < len(known.sizes) else -1
    refused = f"This directory is offline: {place.error}." if place.error else ""
    if not refused and 0 <= place.usable < weight:
        refused = f"The replica has {size(weight)}, and only {size(place.usable)} are free there."

    async def apply() -> str:
        code = (await view.cluster.call(alter_replica_log_dirs, {replica: path})).get(replica, ErrorCode.NONE)
        if code:
            raise ApiException(code, f"{replica.name} on broker {node.node_id} does not move: {code.name}.")
        return f"{replica.name} moves to {path}. It changes over when it has caught up."

    document = {
        "version": 1,
        "partitions": [
            {
                "topic": topic,
                "partition": number,
                "replicas": list(known.replicas[number]),
                "log_dirs": [path if each == node.node_id else "any" for each in known.replicas[number]],
            }
        ],
    }
    return Plan(
        title=f"Move {replica.name} to another directory",
        verb=ADMIN,
        resource="cluster",
        apply=apply,
        sentence="The broker copies the replica and uses the old copy until the new one has caught up.",
        columns=("Replica", "Broker", "To", "Size"),
        rows=[(replica.name, node.node_id, path, size(weight))],
        agreed=[replica, path, refused],
        commands=[
            f"echo {shlex.quote(json.dumps(document))} > move.json",
            f"ottla reassign-partitions --bootstrap-server {view.cluster.bootstrap} --reassignment-json-file"
            " move.json --execute",
        ],
        refused=refused,
        button="Start the move",
        then=view.url("nodes", node.node_id),
    )


@change("node.unregister", ADMIN)
async def plan_unregister(view: View, form: Form) -> Plan:
    """Forget a broker that is gone for good."""
    node = _node(view, form)
    held = sum(
        node.node_id in replicas for topic in view.state.topics.values() for replicas in topic.replicas
    )
    refused = ""
    if node.answers and not node.fenced:
        refused = "It is there: empty it on the page Moves, stop it, and unregister it then."

    async def apply() -> str:
        await view.cluster.call(unregister_broker, node.node_id)
        return f"Broker {node.node_id} is forgotten."

    return Plan(
        title=f"Unregister broker {node.node_id}",
        verb=ADMIN,
        resource="cluster",
        apply=apply,
        sentence="The cluster forgets its address and its features. It comes back when it is started again.",
        columns=("Broker", "Address", "Replicas"),
        rows=[(node.node_id, f"{node.host}:{node.port}", held)],
        warnings=[f"{held:,} replicas are still assigned to it: move them to others first."] if held else [],
        commands=[
            f"ottla cluster unregister --bootstrap-server {view.cluster.bootstrap} --id {node.node_id}"
        ],
        refused=refused,
        danger=True,
        button="Unregister it",
        then=view.url("nodes"),
    )
