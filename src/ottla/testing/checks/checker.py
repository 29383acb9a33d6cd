"""Finds anomalies in a history, like Jepsen's workload for Kafka and Elle.

| anomaly | |
|---|---|
| inconsistent offsets | two values were seen at one offset |
| duplicate | one value was seen at two offsets |
| foreign record | a record that nobody sent |
| lost write | acknowledged, below something that was read, and never read; or gone in the end |
| unseen | acknowledged, and not read by the last readers of all |
| read and gone | a reader was shown a record that is not there in the end |
| read beyond the limit | a reader was shown a record at or above the high watermark or last stable offset |
| poll skip | a consumer went past a record that it should have had |
| non-monotonic poll | a consumer got an offset at or before one that it had already |
| non-monotonic send | a later record of one producer stands before an earlier one |
| aborted read | a reader of committed records got one of an aborted transaction |
| precommitted read | ... or one whose commit had not been asked for yet |
| torn transaction | some records of a transaction can be read, others cannot |
| copied twice, not copied, copied ahead | copies that do not fit the group's offset |
| copies out of order, copy of nothing | ... or not the records that were copied |
| write cycle (G0), read cycle (G1c), lost update (G-single), anti-dependency cycle (G2) | see `dependencies` |
| group went back, group skip, group repeat | a group's offsets, and what its members were given |
| lost from a queue, acknowledged twice, delivered after its acknowledgement | the records of a share group |
| not mirrored, mirrored twice, mirrored out of order, mirrored and foreign | the records of a mirror's target |
| unequal position | a group that moves to a mirror's target goes on with another record |
| not in a table, twice in a table, foreign in a table | the rows that a sink connector wrote |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from ottla.testing.checks.copies import check_mirrors, check_tables
from ottla.testing.checks.dependencies import check_cycles
from ottla.testing.checks.groups import check_commits, check_group_reads
from ottla.testing.checks.history import History
from ottla.testing.checks.queues import check_deliveries
from ottla.testing.checks.records import (
    check_lost,
    check_offsets,
    check_order,
    check_polls,
    check_read_stays,
)
from ottla.testing.checks.seen import Anomaly, Seen, gather
from ottla.testing.checks.transactions import check_copies, check_torn, check_uncommitted_reads

_CHECKS: Final[tuple[Callable[[History, Seen], Iterator[Anomaly]], ...]] = (
    check_offsets,
    check_lost,
    check_read_stays,
    check_polls,
    check_order,
    check_uncommitted_reads,
    check_torn,
    check_copies,
    check_cycles,
    check_commits,
    check_group_reads,
    check_deliveries,
    check_mirrors,
    check_tables,
)


def check(history: History) -> list[Anomaly]:
    """Return all anomalies of a history."""
    seen = gather(history)
    return [anomaly for each in _CHECKS for anomaly in each(history, seen)]


def excused(history: History) -> int:
    """Return the number of duplicates that their producer caused itself."""
    seen = gather(history)
    return sum(len(places) > 1 and seen.excused(value) for value, places in seen.places.items())
