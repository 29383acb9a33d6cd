"""The commands of `ottla migrate` and their flags."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.findings import FAIL, WARN, Finding, show
from ottla.cli.tools.base import Flags, Session, tool

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.cli.migrate.order import ClusterView, System

_TITLES: Final = ("ORDER", "NODE", "ADDRESS", "ROLES", "RUNS", "LEADERS", "REPLICAS", "NOTE")
_WIDTHS: Final = (6, 6, 24, 18, 18, 8, 9, 1)
_BACK = click.option("--back", is_flag=True, help="The way back: from Ottla to Apache Kafka.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def migrate() -> None:
    """Replace Apache Kafka by Ottla node by node, without stopping the cluster, and back."""


# -- check


class CheckFlags(Flags):
    """The flags of `ottla migrate check`."""

    file: str
    quiet: bool


@tool(
    "check",
    click.argument("file", metavar="SERVER.PROPERTIES"),
    click.option("--quiet", is_flag=True, help="Only show what is refused or different."),
    offline=True,
)
def check(session: Session, flags: CheckFlags) -> None:
    """Check what this node's file and directories hold that Ottla would refuse or treat differently.

    Nothing is written, and Apache Kafka may run on the directories meanwhile. The exit code is 1 if something is
    refused.
    """
    findings: list[Finding] = []
    for finding in _findings(session, flags.file):
        findings.append(finding)
        if not session.as_json and not (flags.quiet and finding.state not in (FAIL, WARN)):
            show(finding)
    if session.as_json:
        session.dump([asdict(finding) for finding in findings])
    refused = sum(finding.state == FAIL for finding in findings)
    different = sum(finding.state == WARN for finding in findings)
    verdict = "Ottla cannot take this node over yet." if refused else "Ottla can take this node over."
    session.print(f"\n{refused} refused, {different} different. {verdict}")
    session.exit_code = 1 if refused else 0


def _findings(session: Session, file: str) -> Iterator[Finding]:
    from ottla.cli.migrate.config_findings import examine_config
    from ottla.cli.migrate.file_findings import directory_findings
    from ottla.cli.migrate.metadata_findings import metadata_findings, read_metadata
    from ottla.cli.properties_file import read_properties

    examined = examine_config(read_properties(file), file)
    yield from examined.findings
    config = examined.config
    if config is None or any(each.check == "log.dirs" for each in examined.findings):
        text = "the directories were not looked at"
        yield Finding("log.dirs", FAIL, text, "correct the findings above, then check again")
        return
    yield from directory_findings(config, session.progress)
    metadata = read_metadata(Path(config.metadata_log_dir))
    if metadata is not None:
        yield from metadata_findings(metadata)


# -- plan and next


class PlanFlags(Flags):
    """The flags of `ottla migrate plan`."""

    back: bool


def _target(*, back: bool) -> System:
    from ottla.cli.migrate.order import System

    return System.APACHE if back else System.OTTLA


@tool("plan", _BACK)
def plan(session: Session, flags: PlanFlags) -> None:
    """Show what each node runs, and in which order to replace the nodes."""
    from ottla.cli.migrate.order import consequences, reasons_to_wait, replacement_order
    from ottla.cli.migrate.view import look

    view, target = look(session.cluster), _target(back=flags.back)
    order = replacement_order(view, target)
    places = {node.id: place for place, node in enumerate(order, 1)}
    reasons = reasons_to_wait(view)
    if session.as_json:
        session.dump(_document(view, target, places, reasons))
        return
    session.print(
        f"Cluster {view.cluster_id}: {len(view.nodes) - len(order)} of {len(view.nodes)} nodes run {target.value}\n"
    )
    rows = [
        [
            places.get(node.id, "-"),
            node.id,
            node.address,
            node.roles,
            node.runs,
            node.leaders,
            node.replicas,
            "active controller" if node.leads_quorum else "",
        ]
        for node in sorted(view.nodes, key=lambda node: (places.get(node.id, 0), node.id))
    ]
    session.rows(_TITLES, rows, _WIDTHS)
    if order:
        session.print("\nOne node at a time; `ottla migrate next` names it and waits until it is in sync.")
    for node in order:
        for text in consequences(view, node):
            session.print(f"Node {node.id}: {text}")
    for text in reasons:
        session.print(f"Not now: {text}")


def _document(
    view: ClusterView, target: System, places: dict[int, int], reasons: list[str]
) -> dict[str, object]:
    return {
        "cluster": view.cluster_id,
        "target": target.value,
        "underReplicated": len(view.under_replicated),
        "notNow": reasons,
        "nodes": [
            {
                "id": node.id,
                "address": node.address,
                "roles": node.roles,
                "system": node.system.value,
                "version": node.version,
                "leaders": node.leaders,
                "replicas": node.replicas,
                "activeController": node.leads_quorum,
                "order": places.get(node.id),
            }
            for node in view.nodes
        ],
    }


class NextFlags(Flags):
    """The flags of `ottla migrate next`."""

    back: bool
    no_wait: bool
    timeout: float


@tool(
    "next",
    _BACK,
    click.option(
        "--no-wait", is_flag=True, help="Name the node and end; exit code 1 if none may be stopped now."
    ),
    click.option(
        "--timeout",
        type=click.FloatRange(min=0),
        default=3600.0,
        show_default=True,
        metavar="SECONDS",
        help="How long to wait for the cluster, and for you.",
    ),
)
def next_node(session: Session, flags: NextFlags) -> None:
    """Name the next node to replace, with what to type; wait until it is back and everything is in sync.

    It waits until all replicas are in sync and the controllers have caught up, before and after the node. It stops
    and starts nothing by itself.
    """
    from ottla.cli.migrate.order import commands, replacement_order
    from ottla.cli.migrate.steps import Stepper
    from ottla.cli.migrate.view import look

    target = _target(back=flags.back)
    timeout_s = 0.0 if flags.no_wait else flags.timeout
    stepper = Stepper(lambda: look(session.cluster), session.print, target, timeout_s)
    try:
        view, node = stepper.next_node()
        if node is None:
            session.print(f"All {len(view.nodes)} nodes run {target.value}.")
        else:
            stepper.describe(view, node)
        if session.as_json:
            typed = [command for command, _ in commands(node, target)] if node is not None else []
            session.dump(
                {"target": target.value, "node": None if node is None else node.id, "commands": typed}
            )
            sys.stdout.flush()
        if node is None or flags.no_wait:
            return
        view = stepper.watch(node)
    except KeyboardInterrupt:
        session.warn("Nothing was changed. Run the command again to go on.")
        session.exit_code = 130
        return
    left = len(replacement_order(view, target))
    if left:
        session.print(f"{left} left. Run the command again for the next node.")
    else:
        session.print(f"All {len(view.nodes)} nodes run {target.value}.")


for _command in (check, plan, next_node):
    migrate.add_command(_command)
