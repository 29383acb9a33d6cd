"""`ottla reassign-partitions`: what kafka-reassign-partitions does."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import click

from ottla.admin.configs import alter_configs
from ottla.admin.log_dirs import Replica
from ottla.admin.partitions import Partition
from ottla.admin.reassignments import Reassignment, list_reassignments
from ottla.admin.throttles import DIRECTORY_RATE, lift_throttles, throttle_moves
from ottla.cli.tools.base import Flags, Session, exactly_one, given, require, tool
from ottla.cli.tools.failures import UsageProblem
from ottla.cli.tools.reassignments import (
    Assignment,
    Place,
    Plan,
    as_document,
    check_plan,
    current_assignment,
    find_directories,
    move_directories,
    named,
    partition_name,
    propose,
    read_plan,
    read_topics,
    start_reassignments,
)
from ottla.cli.tools.values import parse_int
from ottla.errors import ApiException, ErrorCode
from ottla.wire.enums import ConfigResourceType

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster

_AGAIN_S: Final = 0.1

_ALLOWED: Final = {
    "generate": {"topics_to_move_json_file", "broker_list", "disable_rack_aware"},
    "execute": {
        *("reassignment_json_file", "additional", "throttle", "replica_alter_log_dirs_throttle"),
        *("timeout", "disallow_replication_factor_change"),
    },
    "verify": {"reassignment_json_file", "preserve_throttles"},
    "cancel": {"reassignment_json_file", "preserve_throttles", "timeout"},
    "list": set[str](),
}
"""The flags that an action understands."""

_TO_CONTROLLERS: Final = ("cancel", "list")


class ReassignPartitionsFlags(Flags):
    """The flags of `ottla reassign-partitions`."""

    generate: bool
    execute: bool
    verify: bool
    cancel: bool
    list: bool
    reassignment_json_file: str | None
    topics_to_move_json_file: str | None
    broker_list: str | None
    disable_rack_aware: bool
    throttle: str | None
    replica_alter_log_dirs_throttle: str | None
    timeout: str | None
    additional: bool
    preserve_throttles: bool
    disallow_replication_factor_change: bool


@tool(
    "reassign-partitions",
    click.option("--generate", is_flag=True, help="Propose a plan that spreads topics over brokers."),
    click.option("--execute", is_flag=True, help="Start what a plan says."),
    click.option("--verify", is_flag=True, help="Show how far a plan is, and lift its throttles when done."),
    click.option("--cancel", is_flag=True, help="Stop what a plan has started."),
    click.option("--list", "list", is_flag=True, help="Show what is being reassigned."),
    click.option("--reassignment-json-file", metavar="FILE", help="The plan."),
    click.option("--topics-to-move-json-file", metavar="FILE", help="Generate: the topics to spread."),
    click.option("--broker-list", metavar="ID,...", help="Generate: the brokers to spread them over."),
    click.option("--disable-rack-aware", is_flag=True, help="Generate: do not look at racks."),
    click.option("--throttle", metavar="BYTES", help="Execute: bytes per second between brokers."),
    click.option(
        "--replica-alter-log-dirs-throttle",
        metavar="BYTES",
        help="Execute: bytes per second between directories.",
    ),
    click.option("--timeout", metavar="MS", help="How long to try to begin moves between directories."),
    click.option("--additional", is_flag=True, help="Execute: beside, or in place of, what goes on already."),
    click.option("--preserve-throttles", is_flag=True, help="Leave throttles as they are."),
    click.option(
        "--disallow-replication-factor-change", is_flag=True, help="Execute: only as many replicas as before."
    ),
    controllers=True,
    broker_list=False,
)
def reassign_partitions(session: Session, flags: ReassignPartitionsFlags) -> None:
    """Move partitions from broker to broker."""
    action = exactly_one(flags, *_ALLOWED)
    if session.to_controllers and action not in _TO_CONTROLLERS:
        raise click.UsageError(f"--bootstrap-controller can't be used with --{action}")
    for name in {name for names in _ALLOWED.values() for name in names} - _ALLOWED[action]:
        if given(flags, name):
            raise click.UsageError(f"--{name.replace('_', '-')} can't be used with --{action}")
    if action == "generate":
        require(flags, "topics_to_move_json_file", "broker_list")
    elif action != "list":
        require(flags, "reassignment_json_file")
    {"generate": _generate, "execute": _execute, "verify": _verify, "cancel": _cancel, "list": _list}[action](
        session, flags
    )


def _read_plan(flags: ReassignPartitionsFlags) -> Plan:
    assert flags.reassignment_json_file is not None
    return read_plan(flags.reassignment_json_file)


def _compact(document: object) -> str:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def _numbers(values: Iterable[int]) -> str:
    return ",".join(map(str, values))


def _plural(count: int) -> str:
    return "" if count == 1 else "s"


def _generate(session: Session, flags: ReassignPartitionsFlags) -> None:
    assert flags.broker_list is not None and flags.topics_to_move_json_file is not None
    words = [parse_int("--broker-list", word) for word in flags.broker_list.split(",")]
    if len(set(words)) != len(words):
        raise UsageProblem(f"Broker list contains duplicate entries: {flags.broker_list}")
    current = current_assignment(session.cluster, read_topics(flags.topics_to_move_json_file))
    nodes = session.cluster.nodes()
    chosen = [
        (broker, None if flags.disable_rack_aware else nodes[broker].rack)
        for broker in words
        if broker in nodes
    ]
    if len({rack is None for _, rack in chosen}) == 2:
        raise UsageProblem(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to make replica"
            " assignment without rack information."
        )
    now = as_document(current, _directories_now(session.cluster, current))
    then = as_document(propose(current, chosen), {})
    session.result(
        {"current": now, "proposed": then},
        [
            "Current partition replica assignment",
            _compact(now),
            "",
            "Proposed partition reassignment configuration",
            _compact(then),
        ],
    )


def _directories_now(cluster: Cluster, assignment: Assignment) -> dict[Replica, str]:
    """The directories of replicas on brokers that are there."""
    there = cluster.nodes()
    replicas = [
        Replica(broker, topic, number)
        for (topic, number), brokers in assignment.items()
        for broker in brokers
        if broker in there
    ]
    places = find_directories(cluster, replicas)
    return {replica: place.current for replica, place in places.items() if place.current is not None}


def _execute(session: Session, flags: ReassignPartitionsFlags) -> None:
    cluster = session.cluster
    plan = _read_plan(flags)
    wanted = check_plan(plan)
    throttle = parse_int("--throttle", flags.throttle, -1)
    directory_throttle = parse_int(
        "--replica-alter-log-dirs-throttle", flags.replica_alter_log_dirs_throttle, -1
    )
    ongoing = list_reassignments(cluster)
    if ongoing and not flags.additional:
        raise UsageProblem(
            "Cannot execute because there is an existing partition assignment: --additional overrides this,"
            " and also changes the throttle of the current one"
        )
    strangers = sorted({b for brokers in wanted.values() for b in brokers} - set(cluster.nodes()))
    if strangers:
        raise UsageProblem(f"Unknown broker id {strangers[0]}")
    current = _current(cluster, wanted)
    session.print("Current partition replica assignment\n")
    session.print(_compact(as_document(current, _directories_now(cluster, current))))
    session.print("\nSave this to use as the --reassignment-json-file option during rollback")
    if throttle >= 0 or directory_throttle >= 0:
        session.print(
            "Warning: You must run --verify periodically, until the reassignment completes, to ensure the"
            " throttle is removed."
        )
    if throttle >= 0:
        throttle_moves(cluster, ongoing, wanted, current, throttle)
        session.print(f"The inter-broker throttle limit was set to {throttle} B/s")
    if directory_throttle >= 0:
        for broker in sorted({replica.broker for replica in plan.directories}):
            rate = {DIRECTORY_RATE: str(directory_throttle)}
            alter_configs(cluster, ConfigResourceType.BROKER, str(broker), added=rate)
        session.print(f"The replica-alter-dir throttle limit was set to {directory_throttle} B/s")
    errors = start_reassignments(cluster, wanted, same_factor=flags.disallow_replication_factor_change)
    _raise_any("Error reassigning partition(s):", errors)
    session.print(f"Successfully started partition reassignment{_plural(len(wanted))} for {named(wanted)}")
    _start_moves(session, plan.directories, parse_int("--timeout", flags.timeout, 10_000))
    if session.as_json:
        session.dump({"started": [partition_name(each) for each in sorted(wanted)]})


def _current(cluster: Cluster, wanted: Assignment) -> Assignment:
    all_of_them = current_assignment(cluster, (topic for topic, _ in wanted))
    missing = wanted.keys() - all_of_them.keys()
    if missing:
        raise ApiException(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition: {named(missing)}"
        )
    return {partition: all_of_them[partition] for partition in wanted}


def _raise_any(title: str, errors: Mapping[Partition, str]) -> None:
    if errors:
        text = "; ".join(f"{partition_name(each)}: {errors[each]}" for each in sorted(errors))
        raise ApiException(ErrorCode.UNKNOWN_SERVER_ERROR, f"{title} {text}")


def _start_moves(session: Session, directories: Mapping[Replica, str], timeout_ms: int) -> None:
    """Begin moves between directories; a replica that is not there yet is asked for again and again."""
    deadline = time.monotonic() + timeout_ms / 1000
    pending = dict(directories)
    while pending:
        started = move_directories(session.cluster, pending)
        for replica in sorted(started):
            session.print(
                f"Successfully started moving log directory to {pending[replica]} for replica"
                f" {replica.name} with broker {replica.broker} "
            )
        pending = {replica: path for replica, path in pending.items() if replica not in started}
        if pending and time.monotonic() >= deadline:
            names = ",".join(map(str, sorted(pending)))
            raise ApiException(
                ErrorCode.REQUEST_TIMED_OUT,
                f"Timed out before log directory move{_plural(len(pending))} could be started for: {names}",
            )
        if pending:
            time.sleep(_AGAIN_S)


def _verify(session: Session, flags: ReassignPartitionsFlags) -> None:
    cluster = session.cluster
    plan = _read_plan(flags)
    ongoing = list_reassignments(cluster)
    current = _current_or_none(cluster, plan)
    states = {
        partition: _partition_state(partition, target, ongoing, current)
        for partition, target in plan.replicas
    }
    places = find_directories(cluster, plan.directories)
    moves = {
        replica: _move_state(replica, path, places[replica]) for replica, path in plan.directories.items()
    }
    session.result(
        {
            "partitions": {partition_name(each): states[each] for each in sorted(states)},
            "moves": {str(each): moves[each] for each in sorted(moves)},
        },
        [
            "Status of partition reassignment:",
            *(states[each] for each in sorted(states)),
            "\n".join(moves[each] for each in sorted(moves)),
        ],
    )
    moving = any(places[replica].future is not None for replica in plan.directories)
    if not ongoing and not moving and not flags.preserve_throttles:
        _clear_throttles(session, plan)


def _current_or_none(cluster: Cluster, plan: Plan) -> Assignment:
    """The current replicas of the plan's topics; a deleted topic has none."""
    names = {topic.name or "" for topic in cluster.metadata().topics}
    return current_assignment(cluster, (topic for topic in plan.topics if topic in names))


