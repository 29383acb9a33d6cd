"""A Produce request for many partitions whose logs are still being made: it waits for them, and keeps its place.

A log takes most of a millisecond to be made; making hundreds of them at once would hold up everybody else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.api.base import NO_RESPONSE, PARKED, Answer, Message, RequestContext
from ottla.api.broker import Broker
from ottla.errors import KafkaError

if TYPE_CHECKING:
    from ottla.replica.partition import Partition

NEW_LOGS_AT_ONCE: Final = 4

Append = Callable[[], Answer]


def wait_for_logs(
    broker: Broker, ctx: RequestContext, request: Message, append: Append, *, by_id: bool
) -> Answer | None:
    """Append later, when the logs are there. None where there is nothing to wait for."""
    partitions = _partitions(broker, request, by_id=by_id)
    missing = sum(1 for partition in partitions if partition.log is None)
    if missing <= NEW_LOGS_AT_ONCE and not any(partition.early for partition in partitions):
        return None
    for topic in request.topic_data:
        for data in topic.partition_data:
            # The request's buffer goes when this returns.
            data.records = None if data.records is None else bytes(data.records)
    for partition in partitions:
        partition.early += 1

    def go_on() -> None:
        for partition in partitions:
            partition.early -= 1
        answer = append()
        if answer is not PARKED and answer is not NO_RESPONSE:
            ctx.respond(answer)

    broker.replicas.after_new_logs(go_on)
    return PARKED if request.acks else NO_RESPONSE


def _partitions(broker: Broker, request: Message, *, by_id: bool) -> list[Partition]:
    """Those that are here: the append finds out about the others."""
    found = []
    for topic in request.topic_data:
        for data in topic.partition_data:
            try:
                found.append(broker.replicas.find((topic.topic_id if by_id else topic.name, data.index)))
            except KafkaError:
                continue
    return found
