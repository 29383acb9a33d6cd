"""`ottla metadata-quorum`: what kafka-metadata-quorum does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypedDict

import click

from ottla.admin.errors import raise_for
from ottla.admin.quorum import add_voter, describe_cluster, describe_quorum, remove_voter
from ottla.cli.tools.base import Flags, Session, require, tool
from ottla.cli.tools.columns import tabbed
from ottla.cli.tools.failures import UsageProblem
from ottla.cli.tools.values import now_ms
from ottla.wire.uuid import ZERO_UUID, uuid_from_str, uuid_to_str

if TYPE_CHECKING:
    from ottla.wire.messages import DescribeQuorumResponse

    Quorum = DescribeQuorumResponse.PartitionData
    ReplicaState = DescribeQuorumResponse.ReplicaState
    Listeners = dict[int, list[DescribeQuorumResponse.Listener]]

_TITLES: Final = (
    *("NodeId", "DirectoryId", "LogEndOffset", "Lag"),
    *("LastFetchTimestamp", "LastCaughtUpTimestamp", "Status"),
)


class ReplicaDocument(TypedDict, total=False):
    """A voter or observer, as JSON."""

    id: int
    directoryId: str
    endpoints: list[str]


class MetadataQuorumFlags(Flags):
    """The flags of `ottla metadata-quorum`."""

    action: str
    status: bool
    replication: bool
    human_readable: bool
    controller_id: int | None
    controller_directory_id: str | None
    dry_run: bool


@tool(
    "metadata-quorum",
    click.argument("action", type=click.Choice(["describe", "add-controller", "remove-controller"])),
    click.option("--status", is_flag=True, help="describe: the quorum in short."),
    click.option("--replication", is_flag=True, help="describe: each replica of the metadata."),
    click.option("--human-readable", is_flag=True, help="describe --replication: times as ages."),
    click.option("--controller-id", type=int, metavar="ID", help="remove-controller: which."),
    click.option("--controller-directory-id", metavar="ID", help="remove-controller: its directory."),
    click.option("--dry-run", is_flag=True, help="Only show what would be done."),
    aliases={"-i": "--controller-id", "-d": "--controller-directory-id"},
    controllers=True,
)
def metadata_quorum(session: Session, flags: MetadataQuorumFlags) -> None:
    """Show and change the quorum that holds the cluster's metadata."""
    if flags.action == "add-controller":
        _add_controller(session, flags)
    elif flags.action == "remove-controller":
        _remove_controller(session, flags)
    elif flags.status == flags.replication:
        raise click.UsageError("describe needs one of --status and --replication")
    elif flags.replication:
        _show_replication(session, flags)
    elif flags.human_readable:
        raise click.UsageError("--human-readable can only be used with --replication")
    else:
        _show_status(session)


def _quorum(session: Session) -> tuple[Quorum, Listeners]:
    """The quorum as its leader describes it, and the listeners of its nodes."""
    answer = describe_quorum(session.cluster)
    raise_for(answer.error_code, answer.error_message)
    quorum = answer.topics[0].partitions[0]
    raise_for(quorum.error_code, quorum.error_message)
    return quorum, {node.node_id: node.listeners for node in answer.nodes}


def _show_status(session: Session) -> None:
    quorum, nodes = _quorum(session)
    described = describe_cluster(session.cluster, controllers=session.to_controllers)
    leader = next(voter for voter in quorum.current_voters if voter.replica_id == quorum.leader_id)
    slowest = min(quorum.current_voters, key=lambda voter: int(voter.log_end_offset))
    lag_ms = 0
    if slowest is not leader:
        times = leader.last_caught_up_timestamp, slowest.last_caught_up_timestamp
        lag_ms = times[0] - times[1] if min(times) >= 0 else -1
    voters, observers = _replicas(quorum.current_voters, nodes), _replicas(quorum.observers, nodes)
    values = {
        "ClusterId": described.cluster_id,
        "LeaderId": quorum.leader_id,
        "LeaderEpoch": quorum.leader_epoch,
        "HighWatermark": quorum.high_watermark,
        "MaxFollowerLag": leader.log_end_offset - slowest.log_end_offset,
        "MaxFollowerLagTimeMs": lag_ms,
        "CurrentVoters": voters,
        "CurrentObservers": observers,
    }
    lines = [f"{name + ':':<24}{value}" for name, value in list(values.items())[:6]]
    for name, replicas in (("CurrentVoters", voters), ("CurrentObservers", observers)):
        lines.append(f"{name + ':':<24}[{', '.join(map(_replica_text, replicas))}]")
    session.result(values, lines)


def _replicas(replicas: Sequence[ReplicaState], nodes: Listeners) -> list[ReplicaDocument]:
    found: list[ReplicaDocument] = []
    for each in replicas:
        document: ReplicaDocument = {"id": each.replica_id}
        if each.replica_directory_id != ZERO_UUID:
            document["directoryId"] = uuid_to_str(each.replica_directory_id)
        if listeners := nodes.get(each.replica_id):
            document["endpoints"] = [_endpoint(one.name, one.host, one.port) for one in listeners]
        found.append(document)
    return found


