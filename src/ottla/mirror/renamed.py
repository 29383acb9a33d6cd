"""Moving clients between clusters whose mirror renames topics: `orders` at one is `A.orders` at the other.

Nothing that was copied has to be copied back. But a group that went on in a copy has to go on in the original when its
consumers come back, or it would read again there what it has read in the copy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ottla.admin.cluster import Cluster
from ottla.admin.errors import raise_for
from ottla.admin.groups import (
    Committed,
    Group,
    alter_offsets,
    committed_offsets,
    describe_groups,
)
from ottla.admin.partitions import Partition
from ottla.mirror.config import FlowConfig
from ottla.mirror.flow import Flow
from ottla.mirror.groups import Copy, GroupPosition, group_positions
from ottla.mirror.looking import copies_of
from ottla.mirror.runners import ThreadRunner
from ottla.mirror.runs import RunMap, reversed_runs

Say = Callable[[str], None]


def positions_home(flow: FlowConfig, say: Say) -> int:
    """Bring groups that went on in the copies of a flow forward in the topics that were copied; how many positions.

    A position that is as far already stays: the group has read that there.
    """
    home, away = Cluster(flow.source_settings), Cluster(flow.target_settings)
    try:
        if not copies_of(flow, home, away):
            return 0
        _settle(flow)
        copies = {
            copy.remote: Copy(place, copy.downstream, copy.upstream, RunMap(reversed_runs(copy.runs)))
            for place, copy in copies_of(flow, home, away).items()
            if copy.stopped is None
        }
        turned = replace(flow, source=flow.target, target=flow.source)
        by_group: dict[str, list[GroupPosition]] = {}
        for one in group_positions(turned, away, copies):
            by_group.setdefault(one.group, []).append(one)
        states = describe_groups(home, list(by_group))
        changed = 0
        for group, some in by_group.items():
            state = states.get(group)
            if isinstance(state, Group) and state.members:
                say(f"group {group} has members at {flow.source}: its positions there stay as they are")
                continue
            changed += _forward(home, group, some)
        return changed
    finally:
        home.close()
        away.close()


def _settle(flow: FlowConfig) -> None:
    """Takes the flow over from a mirror that may run, so that its notes are exact, and ends it."""
    runner = ThreadRunner()
    work = Flow(flow, runner)
    clean = False
    try:
        work.prepare()
        clean = True
    finally:
        work.close(clean=clean)
        runner.close()


def _forward(home: Cluster, group: str, positions: list[GroupPosition]) -> int:
    there = committed_offsets(home, group)
    new: dict[Partition, Committed] = {}
    for one in positions:
        now = there.get((one.remote.topic, one.remote.partition))
        if one.downstream is not None and (now is None or now.offset < one.downstream):
            new[one.remote.topic, one.remote.partition] = Committed(one.downstream, None, one.metadata)
    if new:
        for (topic, number), code in alter_offsets(home, group, new).items():
            raise_for(code, None, f"the position of {group} in {topic}-{number}")
    return len(new)
