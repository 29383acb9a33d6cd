"""Every API that this broker serves, and on which kind of listener.

The area packages declare their APIs; this joins them. `ApiVersions` and the dispatcher both read from here, so
that what is told to clients is what is served.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ottla.api import cluster, data, groups, share, topics, transactions
from ottla.api.base import Api
from ottla.wire.apis import ApiKey

CONTROLLER_LISTENER_APIS: Final = frozenset(
    {
        ApiKey.API_VERSIONS,
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.UPDATE_FEATURES,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.UNREGISTER_BROKER,
    }
)
"""APIs of clients that Kafka answers on its controller listeners as well."""


def _join(*areas: tuple[Api, ...]) -> dict[int, Api]:
    joined: dict[int, Api] = {}
    for api in (api for area in areas for api in area):
        if api.key in joined:
            raise ValueError(f"API {ApiKey(api.key).name} is declared twice")
        joined[api.key] = api
    return dict(sorted(joined.items()))


_AREAS: Final = (cluster, topics, data, groups, share, transactions)
_BROKER: Final = MappingProxyType(_join(*(area.APIS for area in _AREAS)))
_CONTROLLER: Final = MappingProxyType({k: a for k, a in _BROKER.items() if k in CONTROLLER_LISTENER_APIS})


def supported(*, on_controller_listener: bool) -> Mapping[int, Api]:
    """The APIs by key that a listener serves."""
    return _CONTROLLER if on_controller_listener else _BROKER
