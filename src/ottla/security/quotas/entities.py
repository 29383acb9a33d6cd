"""Which quota counts for a client, and who shares its measure: Kafka's eight levels, most specific first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.metadata.image import ClientQuotaEntity

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

USER, CLIENT_ID, IP = "user", "client-id", "ip"

Sharers = tuple[str, str]
"""The user and the client id that a measure is for; an empty one stands for all of them."""


class Quota(NamedTuple):
    """A limit and those whose use counts together against it."""

    limit: float
    sharers: Sharers


_ABSENT = ""
_DEFAULT = None


class QuotaLimits:
    """The limits of one quota key by user and client id."""

    __slots__ = ("_by_entity",)

    def __init__(self, quotas: Mapping[ClientQuotaEntity, Mapping[str, float]], key: str) -> None:
        self._by_entity: dict[tuple[str | None, str | None], float] = {}
        for entity, values in quotas.items():
            names = dict(entity)
            if key in values and IP not in names:
                self._by_entity[names.get(USER, _ABSENT), names.get(CLIENT_ID, _ABSENT)] = values[key]

    def __bool__(self) -> bool:
        return bool(self._by_entity)

    def find(self, user: str, client_id: str) -> Quota | None:
        """The quota of a client; None where it has no limit."""
        both, own, of_client = (user, client_id), (user, _ABSENT), (_ABSENT, client_id)
        levels: tuple[tuple[tuple[str | None, str | None], Sharers], ...] = (
            (both, both),
            ((user, _DEFAULT), both),
            (own, own),
            ((_DEFAULT, client_id), both),
            ((_DEFAULT, _DEFAULT), both),
            ((_DEFAULT, _ABSENT), own),
            (of_client, of_client),
            ((_ABSENT, _DEFAULT), of_client),
        )
        for entity, sharers in levels:
            limit = self._by_entity.get(entity)
            if limit is not None:
                return Quota(limit, sharers)
        return None


def ip_rates(quotas: Mapping[ClientQuotaEntity, Mapping[str, float]]) -> dict[str | None, float]:
    """The connection rates by address or host name; None is the default."""
    return {
        dict(entity)[IP]: values[CONNECTION_CREATION_RATE]
        for entity, values in quotas.items()
        if IP in dict(entity) and CONNECTION_CREATION_RATE in values
    }
