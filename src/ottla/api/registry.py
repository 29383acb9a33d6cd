"""Every API that a node serves, on broker listeners and on controller listeners.

Each area package lists its APIs; this module joins them. `ApiVersions` and the dispatcher both use it, so that the
advertised APIs are the served ones. The module of an API is loaded at its first request: all of them together take
longer to load than everything else that a broker does before it answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from types import ModuleType
from typing import Final, NamedTuple

from ottla.api import (
    admin,
    cluster,
    controller,
    data,
    forwarding,
    groups,
    raft,
    security,
    share,
    telemetry,
    transactions,
)
from ottla.api.base import AnyApi
from ottla.wire.apis import API_VERSIONS, ApiKey

BOTH_LISTENERS: Final = frozenset(
    {
        ApiKey.API_VERSIONS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
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
"""APIs that Kafka announces on the listeners of brokers and of controllers."""

_PRODUCE_FROM: Final = 0
"""Kafka advertises Produce from version 0 for old librdkafka clients, but answers from 3."""


class Advertised(NamedTuple):
    """One API in the response to ApiVersions."""

    key: int
    min_version: int
    max_version: int


class ServedApis(Mapping[int, AnyApi]):
    """The APIs by key that one kind of listener serves."""

    def __init__(self, modules: Mapping[int, str]) -> None:
        self._modules = dict(sorted(modules.items()))
        self._loaded: dict[int, AnyApi] = {}

    def __getitem__(self, key: int) -> AnyApi:
        found = self._loaded.get(key)
        if found is None:
            api: AnyApi = import_module(self._modules[key]).API
            found = self._loaded[key] = api
        return found

    def instead(self, api: AnyApi) -> ServedApis:
        """The same APIs with this one in the place of the one with its key."""
        changed = ServedApis(self._modules)
        changed._loaded[api.key] = api
        return changed

    def module_name(self, key: int) -> str:
        """The module that declares an API."""
        return self._modules[key]

    def __contains__(self, key: object) -> bool:
        return key in self._modules

    def __iter__(self) -> Iterator[int]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)

    def advertised(self, *, unstable: bool = False) -> Iterator[Advertised]:
        """All of them with their stable versions, without loading any; with `unstable`, also those in development."""
        for key in self._modules:
            versions = API_VERSIONS[key]
            first = _PRODUCE_FROM if key == ApiKey.PRODUCE else versions.min_version
            yield Advertised(key, first, versions.max_version if unstable else versions.max_stable_version)


def _join(*areas: ModuleType) -> dict[int, str]:
    """The module of each API by key."""
    joined: dict[int, str] = {}
    for area in areas:
        for name in area.APIS:
            key = ApiKey[name.upper()]
            if key in joined:
                raise ValueError(f"API {key.name} is declared twice")
            joined[key] = f"{area.__name__}.{name}"
    return joined


_OF_BROKERS: Final = _join(cluster, admin, data, groups, security, share, telemetry, transactions)
_OF_CONTROLLERS: Final = _join(controller, forwarding, raft)


def _with_shared(own: Mapping[int, str], others: Mapping[int, str]) -> ServedApis:
    """The APIs of one kind of listener and those that both answer. Fetch differs between the two."""
    return ServedApis({**{key: file for key, file in others.items() if key in BOTH_LISTENERS}, **own})


_BROKER: Final = _with_shared(_OF_BROKERS, _OF_CONTROLLERS)
_CONTROLLER: Final = _with_shared(_OF_CONTROLLERS, _OF_BROKERS)


def supported(*, on_controller_listener: bool) -> ServedApis:
    """The APIs that a listener serves."""
    return _CONTROLLER if on_controller_listener else _BROKER


def load_all() -> None:
    """Load the module of every API, so that no request has to wait for it. Can run in any thread."""
    for apis in (_BROKER, _CONTROLLER):
        for key in apis:
            apis[key]