def _partition_state(
    partition: Partition, target: list[int], ongoing: Mapping[Partition, Reassignment], current: Assignment
) -> str:
    name = partition_name(partition)
    if partition in ongoing:
        return f"Reassignment of partition {name} is still in progress."
    now = current.get(partition, [])
    if now == target:
        return f"Reassignment of partition {name} is completed."
    return (
        f"There is no active reassignment of partition {name}, but replica set is {_numbers(now)} rather than"
        f" {_numbers(target)}."
    )


def _move_state(replica: Replica, path: str, place: Place) -> str:
    partition, broker = f"Partition {replica.name}", f"broker {replica.broker}"
    if place.current is None:
        return (
            f"{partition} is not found in any live log dir on {broker}. There is likely an offline log"
            " directory on the broker."
        )
    if place.future is None:
        if place.current == path:
            return f"Reassignment of replica {replica} completed successfully."
        return f"{partition} on {broker} is not being moved from log dir {place.current} to {path}."
    if place.future == path:
        return f"Reassignment of replica {replica} is still in progress."
    return f"{partition} on {broker} is being moved to log dir {place.future} instead of {path}."


def _clear_throttles(session: Session, plan: Plan) -> None:
    brokers = sorted({*session.cluster.nodes(), *(b for _, each in plan.replicas for b in each)})
    session.print(f"Clearing broker-level throttles on broker{_plural(len(brokers))} {_numbers(brokers)}")
    lift_throttles(session.cluster, brokers, ())
    topics = plan.topics
    session.print(f"Clearing topic-level throttles on topic{_plural(len(topics))} {','.join(topics)}")
    lift_throttles(session.cluster, (), topics)


