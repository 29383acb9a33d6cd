"""The promises about queues (share groups): no record is lost, none is given out or acknowledged again."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.testing.checks.history import History, Outcome
from ottla.testing.checks.seen import Anomaly, Seen


def check_deliveries(history: History, seen: Seen) -> Iterator[Anomaly]:
    """An acknowledged record of a queue is not delivered again, and in the end all records are acknowledged.

    A replaced leader that does not know it yet misses the acknowledgements to its successor. It may deliver records
    again, as Kafka's does, but it refuses the acknowledgements of its consumers.
    """
    accepted: dict[tuple[str, int], tuple[float, int]] = {}
    done: set[tuple[str, int]] = set()
    for delivery in history.deliveries:
        key = (delivery.partition, delivery.offset)
        if delivery.accepted is not None or 0 < history.delivery_limit <= delivery.count:
            done.add(key)
        if delivery.accepted is Outcome.OK:
            # A late acknowledgement also succeeds once all records up to there are complete, as in Kafka.
            acknowledged = (delivery.ended, delivery.leader_epoch)
            accepted[key] = min(acknowledged, accepted.get(key, acknowledged))
    for delivery in history.deliveries:
        ended, epoch = accepted.get((delivery.partition, delivery.offset), (delivery.began, 0))
        if ended < delivery.began and epoch <= delivery.leader_epoch:
            again = delivery.accepted is Outcome.OK
            yield Anomaly(
                "acknowledged twice" if again else "delivered after its acknowledgement",
                f"{delivery.offset} of {delivery.partition} was given out after it was acknowledged",
            )
    yield from _never_given(history, seen, done)


def _never_given(history: History, seen: Seen, done: set[tuple[str, int]]) -> Iterator[Anomaly]:
    # Records of unknown outcome may have arrived after the consumers had ended.
    visible = seen.visible(committed=False)
    for partition in sorted({delivery.partition for delivery in history.deliveries}):
        missing = [
            offset
            for offset, value in sorted(visible.get(partition, {}).items())
            if (partition, offset) not in done and value in seen.sends and seen.promised(seen.sends[value])
        ]
        if missing:
            yield Anomaly(
                "lost from a queue",
                f"nobody was given {missing[0]} of {partition} to acknowledge ({len(missing)} in all)",
            )
