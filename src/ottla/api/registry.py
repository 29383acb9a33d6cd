"""Every API that this broker serves, and on which kind of listener.

The area packages declare their APIs; this joins them. `ApiVersions` and the dispatcher both read from here, so
that what is told to clients is what is served.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ottla.api import cluster, controller, data, forwarding, groups, raft, share, topics, transactions
from ottla.api.base import Api
from ottla.wire.apis import ApiKey

BOTH_LISTENERS: Final = frozenset(
    {
        ApiKey.API_VERSIONS,
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.UPDATE_FEATURES,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
    }
)
"""APIs that Kafka answers on the listeners of brokers and of controllers alike."""


def _join(*areas: tuple[Api, ...]) -> dict[int, Api]:
    joined: dict[int, Api] = {}
    for api in (api for area in areas for api in area):
        if api.key in joined:
            raise ValueError(f"API {ApiKey(api.key).name} is declared twice")
        joined[api.key] = api
    return dict(sorted(joined.items()))


_OF_BROKERS: Final = _join(*(area.APIS for area in (cluster, topics, data, groups, share, transactions)))
_OF_CONTROLLERS: Final = _join(*(area.APIS for area in (controller, forwarding, raft)))


def _with_shared(own: Mapping[int, Api], others: Mapping[int, Api]) -> Mapping[int, Api]:
    """What one kind of listener has of its own (Fetch is there on both, but not the same), and what both answer."""
    shared = {key: api for key, api in others.items() if key in BOTH_LISTENERS}
    return MappingProxyType(dict(sorted({**shared, **own}.items())))


_BROKER: Final = _with_shared(_OF_BROKERS, _OF_CONTROLLERS)
_CONTROLLER: Final = _with_shared(_OF_CONTROLLERS, _OF_BROKERS)


def supported(*, on_controller_listener: bool) -> Mapping[int, Api]:
    """The APIs by key that a listener serves."""
    return _CONTROLLER if on_controller_listener else _BROKER