def _cancel(session: Session, flags: ReassignPartitionsFlags) -> None:
    cluster = session.cluster
    plan = _read_plan(flags)
    ongoing = list_reassignments(cluster, [partition for partition, _ in plan.replicas])
    active = sorted(partition for partition, each in ongoing.items() if each.adding or each.removing)
    if active:
        errors = start_reassignments(cluster, dict.fromkeys(active))
        _raise_any(f"Error cancelling partition reassignment{_plural(len(errors))} for:", errors)
        session.print(
            f"Successfully cancelled partition reassignment{_plural(len(active))} for: {named(active)}"
        )
    else:
        session.print("None of the specified partition reassignments are active.")
    places = find_directories(cluster, plan.directories)
    moving = {
        replica: place.current
        for replica, place in places.items()
        if place.current and place.future is not None
    }
    if moving:
        _start_moves(session, moving, parse_int("--timeout", flags.timeout, 10_000))
    else:
        # Kafka's tool ends no line here.
        session.print("None of the specified partition moves are active.", end="")
    if not flags.preserve_throttles:
        _clear_throttles(session, plan)
    if session.as_json:
        session.dump({"cancelled": [partition_name(each) for each in active]})


def _list(session: Session, flags: ReassignPartitionsFlags) -> None:
    ongoing = list_reassignments(session.cluster)
    lines = ["Current partition reassignments:" if ongoing else "No partition reassignments found."]
    documents = []
    for partition, each in sorted(ongoing.items()):
        adding = f" adding: {_numbers(each.adding)}." if each.adding else ""
        removing = f" removing: {_numbers(each.removing)}." if each.removing else ""
        lines.append(f"{partition_name(partition)}: replicas: {_numbers(each.replicas)}.{adding}{removing}")
        documents.append(
            {
                "topic": partition[0],
                "partition": partition[1],
                "replicas": each.replicas,
                "adding": each.adding,
                "removing": each.removing,
            }
        )
    session.result(documents, lines)
