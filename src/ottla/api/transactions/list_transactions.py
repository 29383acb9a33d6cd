"""ListTransactions (key 66), versions 0-2.

Lists the transactional ids that this broker coordinates.

0 filters by state and producer id; 1 by how long a transaction has been open; 2 by a pattern of the id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.authorization import split
from ottla.api.base import BY_HANDLER, PARKED, Api, Outcome, RequestContext
from ottla.broker.services import Broker
from ottla.coordinator.transaction.listing import ListFilter
from ottla.coordinator.transaction.state import TransactionMetadata
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation, ResourceType
from ottla.wire.messages import ListTransactionsResponse

if TYPE_CHECKING:
    from ottla.wire.messages import ListTransactionsRequest


def handle(
    broker: Broker, ctx: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse | Outcome:
    wanted = ListFilter(
        state_titles=frozenset(request.state_filters),
        producer_ids=frozenset(request.producer_id_filters),
        duration_ms=request.duration_filter,
        pattern=request.transactional_id_pattern,
    )

    def found(transactions: list[TransactionMetadata]) -> None:
        transactions, _ = split(
            broker,
            ctx,
            AclOperation.DESCRIBE,
            ResourceType.TRANSACTIONAL_ID,
            transactions,
            lambda txn: txn.transactional_id,
            log_denied=False,
        )
        ctx.respond(
            ListTransactionsResponse(
                unknown_state_filters=sorted(wanted.unknown_states),
                transaction_states=[
                    ListTransactionsResponse.TransactionState(
                        transactional_id=txn.transactional_id,
                        producer_id=txn.producer_id,
                        transaction_state=txn.state.title,
                    )
                    for txn in transactions
                ],
            )
        )

    def failed(error: ApiException) -> None:
        ctx.respond(ListTransactionsResponse(error_code=error.code))

    broker.transactions.list(wanted, found, failed)
    return PARKED


API = Api(ApiKey.LIST_TRANSACTIONS, handle, needs=BY_HANDLER)
