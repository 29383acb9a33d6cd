"""A Produce request for partitions whose files do not exist yet: it waits for them, and keeps its place.

The files are created in a thread, because a busy disk takes its time. Later requests for the same partitions wait too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.api.base import NO_RESPONSE, PARKED, UNEXPECTED, Outcome, RequestContext
from ottla.api.data.produce_transactional import keep_records
from ottla.broker.services import Broker
from ottla.errors import ApiException

if TYPE_CHECKING:
    from ottla.replica.partition import Partition
    from ottla.wire.messages import ProduceRequest, ProduceResponse

_logger = logging.getLogger(__name__)

_LEAST_BYTES: Final = 1024
"""What a waiting request counts without any record."""

Append = Callable[[], "ProduceResponse | Outcome"]
OnError = Callable[[RequestContext, "ProduceRequest", ApiException], "ProduceResponse"]


def must_wait(broker: Broker, request: ProduceRequest, *, by_id: bool) -> bool:
    """Whether some records are for a partition that cannot take them yet."""
    takes_records = broker.replicas.takes_records
    for topic in request.topic_data:
        key = topic.topic_id if by_id else topic.name
        for data in topic.partition_data:
            if not takes_records(key, data.index):
                return True
    return False


def wait_for_logs(
    broker: Broker,
    ctx: RequestContext,
    request: ProduceRequest,
    append: Append,
    on_error: OnError,
    *,
    by_id: bool,
) -> ProduceResponse | Outcome:
    """Append when the files exist."""
    partitions = _partitions(broker, request, by_id=by_id)
    unready = [partition for partition in partitions if not partition.ready and partition.is_leader]
    size = _LEAST_BYTES + keep_records(request)
    for partition in partitions:
        partition.requests_awaiting_log += 1

    def proceed() -> None:
        for partition in partitions:
            partition.requests_awaiting_log -= 1
        response = _response(ctx, request, append, on_error)
        if not isinstance(response, Outcome):
            ctx.respond(response)

    broker.replicas.make_ready(unready, size, proceed)
    return PARKED if request.acks else NO_RESPONSE


def _response(
    ctx: RequestContext, request: ProduceRequest, append: Append, on_error: OnError
) -> ProduceResponse | Outcome:
    try:
        return append()
    except ApiException as error:
        failure = error
    except Exception:
        # An error in one request must not stop the broker.
        _logger.exception("Unexpected error in a Produce request")
        failure = UNEXPECTED
    if request.acks:
        return on_error(ctx, request, failure)
    ctx.abort()
    return NO_RESPONSE


def _partitions(broker: Broker, request: ProduceRequest, *, by_id: bool) -> list[Partition]:
    """The hosted partitions of the request. The append reports the others."""
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
