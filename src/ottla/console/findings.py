"""What is wrong with a cluster, from the sampler's state alone: findings in sentences, worst first, with advice."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.console.sampler.why import BAD, WARN, Finding

if TYPE_CHECKING:
    from ottla.console.sampler.state import ClusterState

_LITTLE_SPACE: Final = 0.15
_NO_SPACE: Final = 0.05
_SHOWN: Final = 3


Sees = Callable[[str], bool]
"""Whether somebody may see a resource, `topic:NAME` or `group:ID`."""


def cluster_findings(state: ClusterState, sees: Sees) -> list[Finding]:
    """The findings about nodes and disks, and about the partitions and groups that somebody may see."""
    found: list[Finding] = []
    if state.problem:
        found.append(
            Finding(BAD, "answer", "No broker answers.", state.problem, "The command ottla doctor says more.")
        )
    found += _nodes(state)
    found += _partitions(state, sees)
    found += _disks(state)
    found += _groups(state, sees)
    found.sort(key=lambda each: each.severity != BAD)
    return found


def _nodes(state: ClusterState) -> list[Finding]:
    found = []
    for node in state.nodes.values():
        if node.fenced:
            sentence = f"Broker {node.node_id} is fenced: it takes no part."
            found.append(Finding(BAD, "fenced", sentence, "DescribeCluster", "Start it, or look at its log."))
        elif not node.answers:
            sentence = f"Broker {node.node_id} does not answer at {node.host}:{node.port}."
            found.append(
                Finding(
                    BAD,
                    "silent",
                    sentence,
                    "its numbers below are old",
                    "Is it running? Is the way to it open?",
                )
            )
    quorum = state.quorum
    if quorum is not None:
        behind = [
            each
            for each in quorum.voters
            if each.voter and quorum.high_watermark - each.log_end_offset > 1000
        ]
        for each in behind:
            sentence = f"Controller {each.node_id} is {quorum.high_watermark - each.log_end_offset:,} records behind."
            found.append(Finding(WARN, "quorum", sentence, "DescribeQuorum", "Look at its log and its disk."))
    return found


def _names(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more:,} more" if more > 0 else "")


def _partitions(state: ClusterState, sees: Sees) -> list[Finding]:
    topics = [topic for topic in state.topics.values() if sees(f"topic:{topic.name}")]
    headless = [f"{topic.name}-{number}" for topic in topics for number in topic.headless]
    lacking = [f"{topic.name}-{number}" for topic in topics for number in topic.lacking]
    found = []
    if headless:
        count = "1 partition has" if len(headless) == 1 else f"{len(headless):,} partitions have"
        found.append(
            Finding(
                BAD,
                "no leader",
                f"{count} no leader: {_names(headless)}.",
                "",
                "Start the brokers that hold them.",
            )
        )
    if lacking:
        count = "1 partition lacks" if len(lacking) == 1 else f"{len(lacking):,} partitions lack"
        found.append(
            Finding(
                WARN,
                "under-replicated",
                f"{count} a replica: {_names(lacking)}.",
                "",
                "Start the brokers that are missing from the in-sync replicas.",
            )
        )
    return found


def _disks(state: ClusterState) -> list[Finding]:
    found = []
    for node in state.nodes.values():
        for each in node.directories:
            if each.error:
                sentence = f"The directory {each.path} of broker {node.node_id} is offline."
                found.append(
                    Finding(BAD, "disk", sentence, each.error, "Look at the broker's log and at the disk.")
                )
            elif each.total > 0 and each.usable < each.total * _LITTLE_SPACE:
                severity = BAD if each.usable < each.total * _NO_SPACE else WARN
                sentence = f"The disk of broker {node.node_id} is {1 - each.usable / each.total:.0%} full."
                found.append(
                    Finding(severity, "disk", sentence, each.path, "Keep less, or give it more room.")
                )
    return found


def _groups(state: ClusterState, sees: Sees) -> list[Finding]:
    bad = [
        group
        for group in state.groups.values()
        if group.findings and group.findings[0].severity == BAD and sees(f"group:{group.group_id}")
    ]
    bad.sort(key=lambda group: -group.lag)
    found = [
        Finding(
            WARN,
            "group",
            f"Group {group.group_id}: {group.findings[0].sentence}",
            "",
            group.findings[0].next_step,
        )
        for group in bad[:_SHOWN]
    ]
    if len(bad) > _SHOWN:
        found.append(
            Finding(WARN, "group", f"{len(bad) - _SHOWN:,} more groups are in trouble.", "", "See Groups.")
        )
    return found
