"""`ottla transactions`: what kafka-transactions does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from ottla.admin.partitions import Partition
from ottla.admin.transactions import (
    OpenTransaction,
    abort_transaction,
    describe_producers,
    describe_transaction,
    force_terminate,
    list_transactions,
)
from ottla.cli.tools.base import Flags, Session, require, tool
from ottla.cli.tools.columns import tabbed
from ottla.cli.tools.failures import UsageProblem
from ottla.cli.tools.values import now_ms
from ottla.errors import ApiException, ErrorCode

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster
    from ottla.admin.transactions import ActiveProducer

_ACTIONS: Final = (
    *("list", "describe", "describe-producers", "abort", "find-hanging"),
    "forceTerminateTransaction",
)


class TransactionsFlags(Flags):
    """The flags of `ottla transactions`."""

    action: str
    transactional_id: str | None
    id_to_end: str | None
    duration_filter: int | None
    transactional_id_pattern: str | None
    broker_id: int | None
    topic: str | None
    partition: int | None
    start_offset: int | None
    producer_id: int | None
    producer_epoch: int | None
    coordinator_epoch: int | None
    max_transaction_timeout: int


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
def transactions(session: Session, flags: TransactionsFlags) -> None:
    """Show transactions and producers, find and end hanging transactions."""
    {
        "list": _list,
        "describe": _describe,
        "describe-producers": _describe_producers,
        "abort": _abort,
        "find-hanging": _find_hanging,
        "forceTerminateTransaction": _force_terminate,
    }[flags.action](session, flags)


def _show(session: Session, titles: tuple[str, ...], rows: Sequence[Sequence[object]]) -> None:
    names = [title[0].lower() + title[1:] for title in titles]
    session.result([dict(zip(names, cells, strict=True)) for cells in rows], tabbed(titles, rows))


def _list(session: Session, flags: TransactionsFlags) -> None:
    rows: list[list[object]] = []
    for node in sorted(session.cluster.nodes()):
        for each in list_transactions(
            session.cluster,
            node,
            duration_ms=flags.duration_filter,
            pattern=flags.transactional_id_pattern,
        ):
            rows.append([each.transactional_id, node, each.producer_id, each.transaction_state])
    _show(session, ("TransactionalId", "Coordinator", "ProducerId", "TransactionState"), rows)


def _describe(session: Session, flags: TransactionsFlags) -> None:
    require(flags, "transactional_id")
    assert flags.transactional_id is not None
    node, state = describe_transaction(session.cluster, flags.transactional_id)
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
    _show(session, titles, [cells])


def _partition(flags: TransactionsFlags) -> Partition:
    require(flags, "topic", "partition")
    assert flags.topic is not None and flags.partition is not None
    return flags.topic, flags.partition


def _describe_producers(session: Session, flags: TransactionsFlags) -> None:
    partition = _partition(flags)
    rows = [
        [
            *(each.producer_id, each.producer_epoch, each.coordinator_epoch, each.last_sequence),
            *(
                each.last_timestamp,
                each.current_txn_start_offset if each.current_txn_start_offset >= 0 else "None",
            ),
        ]
        for each in describe_producers(session.cluster, [partition], flags.broker_id)[partition]
    ]
    titles = (
        *("ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp"),
        "CurrentTransactionStartOffset",
    )
    _show(session, titles, rows)


def _abort(session: Session, flags: TransactionsFlags) -> None:
    partition = _partition(flags)
    if flags.start_offset is not None:
        open_ones = [
            each
            for each in describe_producers(session.cluster, [partition], None)[partition]
            if each.current_txn_start_offset == flags.start_offset
        ]
        if not open_ones:
            raise UsageProblem(
                f"no open transaction starts at offset {flags.start_offset} of {flags.topic}-{flags.partition}"
            )
        found = open_ones[0]
        producer = int(found.producer_id), found.producer_epoch, found.coordinator_epoch
    else:
        if flags.producer_id is None:
            raise UsageProblem("abort needs --start-offset, or the producer's id and epochs for old brokers")
        require(flags, "producer_epoch", "coordinator_epoch")
        assert flags.producer_epoch is not None and flags.coordinator_epoch is not None
        producer = flags.producer_id, flags.producer_epoch, flags.coordinator_epoch
    producer_id, producer_epoch, coordinator_epoch = producer
    transaction = OpenTransaction(partition, producer_id, producer_epoch, max(0, coordinator_epoch))
    abort_transaction(session.cluster, transaction)
    session.result({"aborted": {"topic": flags.topic, "partition": flags.partition}}, [])


def _force_terminate(session: Session, flags: TransactionsFlags) -> None:
    transactional_id = flags.id_to_end or flags.transactional_id
    if transactional_id is None:
        raise click.UsageError("--transactionalId is required here")
    force_terminate(session.cluster, transactional_id)
    session.result({"terminated": transactional_id}, [])


def _find_hanging(session: Session, flags: TransactionsFlags) -> None:
    if flags.topic is None and flags.broker_id is None:
        raise UsageProblem("find-hanging needs --topic or --broker-id")
    if flags.partition is not None and flags.topic is None:
        raise UsageProblem("--partition needs --topic")
    suspects = _long_open(session.cluster, flags)
    names = {
        each.producer_id: each.transactional_id
        for node in session.cluster.nodes()
        for each in list_transactions(
            session.cluster, node, producer_ids=sorted({producer.producer_id for _, producer in suspects})
        )
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
    _show(session, titles, rows)


def _long_open(cluster: Cluster, flags: TransactionsFlags) -> list[tuple[Partition, ActiveProducer]]:
    """Producers whose transaction is open for longer than any transaction may be."""
    chosen = [
        (topic.name or "", each.partition_index)
        for topic in cluster.metadata([flags.topic] if flags.topic else None).topics
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
        for partition, producers in describe_producers(cluster, chosen, flags.broker_id).items()
        for each in producers
        if each.current_txn_start_offset >= 0 and each.last_timestamp < oldest
    ]


def _expected_partitions(cluster: Cluster, transactional_id: str) -> set[Partition]:
    """The partitions to which the coordinator still has to write markers; none for an unknown id."""
    try:
        _, state = describe_transaction(cluster, transactional_id)
    except ApiException as error:
        if error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise
        return set()
    return {(topic.topic, number) for topic in state.topics for number in topic.partitions}
