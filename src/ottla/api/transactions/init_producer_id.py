"""InitProducerId (key 22), versions 0-5.

Gives out a producer id and epoch, for an idempotent producer or a transactional id.

0, 1  the same
2     flexible
3     the producer sends the id and epoch that it has
4     PRODUCER_FENCED for fenced producers
5     KIP-890: the client can handle TRANSACTION_ABORTABLE
6     KIP-939, only with `unstable.api.versions.enable`: two-phase commit, if `transaction.two.phase.commit.enable`
      allows it; prepared transactions are not kept
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.api.authorization import cluster_allowed, refusal, require, some_allowed
from ottla.api.base import BY_HANDLER, PARKED, Api, Outcome, RequestContext
from ottla.api.transactions.errors import known_to
from ottla.broker.services import Broker
from ottla.coordinator.transaction.init import InitRequest
from ottla.coordinator.transaction.state import NO_EPOCH, NO_PRODUCER_ID, TransactionMetadata
from ottla.errors import ApiException, ErrorCode
from ottla.ids import ProducerId
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation, ResourceType
from ottla.wire.messages import InitProducerIdResponse

if TYPE_CHECKING:
    from ottla.wire.messages import InitProducerIdRequest

_FENCED_FROM: Final = 4


def handle(
    broker: Broker, ctx: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse | Outcome:
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
        raise ApiException(
            ErrorCode.INVALID_REQUEST, "A producer id needs its epoch, and an epoch its producer id"
        )
    _check_rights(broker, ctx, request)

    def failed(error: ApiException) -> None:
        ctx.respond(on_error(ctx, request, error))

    def given(producer_id: ProducerId, error: ApiException | None) -> None:
        if error is not None:
            failed(error)
        else:
            ctx.respond(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))

    def initialized(txn: TransactionMetadata) -> None:
        ctx.respond(InitProducerIdResponse(producer_id=txn.producer_id, producer_epoch=txn.producer_epoch))

    if request.transactional_id is None:
        broker.producer_ids.next_id(given)
    else:
        broker.transactions.init_producer_id(
            InitRequest(
                request.transactional_id,
                request.transaction_timeout_ms,
                request.producer_id,
                request.producer_epoch,
            ),
            two_phase=request.enable2_pc,
            keep_prepared=request.keep_prepared_txn,
            done=initialized,
            failed=failed,
        )
    return PARKED


def _check_rights(broker: Broker, ctx: RequestContext, request: InitProducerIdRequest) -> None:
    if request.transactional_id is not None:
        kind = ResourceType.TRANSACTIONAL_ID
        require(broker, ctx, AclOperation.WRITE, kind, request.transactional_id)
        if request.enable2_pc:
            require(broker, ctx, AclOperation.TWO_PHASE_COMMIT, kind, request.transactional_id)
    elif not (
        cluster_allowed(broker, ctx, AclOperation.IDEMPOTENT_WRITE, log_denied=False)
        or some_allowed(broker, ctx, AclOperation.WRITE, ResourceType.TOPIC)
    ):
        # An idempotent producer needs a topic that it may write to.
        raise refusal(ResourceType.CLUSTER)


def on_error(
    ctx: RequestContext, request: InitProducerIdRequest, error: ApiException
) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=known_to(error.code, ctx.version, fenced_from=_FENCED_FROM),
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_EPOCH,
    )


API = Api(ApiKey.INIT_PRODUCER_ID, handle, on_error, needs=BY_HANDLER)
