"""`ottla doctor`: checks a cluster as its clients see it, and advises on each problem."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Final

import click

from ottla import __version__
from ottla.admin.connection import ConnectionFailed, Node
from ottla.admin.log_dirs import describe_log_dirs
from ottla.admin.machines import by_machine, is_shared, on_one_machine
from ottla.admin.quorum import describe_quorum
from ottla.cli.findings import FAIL, OK, WARN, Finding, show, some
from ottla.cli.tools.base import Flags, Session, parse_bootstrap, tool
from ottla.errors import ApiException, ErrorCode
from ottla.interpreter import is_optimised
from ottla.wire.apis import ApiKey

_SLOW_MS: Final = 500
_SKEW_MS: Final = 2_000
_LITTLE_SPACE: Final = 0.15
_NO_SPACE: Final = 0.05
_FEW_FILES: Final = 16_384
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")


class DoctorFlags(Flags):
    """The flags of `ottla doctor`."""

    quiet: bool


@tool(
    "doctor",
    click.option("--quiet", is_flag=True, help="Only show warnings and failures."),
)
def doctor(session: Session, flags: DoctorFlags) -> None:
    """Check addresses, clocks, disks, limits and versions, and advise on each problem."""
    findings: list[Finding] = []
    for finding in _examine(session):
        findings.append(finding)
        if not session.as_json and not (flags.quiet and finding.state == OK):
            show(finding)
    if session.as_json:
        session.dump([asdict(finding) for finding in findings])
    failed = sum(finding.state == FAIL for finding in findings)
    warned = sum(finding.state == WARN for finding in findings)
    if failed or warned:
        session.print(f"\n{failed} failed, {warned} to look at, {len(findings) - failed - warned} well")
    else:
        session.print("\nAll is well.")
    session.exit_code = 1 if failed else 0


def _examine(session: Session) -> Iterator[Finding]:
    yield from _here()
    reached = False
    for host, port in parse_bootstrap(session.bootstrap):
        finding = _bootstrap(session, Node(-1, host, port))
        reached = reached or finding.state != FAIL
        yield finding
    if not reached:
        return
    yield from _brokers(session)
    yield from _quorum(session)
    yield from _partitions(session)
    yield from _machines(session)
    yield from _disks(session)


def _here() -> Iterator[Finding]:
    """This machine."""
    import resource

    import confluent_kafka

    versions = f"Ottla {__version__}, Python {platform.python_version()}, librdkafka {confluent_kafka.libversion()[0]}"
    yield Finding("versions here", OK, versions)
    if not is_optimised():
        yield Finding(
            "Python here",
            WARN,
            "it was built without profile-guided optimisation: a broker spends 9 to 25 % more CPU on a request",
            "run Ottla on your distribution's Python, or build yours with --enable-optimizations",
        )
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _FEW_FILES:
        yield Finding(
            "open files here",
            WARN,
            f"a process may have {soft} open; a broker needs several per partition and one per connection",
            f"before `ottla start`: ulimit -n {min(hard, 100_000) if hard > 0 else 100_000}"
            " (or LimitNOFILE= in its systemd unit)",
        )
    else:
        yield Finding(
            "open files here", OK, f"a process may have {soft if soft > 0 else 'any number of them'}"
        )


def _bootstrap(session: Session, node: Node) -> Finding:
    started = time.monotonic()
    try:
        session.cluster.new_connection(node).close()
    except ConnectionFailed as failure:
        return Finding(
            f"bootstrap {node.address}",
            FAIL,
            failure.reason,
            "is it running (`ottla start`), is the port right, does a firewall stand between?",
        )
    except ApiException as error:
        return Finding(
            f"bootstrap {node.address}", FAIL, error.message, "see the security settings of the profile"
        )
    return _answered(f"bootstrap {node.address}", started)


def _answered(check: str, started: float) -> Finding:
    took_ms = (time.monotonic() - started) * 1000
    if took_ms > _SLOW_MS:
        return Finding(check, WARN, f"answers after {took_ms:.0f} ms", "the broker or the way to it is busy")
    return Finding(check, OK, f"answers after {took_ms:.0f} ms")


def _brokers(session: Session) -> Iterator[Finding]:
    """Every address that the cluster advertises."""
    levels: dict[int, frozenset[tuple[int, int, int]]] = {}
    bootstraps = [host for host, _ in parse_bootstrap(session.bootstrap)]
    for node in session.cluster.nodes().values():
        check = f"broker {node.id} at {node.address}"
        started = time.monotonic()
        try:
            connection = session.cluster.connection(node.id)
        except ConnectionFailed as failure:
            yield Finding(
                check, FAIL, f"advertised, but {failure.reason}", _advertised_advice(node, bootstraps)
            )
            continue
        levels[node.id] = frozenset((key, *span) for key, span in connection.versions.items())
        yield _answered(check, started)
    if len(set(levels.values())) > 1:
        yield Finding(
            "versions of brokers",
            WARN,
            f"brokers {', '.join(map(str, sorted(levels)))} do not speak the same versions of all APIs",
            "that is so in the middle of an upgrade; finish it: `ottla broker-api-versions` shows who differs",
        )
    elif levels:
        yield Finding("versions of brokers", OK, "all speak the same versions of all APIs")


def _advertised_advice(node: Node, bootstraps: list[str]) -> str:
    if node.host in _LOCAL and not any(host in _LOCAL for host in bootstraps):
        return (
            f"broker {node.id} advertises {node.host}, which clients take for themselves: set"
            f" advertised.listeners=PLAINTEXT://{bootstraps[0]}:{node.port} there"
        )
    return (
        f"if broker {node.id} runs, its advertised.listeners must name an address that can be reached from"
        " here; if not, start it"
    )


def _quorum(session: Session) -> Iterator[Finding]:
    """The controllers, and the leader's clock beside ours."""
    if not session.cluster.supports(ApiKey.DESCRIBE_QUORUM):
        return
    before_ms = time.time() * 1000
    answer = describe_quorum(session.cluster)
    after_ms = time.time() * 1000
    if answer.error_code != ErrorCode.NONE or answer.topics[0].partitions[0].error_code != ErrorCode.NONE:
        code = answer.error_code or answer.topics[0].partitions[0].error_code
        yield Finding(
            "controllers", FAIL, ErrorCode.of(code).name, "are a majority of the controllers running?"
        )
        return
    quorum = answer.topics[0].partitions[0]
    by_id = {voter.replica_id: voter for voter in quorum.current_voters}
    leader = by_id.get(quorum.leader_id)
    behind = [
        voter.replica_id
        for voter in quorum.current_voters
        if leader is not None and leader.last_caught_up_timestamp - voter.last_caught_up_timestamp > 5_000
    ]
    if leader is None:
        advice = (
            "are a majority of the controllers running? `ottla metadata-quorum describe --status` shows them"
        )
        yield Finding("controllers", FAIL, "there is no leader", advice)
        return
    if behind:
        yield Finding(
            "controllers",
            WARN,
            f"{quorum.leader_id} leads, but {', '.join(map(str, behind))} do not keep up",
            "start them, or look at their logs; until then fewer may fail",
        )
    else:
        yield Finding("controllers", OK, f"{quorum.leader_id} leads {len(by_id)} of them, and all keep up")
    moment = leader.last_caught_up_timestamp
    if moment > 0:
        skew_ms = max(before_ms - moment, moment - after_ms, 0.0)
        if skew_ms > _SKEW_MS:
            way = "behind" if moment < before_ms else "ahead of"
            yield Finding(
                "clock",
                FAIL,
                f"the cluster's clock is {skew_ms / 1000:.1f} s {way} this machine's",
                "let both keep time by NTP (timedatectl set-ntp true): retention and tokens go by it",
            )
        else:
            yield Finding("clock", OK, "the cluster's and this machine's agree")


