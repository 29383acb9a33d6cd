"""A Produce request for partitions whose files are still to be made: it waits for them, and keeps its place.

They are made in a thread, for a disk that is busy takes its time. Requests after it for the same partitions wait too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.api.base import NO_RESPONSE, PARKED, UNEXPECTED, Message, Outcome, RequestContext
from ottla.broker.services import Broker
from ottla.errors import ApiException

if TYPE_CHECKING:
    from ottla.replica.partition import Partition

_logger = logging.getLogger(__name__)

_LEAST_BYTES: Final = 1024
"""What a request takes that waits without a record: it must count, too."""

Append = Callable[[], Message | Outcome]
OnError = Callable[[RequestContext, Message, ApiException], Message]


def must_wait(broker: Broker, request: Message, *, by_id: bool) -> bool:
    """Whether some of its records go to a partition that cannot take them yet."""
    takes_records = broker.replicas.takes_records
    for topic in request.topic_data:
        key = topic.topic_id if by_id else topic.name
        for data in topic.partition_data:
            if not takes_records(key, data.index):
                return True
    return False


def wait_for_logs(
    broker: Broker, ctx: RequestContext, request: Message, append: Append, on_error: OnError, *, by_id: bool
) -> Message | Outcome:
    """Append later, when the files are there."""
    partitions = _partitions(broker, request, by_id=by_id)
    unready = [partition for partition in partitions if not partition.ready and partition.is_leader]
    size = _LEAST_BYTES
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                # The request's buffer goes when this returns.
                data.records = bytes(data.records)
                size += len(data.records)
    for partition in partitions:
        partition.early += 1

    def go_on() -> None:
        for partition in partitions:
            partition.early -= 1
        answer = _answer(ctx, request, append, on_error)
        if answer is not PARKED and answer is not NO_RESPONSE:
            ctx.respond(answer)

    broker.replicas.make_ready(unready, size, go_on)
    return PARKED if request.acks else NO_RESPONSE


def _answer(ctx: RequestContext, request: Message, append: Append, on_error: OnError) -> Message | Outcome:
    try:
        return append()
    except ApiException as error:
        failure = error
    except Exception:
        # Whatever goes wrong in one request, the broker goes on.
        _logger.exception("Unexpected error in a Produce request")
        failure = UNEXPECTED
    if request.acks:
        return on_error(ctx, request, failure)
    ctx.abort()
    return NO_RESPONSE


def _partitions(broker: Broker, request: Message, *, by_id: bool) -> list[Partition]:
    """Those that are here: the append finds out about the others."""
    found = []
    find = broker.replicas.find
    for topic in request.topic_data:
        key = topic.topic_id if by_id else topic.name
        for data in topic.partition_data:
            try:
                found.append(find((key, data.index)))
            except ApiException:
                continue
    return found
