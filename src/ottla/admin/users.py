"""Users and clients: SCRAM credentials, quotas and delegation tokens."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.admin.errors import raise_for
from ottla.credentials.scram_keys import DEFAULT_ITERATIONS
from ottla.errors import ApiException, ErrorCode
from ottla.wire.enums import ScramMechanism
from ottla.wire.messages import (
    AlterClientQuotasRequest,
    AlterUserScramCredentialsRequest,
    CreateDelegationTokenRequest,
    DescribeClientQuotasRequest,
    DescribeDelegationTokenRequest,
    DescribeUserScramCredentialsRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster
    from ottla.wire.messages import (
        AlterUserScramCredentialsResponse,
        CreateDelegationTokenResponse,
        DescribeDelegationTokenResponse,
        DescribeUserScramCredentialsResponse,
    )

# -- SCRAM credentials

DEFAULT_SCRAM_ITERATIONS: Final = DEFAULT_ITERATIONS


class NewCredential(NamedTuple):
    """A credential to set. The password itself never leaves this process."""

    user: str
    mechanism: ScramMechanism
    iterations: int
    salt: bytes
    salted_password: bytes

    @classmethod
    def of(
        cls, user: str, mechanism: ScramMechanism, password: bytes, iterations: int, salt: bytes
    ) -> NewCredential:
        salted = hashlib.pbkdf2_hmac(mechanism.hash_name, password, salt, iterations)
        return cls(user, mechanism, iterations, salt, salted)


def alter_scram_credentials(
    cluster: Cluster,
    *,
    set_: Iterable[NewCredential] = (),
    deleted: Iterable[tuple[str, ScramMechanism]] = (),
) -> AlterUserScramCredentialsResponse:
    """Set and delete credentials of users; the response has an error code for each user."""
    kind = AlterUserScramCredentialsRequest
    return cluster.ask(
        kind(
            deletions=[
                kind.ScramCredentialDeletion(name=user, mechanism=mechanism) for user, mechanism in deleted
            ],
            upsertions=[
                kind.ScramCredentialUpsertion(
                    name=each.user,
                    mechanism=each.mechanism,
                    iterations=each.iterations,
                    salt=each.salt,
                    salted_password=each.salted_password,
                )
                for each in set_
            ],
        )
    )


def describe_scram_credentials(
    cluster: Cluster, users: Iterable[str] | None = None
) -> DescribeUserScramCredentialsResponse:
    """Mechanisms and iterations of some users, or of all for None; the response has an error code for each."""
    kind = DescribeUserScramCredentialsRequest
    wanted = None if users is None else [kind.UserName(name=user) for user in users]
    response = cluster.ask(kind(users=wanted))
    raise_for(response.error_code, response.error_message)
    return response


# -- quotas

Entity = Mapping[str, str | None]
"""Names by entity type (`user`, `client-id`, `ip`); None stands for the default of the type."""
_EXACT, _DEFAULT, _ANY = 0, 1, 2


class Quotas(NamedTuple):
    """The quotas of an entity."""

    entity: dict[str, str | None]
    values: dict[str, float]


def describe_quotas(cluster: Cluster, entity: Entity, any_of: Iterable[str] = ()) -> list[Quotas]:
    """The quotas of exactly this entity; of all entities that also have the types of `any_of`."""
    kind = DescribeClientQuotasRequest
    components = [
        kind.ComponentData(entity_type=name, match_type=_DEFAULT if match is None else _EXACT, match=match)
        for name, match in entity.items()
    ]
    components += [kind.ComponentData(entity_type=name, match_type=_ANY, match=None) for name in any_of]
    response = cluster.ask(kind(components=components, strict=True))
    raise_for(response.error_code, response.error_message)
    return [
        Quotas(
            {part.entity_type: part.entity_name for part in entry.entity},
            {each.key: each.value for each in entry.values},
        )
        for entry in response.entries or ()
    ]


def alter_quotas(
    cluster: Cluster, entity: Entity, added: Mapping[str, float], deleted: Iterable[str] = ()
) -> None:
    """Set and remove quotas of one entity; ApiException if it is refused."""
    kind = AlterClientQuotasRequest
    parts = [kind.EntityData(entity_type=name, entity_name=value) for name, value in entity.items()]
    changes = [kind.OpData(key=key, value=value, remove=False) for key, value in added.items()]
    changes += [kind.OpData(key=key, value=0.0, remove=True) for key in deleted]
    response = cluster.ask(kind(entries=[kind.EntryData(entity=parts, ops=changes)]))
    for entry in response.entries:
        raise_for(entry.error_code, entry.error_message)


# -- delegation tokens


class Principal(NamedTuple):
    """A user: a type, nearly always User, and a name."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


def _check_tokens(cluster: Cluster, api_key: int) -> None:
    if not cluster.supports(api_key):
        raise ApiException(
            ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "Delegation Token feature is not enabled."
        )


def create_token(
    cluster: Cluster, max_lifetime_ms: int, renewers: Iterable[Principal] = (), owner: Principal | None = None
) -> CreateDelegationTokenResponse:
    """Create a token, for this client's user or for another owner."""
    kind = CreateDelegationTokenRequest
    _check_tokens(cluster, kind.API_KEY)
    request = kind(
        renewers=[
            kind.CreatableRenewers(principal_type=who.kind, principal_name=who.name) for who in renewers
        ],
        max_lifetime_ms=max_lifetime_ms,
    )
    if owner is not None:
        request.owner_principal_type, request.owner_principal_name = owner
    response = cluster.ask(request)
    raise_for(response.error_code)
    return response


def renew_token(cluster: Cluster, hmac: bytes, period_ms: int) -> int:
    """Extend a token's life; its new expiry in milliseconds since the epoch."""
    _check_tokens(cluster, RenewDelegationTokenRequest.API_KEY)
    response = cluster.ask(RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms))
    raise_for(response.error_code)
    return response.expiry_timestamp_ms


def expire_token(cluster: Cluster, hmac: bytes, period_ms: int) -> int:
    """Shorten a token's life; its new expiry in milliseconds since the epoch."""
    _check_tokens(cluster, ExpireDelegationTokenRequest.API_KEY)
    response = cluster.ask(ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms))
    raise_for(response.error_code)
    return response.expiry_timestamp_ms


def describe_tokens(cluster: Cluster, owners: Iterable[Principal] = ()) -> DescribeDelegationTokenResponse:
    """The tokens of some owners; of this client's user if none is given."""
    kind = DescribeDelegationTokenRequest
    _check_tokens(cluster, kind.API_KEY)
    wanted = [
        kind.DescribeDelegationTokenOwner(principal_type=who.kind, principal_name=who.name) for who in owners
    ]
    response = cluster.ask(kind(owners=wanted or None))
    raise_for(response.error_code)
    return response
