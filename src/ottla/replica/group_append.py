"""Batches of several requests to one partition, appended with one write.

`ottla.log.batches` gives them their offsets; `ottla.net.produce_turn` collects the requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.errors import ApiException
from ottla.log.batches import lay_out

if TYPE_CHECKING:
    from ottla.log.fs import Buffer
    from ottla.log.types import AppendInfo
    from ottla.records.validation import ValidatedBatch
    from ottla.replica.partition import Partition

Request = tuple["Buffer", int, int]
"""Records, acks and version."""


def append_together(
    partition: Partition, requests: Sequence[Request], now_ms: int
) -> list[AppendInfo | None]:
    """Append the batches of requests. None for those that were not appended: they need `Partition.append`.

    These are batches that are not valid, that threads have to look at, or whose producer has an id. After a failed
    write it is all of them.
    """
    results: list[AppendInfo | None] = [None] * len(requests)
    log = partition.log
    if log is None or partition.appends_in_threads:
        return results
    batches: list[ValidatedBatch] = []
    places: list[int] = []
    for place, (records, acks, version) in enumerate(requests):
        try:
            partition.check_can_append(log, acks)
            batch = log.validate(records, now_ms=now_ms, api_version=version)
        except ApiException:
            continue
        if not batch.pending and batch.header.producer_id < 0 and not batch.policy.mirror_offsets:
            batches.append(batch)
            places.append(place)
    if not batches:
        return results
    run = lay_out(batches, log.log_end_offset, partition.leader_epoch, log.log_start_offset)
    try:
        partition.append_run(run, now_ms)
    except ApiException:
        return results
    for place, info in zip(places, run.infos, strict=True):
        results[place] = info
    return results