def _replica_text(document: ReplicaDocument) -> str:
    words = [f'"id": {document["id"]}']
    if "directoryId" in document:
        words.append(f'"directoryId": "{document["directoryId"]}"')
    if "endpoints" in document:
        quoted = ", ".join(f'"{endpoint}"' for endpoint in document["endpoints"])
        words.append(f'"endpoints": [{quoted}]')
    return "{" + ", ".join(words) + "}"


def _endpoint(listener: str, host: str, port: int) -> str:
    return f"{listener}://[{host}]:{port}" if ":" in host else f"{listener}://{host}:{port}"


def _show_replication(session: Session, flags: MetadataQuorumFlags) -> None:
    quorum, _ = _quorum(session)
    end = next(each.log_end_offset for each in quorum.current_voters if each.replica_id == quorum.leader_id)
    rows: list[list[object]] = []
    for status, replicas in (
        ("Leader", [each for each in quorum.current_voters if each.replica_id == quorum.leader_id]),
        ("Follower", [each for each in quorum.current_voters if each.replica_id != quorum.leader_id]),
        ("Observer", quorum.observers),
    ):
        for each in replicas:
            times: list[object] = [each.last_fetch_timestamp, each.last_caught_up_timestamp]
            if flags.human_readable:
                times = [_age(each.last_fetch_timestamp), _age(each.last_caught_up_timestamp)]
            directory = uuid_to_str(each.replica_directory_id)
            rows.append(
                [each.replica_id, directory, each.log_end_offset, end - each.log_end_offset, *times, status]
            )
    names = [title[0].lower() + title[1:] for title in _TITLES]
    session.result([dict(zip(names, cells, strict=True)) for cells in rows], tabbed(_TITLES, rows))


def _age(timestamp_ms: int) -> object:
    return f"{now_ms() - timestamp_ms} ms ago" if timestamp_ms >= 0 else timestamp_ms


def _add_controller(session: Session, flags: MetadataQuorumFlags) -> None:
    properties = session.properties
    if "controller" not in properties.get("process.roles", "") or "node.id" not in properties:
        raise UsageProblem(
            "add-controller needs the new controller's own properties file as --command-config"
        )
    voter_id = int(properties["node.id"])
    directory_id = _directory_id(properties)
    listeners = _controller_listeners(properties)
    if not flags.dry_run:
        add_voter(session.cluster, voter_id, uuid_from_str(directory_id), listeners)
    shown = ", ".join(_endpoint(*each) for each in listeners)
    done = "DRY RUN of adding" if flags.dry_run else "Added"
    line = f"{done} controller {voter_id} with directory id {directory_id} and endpoints: {shown}"
    session.result({"id": voter_id, "directoryId": directory_id, "dryRun": flags.dry_run}, [line])


def _directory_id(properties: dict[str, str]) -> str:
    from pathlib import Path

    from ottla.cli.properties_file import read_properties

    directory = properties.get("metadata.log.dir") or properties.get("log.dirs", "").split(",")[0].strip()
    if not directory:
        raise UsageProblem("the properties name neither metadata.log.dir nor log.dirs")
    found = read_properties(str(Path(directory) / "meta.properties")).get("directory.id")
    if found is None:
        raise UsageProblem(f"there is no directory.id in {directory}/meta.properties; was it formatted?")
    return found


def _controller_listeners(properties: dict[str, str]) -> list[tuple[str, str, int]]:
    from ottla.config.listeners import parse_address

    known: dict[str, tuple[str, int]] = {}
    for key in ("listeners", "advertised.listeners"):
        for entry in filter(None, (word.strip() for word in properties.get(key, "").split(","))):
            name, _, address = entry.partition("://")
            found = parse_address(address if not address.startswith(":") else f"localhost{address}")
            if found is not None:
                known[name.upper()] = found
    names = [word.strip().upper() for word in properties.get("controller.listener.names", "").split(",")]
    missing = [name for name in names if name not in known]
    if missing:
        raise UsageProblem(f"the properties have no address for the controller listener {missing[0]!r}")
    return [(name, known[name][0] or "localhost", known[name][1]) for name in names]


def _remove_controller(session: Session, flags: MetadataQuorumFlags) -> None:
    require(flags, "controller_id", "controller_directory_id")
    assert flags.controller_id is not None and flags.controller_directory_id is not None
    if flags.controller_id < 0:
        raise UsageProblem(f"--controller-id {flags.controller_id}: there are no negative ids")
    try:
        directory_id = uuid_from_str(flags.controller_directory_id)
    except ValueError as error:
        raise UsageProblem(f"--controller-directory-id: {error}") from None
    if not flags.dry_run:
        remove_voter(session.cluster, flags.controller_id, directory_id)
    done = "DRY RUN of removing " if flags.dry_run else "Removed "
    shown = uuid_to_str(directory_id)
    line = f"{done} KRaft controller {flags.controller_id} with directory id {shown}"
    session.result({"id": flags.controller_id, "directoryId": shown, "dryRun": flags.dry_run}, [line])
