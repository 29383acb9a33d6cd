"""EndTxn (key 26), versions 0-5.

Commits or aborts a transaction.

2 knows PRODUCER_FENCED; 3 is flexible; 4 (KIP-890): the client can handle TRANSACTION_ABORTABLE
5  KIP-890 part 2: the response has the epoch (and, when epochs run out, the producer id) of the next transaction
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.api.base import PARKED, Api, Outcome, RequestContext, Right
from ottla.api.transactions.errors import known_to
from ottla.broker.services import Broker
from ottla.coordinator.transaction.end import Ended, EndRequest
from ottla.coordinator.transaction.state import EPOCH_BUMP_VERSION
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation, ResourceType
from ottla.wire.messages import EndTxnResponse

if TYPE_CHECKING:
    from ottla.wire.messages import EndTxnRequest

_FENCED_FROM: Final = 2
_BUMPS_FROM: Final = 5


def handle(broker: Broker, ctx: RequestContext, request: EndTxnRequest) -> EndTxnResponse | Outcome:
    def ended(outcome: Ended) -> None:
        ctx.respond(EndTxnResponse(producer_id=outcome.producer_id, producer_epoch=outcome.producer_epoch))

    broker.transactions.end_transaction(
        EndRequest(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            request.committed,
            EPOCH_BUMP_VERSION if ctx.version >= _BUMPS_FROM else 0,
        ),
        ended,
        lambda error: ctx.respond(on_error(ctx, request, error)),
    )
    return PARKED


def on_error(ctx: RequestContext, request: EndTxnRequest, error: ApiException) -> EndTxnResponse:
    return EndTxnResponse(error_code=known_to(error.code, ctx.version, fenced_from=_FENCED_FROM))


API = Api(
    ApiKey.END_TXN,
    handle,
    on_error,
    needs=(Right(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "transactional_id"),),
)
