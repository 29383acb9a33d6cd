"""Nodes: brokers with their disks and settings; and the metadata quorum."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.admin.configs import describe_configs
from ottla.admin.log_dirs import describe_log_dirs
from ottla.admin.machines import by_machine, is_shared
from ottla.admin.node_metrics import LISTEN, read_numbers
from ottla.admin.quorum import describe_features
from ottla.console.security.roles import ADMIN
from ottla.console.services import Service, ServiceProblem
from ottla.console.web import NotFound, Values, View, page
from ottla.wire.enums import ConfigResourceType

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster
    from ottla.admin.configs import ConfigEntry
    from ottla.admin.partitions import Partition
    from ottla.console.sampler.state import NodeState

_TABS: Final = (("disks", "Disks", ""), ("load", "Load", "load"), ("settings", "Settings", "settings"))
_SHOWN_STALLS: Final = 20
_MOVABLE: Final = 500
_FRAMES: Final = 12
_TIMEOUT_S: Final = 2.0


def _loads(view: View) -> dict[int, dict[str, float]]:
    """Partitions, leaders and records per second of each broker."""
    found = {node: {"partitions": 0.0, "led": 0.0, "rate": 0.0, "lacking": 0.0} for node in view.state.nodes}
    for topic in view.state.topics.values():
        share = topic.rate / topic.partitions if topic.partitions else 0.0
        for number, leader in enumerate(topic.leaders):
            for replica in topic.replicas[number]:
                if replica in found:
                    found[replica]["partitions"] += 1
                    found[replica]["lacking"] += replica not in topic.isr[number]
            if leader in found:
                found[leader]["led"] += 1
                found[leader]["rate"] += share
    return found


@page("/nodes", "nodes.html", live=("rows",), menu="nodes")
async def nodes(view: View) -> Values:
    """All brokers."""
    bootstrap = view.cluster.bootstrap
    loads = _loads(view)
    return {
        "loads": loads,
        "machines": _machines(view, loads),
        "commands": [f"ottla cluster list-endpoints --bootstrap-server {bootstrap}"],
    }


@dataclass(frozen=True, slots=True)
class Machine:
    """A host that several brokers advertise, with their numbers added up."""

    host: str
    nodes: list[NodeState]
    led: float
    partitions: float
    rate: float
    used: int


def _machines(view: View, loads: dict[int, dict[str, float]]) -> list[Machine]:
    """The machines of the cluster, if one of them runs several brokers."""
    nodes = view.state.nodes
    machines = by_machine({node.node_id: node.host for node in nodes.values()})
    if not is_shared(machines):
        return []
    found = []
    for host, brokers in machines.items():
        led, partitions, rate = (
            sum(loads[each][name] for each in brokers) for name in ("led", "partitions", "rate")
        )
        used = sum(directory.used for each in brokers for directory in nodes[each].directories)
        found.append(Machine(host, [nodes[each] for each in brokers], led, partitions, rate, used))
    return found


def _node(view: View) -> NodeState:
    number = view.part("node")
    found = view.state.nodes.get(int(number)) if number.isdecimal() and len(number) < 11 else None
    if found is None:
        raise NotFound(f"There is no broker '{number[:20]}'.")
    return found


def _base(view: View, tab: str) -> Values:
    node = _node(view)
    return {
        "node": node,
        "tabs": [
            (name, title, view.url("nodes", node.node_id, *filter(None, [path])))
            for name, title, path in _TABS
        ],
        "tab": tab,
        "load": _loads(view)[node.node_id],
        "may_change": view.may(ADMIN),
        "crumbs": [("Nodes", view.url("nodes"))],
    }


@page("/nodes/{node}", "node.html", live=("facts", "disks"), menu="nodes")
async def node(view: View) -> Values:
    """One broker: its directories, and the largest of its partitions."""
    base = _base(view, "disks")
    number = base["node"].node_id
    mine = [
        (
            topic.sizes[index] if index < len(topic.sizes) else 0,
            topic.name,
            index,
            topic.leaders[index] == number,
        )
        for topic, index in view.state.partitions()
        if number in topic.replicas[index]
    ]
    mine.sort(reverse=True)
    bootstrap = view.cluster.bootstrap
    several = len(base["node"].directories) > 1
    places = {}
    if several:
        places = await view.cluster.call(_places, number, [(name, index) for _, name, index, _ in mine[:20]])
    return {
        **base,
        "largest": mine[:20],
        "movable": [(name, index) for _, name, index, _ in mine[:_MOVABLE]] if several else [],
        "places": places,
        "commands": [f"ottla log-dirs --bootstrap-server {bootstrap} --describe --broker-list {number}"],
    }


def _places(
    cluster: Cluster, broker: int, partitions: list[Partition]
) -> dict[Partition, tuple[str, str | None]]:
    """The directories of replicas, and the ones that they are moving to."""
    found: dict[Partition, tuple[str, str | None]] = {}
    future: dict[Partition, str] = {}
    for directory in describe_log_dirs(cluster, broker, partitions).results:
        for topic in directory.topics:
            for each in topic.partitions:
                if each.is_future_key:
                    future[topic.name, each.partition_index] = directory.log_dir
                else:
                    found[topic.name, each.partition_index] = directory.log_dir, None
    return {each: (path, future.get(each)) for each, (path, _) in found.items()}


@dataclass(frozen=True, slots=True)
class Stall:
    """A time for which a broker's event loop did not turn, and where it was; the innermost call first."""

    at_ms: float
    late_s: float
    frames: list[str]


