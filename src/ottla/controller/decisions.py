"""The table of requests that the controller decides by a pure function of its state.

An entry has the function that returns the records to write and the response. Requests that also change what only the
running controller knows (sessions of brokers, timers) are methods of `Controller`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

import msgspec

from ottla.controller import (
    alter_partition,
    brokers,
    directories,
    elections,
    producer_ids,
    reassignments,
    topics,
)
from ottla.controller.result import ControllerResult
from ottla.wire.apis import ApiKey
from ottla.wire.classes import WireRequest, WireResponse

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.controller.settings import Settings
    from ottla.metadata.image import MetadataImage
    from ottla.wire import messages

Req = TypeVar("Req", bound=WireRequest[WireResponse])
Resp = TypeVar("Resp", bound=WireResponse)


class Requester(msgspec.Struct, frozen=True):
    """Who sends a request."""

    principal: str = "User:ANONYMOUS"
    charge: topics.Charge = topics.without_quota
    """Counts created and deleted partitions against the client's quota."""


NO_CLIENT: Final = Requester()
"""The requester of requests that come from no client."""


class Inputs(msgspec.Struct, frozen=True):
    """Everything besides the request that a decision may depend on."""

    image: MetadataImage
    """Everything appended so far, committed or not."""
    settings: Settings
    clock: Clock
    version: int
    """The version of the request."""
    requester: Requester
    """The client, as its broker knows it."""


class Decision(msgspec.Struct, Generic[Req, Resp], frozen=True):
    """How the controller answers a request."""

    decide: Callable[[Inputs, Req], ControllerResult[Resp]]
    timeout_ms: Callable[[Req], int] | None = None
    """How long the client waits for the commit; None for requests without a timeout."""


class _TimedRequest(Protocol):
    timeout_ms: int


def _timeout(request: _TimedRequest) -> int:
    return request.timeout_ms


Decide = Callable[[Inputs, Req], ControllerResult[Resp]]


def _by_image(function: Callable[[MetadataImage, Req], ControllerResult[Resp]]) -> Decide[Req, Resp]:
    return lambda inputs, request: function(inputs.image, request)


def _by_settings(
    function: Callable[[MetadataImage, Req, Settings], ControllerResult[Resp]],
) -> Decide[Req, Resp]:
    return lambda inputs, request: function(inputs.image, request, inputs.settings)


def _by_version(
    function: Callable[[MetadataImage, Req, Settings, int], ControllerResult[Resp]],
) -> Decide[Req, Resp]:
    return lambda inputs, request: function(inputs.image, request, inputs.settings, inputs.version)


def _create_topics(
    inputs: Inputs, request: messages.CreateTopicsRequest
) -> ControllerResult[messages.CreateTopicsResponse]:
    return topics.create_topics(inputs.image, request, inputs.settings, inputs.clock, inputs.requester.charge)


def _create_partitions(
    inputs: Inputs, request: messages.CreatePartitionsRequest
) -> ControllerResult[messages.CreatePartitionsResponse]:
    return topics.create_partitions(inputs.image, request, inputs.clock, inputs.requester.charge)


def _delete_topics(
    inputs: Inputs, request: messages.DeleteTopicsRequest
) -> ControllerResult[messages.DeleteTopicsResponse]:
    return topics.delete_topics(
        inputs.image, request, inputs.settings, inputs.version, inputs.requester.charge
    )


def _create_acls(
    inputs: Inputs, request: messages.CreateAclsRequest
) -> ControllerResult[messages.CreateAclsResponse]:
    # Security is loaded where it is used, so that other nodes start faster.
    from ottla.config.security_profile import is_strict
    from ottla.controller.acls import create_acls

    strict = is_strict(inputs.settings.static)
    return create_acls(inputs.image, request, inputs.clock.random_uuid, strict=strict)


def _delete_acls(
    inputs: Inputs, request: messages.DeleteAclsRequest
) -> ControllerResult[messages.DeleteAclsResponse]:
    from ottla.controller.acls import delete_acls

    return delete_acls(inputs.image, request)


def _alter_scram(
    inputs: Inputs, request: messages.AlterUserScramCredentialsRequest
) -> ControllerResult[messages.AlterUserScramCredentialsResponse]:
    from ottla.controller.scram import alter_user_scram_credentials

    return alter_user_scram_credentials(inputs.image, request)


def _create_token(
    inputs: Inputs, request: messages.CreateDelegationTokenRequest
) -> ControllerResult[messages.CreateDelegationTokenResponse]:
    from ottla.controller.tokens import create_token

    who, clock = inputs.requester.principal, inputs.clock
    return create_token(
        inputs.image, request, inputs.settings, who, clock.now_ms(), clock.random_uuid(), inputs.version
    )


def _renew_token(
    inputs: Inputs, request: messages.RenewDelegationTokenRequest
) -> ControllerResult[messages.RenewDelegationTokenResponse]:
    from ottla.controller.tokens import renew_token

    who, now_ms = inputs.requester.principal, inputs.clock.now_ms()
    return renew_token(inputs.image, request, inputs.settings, who, now_ms)


def _expire_token(
    inputs: Inputs, request: messages.ExpireDelegationTokenRequest
) -> ControllerResult[messages.ExpireDelegationTokenResponse]:
    from ottla.controller.tokens import expire_token

    who, now_ms = inputs.requester.principal, inputs.clock.now_ms()
    return expire_token(inputs.image, request, inputs.settings, who, now_ms)


def _alter_quotas(
    inputs: Inputs, request: messages.AlterClientQuotasRequest
) -> ControllerResult[messages.AlterClientQuotasResponse]:
    from ottla.controller.client_quotas import alter_client_quotas

    return alter_client_quotas(inputs.image, request)


DECISIONS: Final[dict[int, Decision[Any, Any]]] = {
    # Requests of clients
    ApiKey.CREATE_TOPICS: Decision(_create_topics, _timeout),
    ApiKey.CREATE_PARTITIONS: Decision(_create_partitions, _timeout),
    ApiKey.DELETE_TOPICS: Decision(_delete_topics, _timeout),
    ApiKey.ELECT_LEADERS: Decision(_by_version(elections.elect_leaders), _timeout),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Decision(
        _by_settings(reassignments.alter_partition_reassignments), _timeout
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Decision(_by_image(reassignments.list_partition_reassignments)),
    ApiKey.UNREGISTER_BROKER: Decision(_by_settings(brokers.unregister_broker)),
    ApiKey.CREATE_ACLS: Decision(_create_acls),
    ApiKey.DELETE_ACLS: Decision(_delete_acls),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Decision(_alter_scram),
    ApiKey.ALTER_CLIENT_QUOTAS: Decision(_alter_quotas),
    ApiKey.CREATE_DELEGATION_TOKEN: Decision(_create_token),
    ApiKey.RENEW_DELEGATION_TOKEN: Decision(_renew_token),
    ApiKey.EXPIRE_DELEGATION_TOKEN: Decision(_expire_token),
    # Requests of brokers
    ApiKey.ALTER_PARTITION: Decision(_by_version(alter_partition.alter_partition)),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: Decision(_by_settings(directories.assign_replicas_to_dirs)),
    ApiKey.ALLOCATE_PRODUCER_IDS: Decision(_by_image(producer_ids.allocate_producer_ids)),
}