def _partitions(session: Session) -> Iterator[Finding]:
    lacking, headless, count = [], [], 0
    for topic in session.cluster.metadata().topics:
        for each in topic.partitions:
            count += 1
            name = f"{topic.name}-{each.partition_index}"
            if each.leader_id < 0:
                headless.append(name)
            elif len(each.isr_nodes) < len(each.replica_nodes):
                lacking.append(name)
    if headless:
        yield Finding(
            "partitions",
            FAIL,
            f"{len(headless)} have no leader: {some(headless)}",
            "start the brokers that hold them; `ottla leader-election --election-type unclean` is the last resort",
        )
    if lacking:
        yield Finding(
            "partitions",
            WARN,
            f"{len(lacking)} lack a replica: {some(lacking)}",
            "`ottla topics --describe --under-replicated-partitions` shows on which brokers",
        )
    if not headless and not lacking:
        yield Finding("partitions", OK, f"all {count} have a leader and all their replicas")


def _machines(session: Session) -> Iterator[Finding]:
    """Brokers that share a host, and partitions that a single machine could take with it."""
    hosts = {node.id: node.host for node in session.cluster.nodes().values()}
    machines = by_machine(hosts)
    if not is_shared(machines):
        return
    text = f"{len(hosts)} brokers on {len(machines)}: " + some(
        [f"{host} ({', '.join(map(str, brokers))})" for host, brokers in machines.items()]
    )
    if len(machines) == 1:
        yield Finding("machines", OK, text)
        return
    together = [
        f"{topic.name}-{each.partition_index}"
        for topic in session.cluster.metadata().topics
        for each in topic.partitions
        if on_one_machine(each.replica_nodes, hosts)
    ]
    if together:
        yield Finding(
            "machines",
            WARN,
            f"{text}; {len(together)} partitions have all replicas on one machine: {some(together)}",
            "move replicas to other machines: `ottla reassign-partitions --generate`, then `--execute`",
        )
    else:
        yield Finding("machines", OK, text)


def _disks(session: Session) -> Iterator[Finding]:
    for node in session.cluster.nodes():
        try:
            answer = describe_log_dirs(session.cluster, node, [])
        except ConnectionFailed:
            continue  # Already reported, with its address.
        for each in answer.results:
            check = f"disk of broker {node} ({each.log_dir})"
            if each.error_code != ErrorCode.NONE:
                yield Finding(
                    check,
                    FAIL,
                    f"is offline: {ErrorCode.of(each.error_code).name}",
                    "look at the broker's log and at the disk, then restart the broker",
                )
            elif each.total_bytes > 0:
                yield _space(check, each.usable_bytes, each.total_bytes)


def _space(check: str, usable: int, total: int) -> Finding:
    text = f"{usable / 1e9:.1f} of {total / 1e9:.1f} GB are free"
    advice = "keep less (`ottla configs --alter --topic NAME --add-config retention.bytes=...`) or give it more room"
    if usable < total * _NO_SPACE:
        return Finding(check, FAIL, text, advice)
    if usable < total * _LITTLE_SPACE:
        return Finding(check, WARN, text, advice)
    return Finding(check, OK, text)