@page("/nodes/{node}/load", "node_load.html", live=("facts", "load"), menu="nodes")
async def node_load(view: View) -> Values:
    """What a broker says of its event loop, its memory and its clients; only Ottla's do, over HTTP."""
    base = _base(view, "load")
    number = base["node"].node_id
    url = await view.cluster.segments.address(number)
    numbers = await view.cluster.run(read_numbers, number, url) if url else None
    return {
        **base,
        "url": url,
        "numbers": numbers,
        "stalls": await _stalls(view, url) if numbers is not None else None,
        "listen": LISTEN,
        "commands": [f"curl {url}/metrics", f"curl {url}/debug/stalls"] if url else [],
    }


async def _stalls(view: View, url: str) -> list[Stall] | None:
    """The newest stalls; None where the broker does not tell them."""
    try:
        found = await view.cluster.ask(Service("broker", url, timeout_s=_TIMEOUT_S), "GET", "/debug/stalls")
    except ServiceProblem:
        return None
    stalls = []
    listed = found.get("stacks") if isinstance(found, dict) else None
    for each in listed[-_SHOWN_STALLS:] if isinstance(listed, list) else ():
        at_ms, late_s, frames = (each.get(name) for name in ("at_ms", "late_s", "frames"))
        if isinstance(at_ms, int | float) and isinstance(late_s, int | float) and isinstance(frames, list):
            stalls.append(Stall(at_ms, late_s, [str(frame)[:300] for frame in frames[:_FRAMES]]))
    return stalls[::-1]


@page("/nodes/{node}/settings", "node_settings.html", menu="nodes")
async def node_settings(view: View) -> Values:
    """The settings of a broker: what is set first, and where it differs from the other brokers."""
    base = _base(view, "settings")
    wanted = view.cluster.answering()
    number = base["node"].node_id
    found = await view.cluster.call(_settings, sorted({number, *wanted[:10]}))
    others = {name: {entries.get(name) for entries in found.values()} for name in found[number]}
    entries = [each for _, each in sorted((await view.cluster.call(_entries, number)).items())]
    return {
        **base,
        "own": [each for each in entries if not each.is_default],
        "defaults": [each for each in entries if each.is_default],
        "differs": {name for name, values in others.items() if len(values) > 1},
        "commands": [
            f"ottla configs --bootstrap-server {view.cluster.bootstrap} --describe --broker {number} --all"
        ],
    }


def _entries(cluster: Cluster, number: int) -> dict[str, ConfigEntry]:
    resource = ConfigResourceType.BROKER, str(number)
    return {each.name: each for each in describe_configs(cluster, [resource], synonyms=True)[resource]}


def _settings(cluster: Cluster, numbers: list[int]) -> dict[int, dict[str, str | None]]:
    return {
        number: {name: each.value for name, each in _entries(cluster, number).items()} for number in numbers
    }


@page("/quorum", "quorum.html", live=("quorum",), menu="quorum")
async def quorum(view: View) -> Values:
    """The metadata quorum: leader, epoch, and a lane for each voter and observer."""
    if view.state.quorum is None:
        return {"quorum": None, "features": [], "now_ms": 0, "may_change": False, "commands": []}
    described = await view.cluster.call(describe_features)
    levels = {each.name: each.max_version_level for each in described.finalized_features}
    features = [
        (each.name, levels.get(each.name, 0), each.min_version, each.max_version)
        for each in sorted(described.supported_features, key=lambda each: each.name)
    ]
    return {
        "quorum": view.state.quorum,
        "features": features,
        "now_ms": time.time() * 1000,
        "may_change": view.may(ADMIN),
        "commands": [
            f"ottla metadata-quorum --bootstrap-server {view.cluster.bootstrap} describe --status",
            f"ottla features --bootstrap-server {view.cluster.bootstrap} describe",
        ],
    }
