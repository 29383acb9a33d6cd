"""Which batches of a Fetch response count: aborted transactions, markers, gaps and the bounds of a range."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="the pipeline needs Spark's libraries: make setup-spark")

from ottla.admin.cluster import Cluster
from ottla.client.cluster_settings import writer_settings
from ottla.ids import ProducerId, TopicName
from ottla.pipeline.fetching import Fetcher, counted_batches
from ottla.pipeline.writer import Place
from ottla.records.batch import build_batch, iter_records
from ottla.records.control import ControlType, control_key
from ottla.records.record import Record
from ottla.wire.messages import FetchResponse

PLACE = Place("orders", 0)


def data_batch(offset: int, count: int, producer: int = -1, transactional: bool = False) -> bytes:
    records = [Record(offset + number, 0, None, b"%d" % producer) for number in range(count)]
    return build_batch(records, producer_id=producer, is_transactional=transactional)


def marker(offset: int, producer: int, kind: ControlType) -> bytes:
    record = Record(offset, 0, control_key(kind), bytes(6))
    return build_batch([record], producer_id=producer, is_transactional=True, is_control=True)


def response(data: bytes, aborted: list[tuple[int, int]] = (), end: int = 100) -> FetchResponse.PartitionData:
    return FetchResponse.PartitionData(
        partition_index=0,
        error_code=0,
        high_watermark=end,
        last_stable_offset=end,
        log_start_offset=0,
        aborted_transactions=[
            FetchResponse.AbortedTransaction(producer_id=ProducerId(producer), first_offset=first)
            for producer, first in aborted
        ],
        records=data,
    )


step = st.tuples(st.sampled_from(["plain", "data", "commit", "abort"]), st.integers(0, 3), st.integers(1, 4))


@given(st.lists(step, max_size=60), st.integers(0, 80), st.integers(1, 80), st.booleans())
def test_only_committed_batches_count(steps, start, length, committed_only) -> None:
    """The oracle follows each transaction to its end; open ones are left out of the log, as the broker does."""
    log: list[
        tuple[bytes, int, int, int | None]
    ] = []  # batch, first and last offset, number of its transaction
    outcome: dict[int, str] = {}
    first_offset: dict[int, int] = {}
    producer_of: dict[int, int] = {}
    running: dict[int, int] = {}
    offset = 0
    for kind, producer, count in steps:
        if kind in ("commit", "abort"):
            if producer not in running:
                continue
            outcome[running.pop(producer)] = kind
            log.append((marker(offset, producer, ControlType[kind.upper()]), offset, offset, -1))
            offset += 1
            continue
        transaction = None
        if kind == "data":
            transaction = running.setdefault(producer, offset)
            first_offset[transaction], producer_of[transaction] = transaction, producer
        log.append(
            (
                data_batch(offset, count, producer, kind == "data")
                if kind == "data"
                else data_batch(offset, count),
                offset,
                offset + count - 1,
                transaction,
            )
        )
        offset += count
    stable = min(running.values(), default=offset)
    log = [one for one in log if one[1] < stable]
    end = start + length
    seen = [one for one in log if one[2] >= start]
    aborted = [
        (producer_of[number], first_offset[number]) for number, kind in outcome.items() if kind == "abort"
    ]
    part = counted_batches(
        PLACE,
        start,
        end,
        response(b"".join(one[0] for one in seen), aborted, stable),
        committed_only=committed_only,
    )
    found = [record.offset for at, head in part.batches for record in iter_records(part.data, at, head)]
    expected = [
        number
        for _, first, last, transaction in seen
        for number in range(first, last + 1)
        if first < end
        and transaction != -1
        and (transaction is None or not committed_only or outcome[transaction] == "commit")
    ]
    assert found == expected
    reached = [last + 1 for _, first, last, _ in seen if first < end]
    beyond = any(first >= end for _, first, _, _ in seen)
    assert part.next_offset == max([start, *reached, *([end] if beyond else [])])


def fetched(*parts: FetchResponse.PartitionData) -> FetchResponse:
    topic = FetchResponse.FetchableTopicResponse(topic=TopicName("orders"), partitions=list(parts))
    return FetchResponse(responses=[topic])


def test_a_gap_at_the_end_of_the_log_ends_a_range() -> None:
    """The cleaner may remove the last batches before an empty active segment: no batch leads beyond them."""
    fetcher = Fetcher(Cluster(writer_settings("127.0.0.1:1")))
    (part,), failure = fetcher._take(fetched(response(b"", end=11)), {PLACE: 5}, {PLACE: 11})
    assert (part.next_offset, part.batches, failure) == (11, [], None)
    # What is not committed yet may still come.
    assert fetcher._take(fetched(response(b"", end=10)), {PLACE: 5}, {PLACE: 11}) == ([], None)
    # A partition may be empty because others filled the response.
    other = response(data_batch(0, 3))
    other.partition_index = 1
    asked = {PLACE: 5, Place("orders", 1): 0}
    (part,), _ = fetcher._take(
        fetched(response(b"", end=11), other), asked, {PLACE: 11, Place("orders", 1): 3}
    )
    assert (part.partition, part.next_offset) == (1, 3)
