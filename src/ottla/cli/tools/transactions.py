"""`ottla transactions`: what kafka-transactions does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from ottla.cli.tools.base import Flags, Session, require, tool
from ottla.cli.tools.cluster_client import Coordinator
from ottla.cli.tools.columns import tabbed
from ottla.cli.tools.failures import UsageProblem, raise_for
from ottla.cli.tools.partitions import Partition, by_leader, by_topic, leaders
from ottla.cli.tools.values import now_ms
from ottla.errors import ApiException, ErrorCode
from ottla.wire.messages import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    WriteTxnMarkersRequest,
)

if TYPE_CHECKING:
    from ottla.cli.tools.cluster_client import Cluster

_ACTIONS: Final = (
    *("list", "describe", "describe-producers", "abort", "find-hanging"),
    "forceTerminateTransaction",
)
_NO_TIME: Final = 1
"""Ends a transaction at once: the timeout of the producer that takes the transactional id over."""


@tool(
    "transactions",
    click.argument("action", type=click.Choice(_ACTIONS)),
    click.option("--transactional-id", metavar="ID", help="describe: which."),
    click.option("--transactionalId", "id_to_end", metavar="ID", help="Force: which."),
    click.option("--duration-filter", type=int, metavar="MS", help="list: only what runs longer."),
    click.option("--transactional-id-pattern", metavar="REGEX", help="list: only ids that fit."),
    click.option("--broker-id", type=int, metavar="ID", help="Ask this broker, not the leader."),
    click.option("--topic", metavar="NAME", help="The topic."),
    click.option("--partition", type=int, metavar="NUMBER", help="The partition."),
    click.option("--start-offset", type=int, metavar="OFFSET", help="abort: where the transaction starts."),
    click.option("--producer-id", type=int, metavar="ID", help="abort: of which producer."),
    click.option("--producer-epoch", type=int, metavar="EPOCH", help="abort: and its epoch."),
    click.option("--coordinator-epoch", type=int, metavar="EPOCH", help="abort: and the coordinator's."),
    click.option(
        "--max-transaction-timeout",
        type=int,
        default=15,
        metavar="MINUTES",
        help="find-hanging: only what is open for longer.",
    ),
)
def transactions(session: Session, flags: Flags) -> None:
    """Show transactions and producers, find and end hanging transactions."""
    {
        "list": _list,
        "describe": _describe,
        "describe-producers": _describe_producers,
        "abort": _abort,
        "find-hanging": _find_hanging,
        "forceTerminateTransaction": _force_terminate,
    }[flags.action](session, flags)


def _tell(session: Session, titles: tuple[str, ...], rows: list[list[Any]]) -> None:
    names = [title[0].lower() + title[1:] for title in titles]
    session.tell([dict(zip(names, cells, strict=True)) for cells in rows], tabbed(titles, rows))


def _list(session: Session, flags: Flags) -> None:
    duration = -1 if flags.duration_filter is None else flags.duration_filter
    rows: list[list[Any]] = []
    for node in sorted(session.cluster.nodes()):
        for each in _listed(session.cluster, node, [], duration, flags.transactional_id_pattern):
            rows.append([each.transactional_id, node, each.producer_id, each.transaction_state])
    _tell(session, ("TransactionalId", "Coordinator", "ProducerId", "TransactionState"), rows)


def _listed(
    cluster: Cluster, node: int, producer_ids: list[int], duration: int = -1, pattern: str | None = None
) -> list[Any]:
    def ask() -> list[Any]:
        request = ListTransactionsRequest(
            producer_id_filters=producer_ids, duration_filter=duration, transactional_id_pattern=pattern
        )
        answer = cluster.ask(request, node)
        raise_for(answer.error_code)
        return list(answer.transaction_states)

    found: list[Any] = cluster.retrying(ask)
    return found


def _state_of(cluster: Cluster, transactional_id: str) -> tuple[int, Any]:
    """The coordinator and the state of a transactional id; ApiException for an unknown one."""

    def ask() -> tuple[int, Any]:
        node = cluster.coordinator(transactional_id, Coordinator.TRANSACTION)
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        state = cluster.ask(request, node).transaction_states[0]
        raise_for(state.error_code, None, f"transactional id '{transactional_id}'")
        return node, state

    found: tuple[int, Any] = cluster.retrying(ask)
    return found


def _describe(session: Session, flags: Flags) -> None:
    require(flags, "transactional_id")
    node, state = _state_of(session.cluster, flags.transactional_id)
    start: int | str = state.transaction_start_time_ms
    duration: int | str = now_ms() - state.transaction_start_time_ms
    if state.transaction_start_time_ms < 0:
        start = duration = "None"
    partitions = ",".join(f"{topic.topic}-{number}" for topic in state.topics for number in topic.partitions)
    titles = (
        *("CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState"),
        *(
            "TransactionTimeoutMs",
            "CurrentTransactionStartTimeMs",
            "TransactionDurationMs",
            "TopicPartitions",
        ),
    )
    cells = [node, state.transactional_id, state.producer_id, state.producer_epoch, state.transaction_state]
    cells += [state.transaction_timeout_ms, start, duration, partitions]
    _tell(session, titles, [cells])


def _producers(cluster: Cluster, partitions: list[Partition], node: int | None) -> dict[Partition, list[Any]]:
    """The producers that partitions know; a broker's view of them where one is named, else the leader's."""
    if node is not None:
        by_node = {node: partitions}
    else:
        by_node = by_leader(leaders(cluster, (topic for topic, _ in partitions)), partitions)
    kind = DescribeProducersRequest
    found: dict[Partition, list[Any]] = {}
    for each, wanted in by_node.items():
        topics = [
            kind.TopicRequest(name=topic, partition_indexes=numbers)
            for topic, numbers in by_topic(wanted).items()
        ]
        for topic in cluster.ask(kind(topics=topics), each).topics:
            for answer in topic.partitions:
                raise_for(answer.error_code, answer.error_message, f"{topic.name}-{answer.partition_index}")
                found[topic.name, answer.partition_index] = answer.active_producers
    return found


def _describe_producers(session: Session, flags: Flags) -> None:
    require(flags, "topic", "partition")
    partition = flags.topic, flags.partition
    rows = [
        [
            *(each.producer_id, each.producer_epoch, each.coordinator_epoch, each.last_sequence),
            *(
                each.last_timestamp,
                each.current_txn_start_offset if each.current_txn_start_offset >= 0 else "None",
            ),
        ]
        for each in _producers(session.cluster, [partition], flags.broker_id)[partition]
    ]
    titles = (
        *("ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp"),
        "CurrentTransactionStartOffset",
    )
    _tell(session, titles, rows)


def _abort(session: Session, flags: Flags) -> None:
    require(flags, "topic", "partition")
    partition = flags.topic, flags.partition
    if flags.start_offset is not None:
        open_ones = [
            each
            for each in _producers(session.cluster, [partition], None)[partition]
            if each.current_txn_start_offset == flags.start_offset
        ]
        if not open_ones:
            raise UsageProblem(
                f"no open transaction starts at offset {flags.start_offset} of {flags.topic}-{flags.partition}"
            )
        producer = (
            open_ones[0].producer_id,
            open_ones[0].producer_epoch,
            max(0, open_ones[0].coordinator_epoch),
        )
    else:
        if flags.producer_id is None:
            raise UsageProblem("abort needs --start-offset, or the producer's id and epochs for old brokers")
        require(flags, "producer_epoch", "coordinator_epoch")
        producer = flags.producer_id, flags.producer_epoch, max(0, flags.coordinator_epoch)
    _write_abort_marker(session.cluster, partition, producer)
    session.tell({"aborted": {"topic": flags.topic, "partition": flags.partition}}, [])


def _write_abort_marker(cluster: Cluster, partition: Partition, producer: tuple[int, int, int]) -> None:
    (leader,) = by_leader(leaders(cluster, [partition[0]]), [partition])
    kind = WriteTxnMarkersRequest
    topic = kind.WritableTxnMarkerTopic(name=partition[0], partition_indexes=[partition[1]])
    marker = kind.WritableTxnMarker(
        producer_id=producer[0],
        producer_epoch=producer[1],
        transaction_result=False,
        topics=[topic],
        coordinator_epoch=producer[2],
    )
    for told in cluster.ask(kind(markers=[marker]), leader).markers:
        for each in (one for answer in told.topics for one in answer.partitions):
            raise_for(each.error_code, None, f"{partition[0]}-{partition[1]}")


def _force_terminate(session: Session, flags: Flags) -> None:
    transactional_id = flags.id_to_end or flags.transactional_id
    if transactional_id is None:
        raise click.UsageError("--transactionalId is required here")

    def take_over() -> None:
        node = session.cluster.coordinator(transactional_id, Coordinator.TRANSACTION)
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=_NO_TIME)
        raise_for(session.cluster.ask(request, node).error_code, None, transactional_id)

    session.cluster.retrying(take_over)
    session.tell({"terminated": transactional_id}, [])


def _find_hanging(session: Session, flags: Flags) -> None:
    if flags.topic is None and flags.broker_id is None:
        raise UsageProblem("find-hanging needs --topic or --broker-id")
    if flags.partition is not None and flags.topic is None:
        raise UsageProblem("--partition needs --topic")
    suspects = _long_open(session.cluster, flags)
    names = {
        each.producer_id: each.transactional_id
        for node in session.cluster.nodes()
        for each in _listed(session.cluster, node, sorted({producer.producer_id for _, producer in suspects}))
        if suspects
    }
    expected = {
        producer_id: _expected_partitions(session.cluster, name) for producer_id, name in names.items()
    }
    rows = [
        [
            *(*partition, each.producer_id, each.producer_epoch, each.coordinator_epoch),
            *(each.current_txn_start_offset, each.last_timestamp, (now_ms() - each.last_timestamp) // 60_000),
        ]
        for partition, each in suspects
        if partition not in expected.get(each.producer_id, ())
    ]
    titles = (
        *("Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch"),
        *("StartOffset", "LastTimestamp", "Duration(min)"),
    )
    _tell(session, titles, rows)


def _long_open(cluster: Cluster, flags: Flags) -> list[tuple[Partition, Any]]:
    """Producers whose transaction is open for longer than any may be."""
    names = [flags.topic] if flags.topic else [topic.name for topic in cluster.metadata().topics]
    chosen = [
        (topic.name, each.partition_index)
        for topic in cluster.metadata(names).topics
        for each in topic.partitions
        if flags.partition in (None, each.partition_index)
        if flags.broker_id is None or flags.broker_id in each.replica_nodes
    ]
    if not chosen and flags.topic:
        raise ApiException(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic or partition '{flags.topic}'"
        )
    oldest = now_ms() - flags.max_transaction_timeout * 60_000
    return [
        (partition, each)
        for partition, producers in _producers(cluster, chosen, flags.broker_id).items()
        for each in producers
        if each.current_txn_start_offset >= 0 and each.last_timestamp < oldest
    ]


def _expected_partitions(cluster: Cluster, transactional_id: str) -> set[Partition]:
    """The partitions whose end the coordinator still owes; none where it does not know the id any more."""
    try:
        _, state = _state_of(cluster, transactional_id)
    except ApiException as error:
        if error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise
        return set()
    return {(topic.topic, number) for topic in state.topics for number in topic.partitions}
