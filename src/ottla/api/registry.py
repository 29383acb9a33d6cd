"""Every API that this broker serves, and on which kind of listener.

The area packages name their APIs; this joins them. `ApiVersions` and the dispatcher both read from here, so that
what is told to clients is what is served. An API's file is loaded when it is first asked for: all of them together
take longer than everything else that a broker does before it answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from types import ModuleType
from typing import Final, NamedTuple

from ottla.api import admin, cluster, controller, data, forwarding, groups, raft, share, transactions
from ottla.api.base import AnyApi
from ottla.wire.apis import API_VERSIONS, ApiKey

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


_PRODUCE_FROM: Final = 0
"""Kafka tells of Produce from here for the sake of old librdkafka clients, and answers from 3."""


class Advertised(NamedTuple):
    """What ApiVersions tells of an API."""

    key: int
    min_version: int
    max_version: int


class ServedApis(Mapping[int, AnyApi]):
    """The APIs by key that one kind of listener serves."""

    def __init__(self, files: Mapping[int, str]) -> None:
        self._files = dict(sorted(files.items()))
        self._loaded: dict[int, AnyApi] = {}

    def __getitem__(self, key: int) -> AnyApi:
        found = self._loaded.get(key)
        if found is None:
            api: AnyApi = import_module(self._files[key]).API
            found = self._loaded[key] = api
        return found

    def module_name(self, key: int) -> str:
        """The module that declares an API."""
        return self._files[key]

    def __contains__(self, key: object) -> bool:
        return key in self._files

    def __iter__(self) -> Iterator[int]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def advertised(self) -> Iterator[Advertised]:
        """All of them, without loading any: every version is served that Kafka calls stable."""
        for key in self._files:
            versions = API_VERSIONS[key]
            first = _PRODUCE_FROM if key == ApiKey.PRODUCE else versions.min_version
            yield Advertised(key, first, versions.max_stable_version)


def _join(*areas: ModuleType) -> dict[int, str]:
    """The file of each API."""
    joined: dict[int, str] = {}
    for area in areas:
        for name in area.APIS:
            key = ApiKey[name.upper()]
            if key in joined:
                raise ValueError(f"API {key.name} is declared twice")
            joined[key] = f"{area.__name__}.{name}"
    return joined


_OF_BROKERS: Final = _join(cluster, admin, data, groups, share, transactions)
_OF_CONTROLLERS: Final = _join(controller, forwarding, raft)


def _with_shared(own: Mapping[int, str], others: Mapping[int, str]) -> ServedApis:
    """What one kind of listener has of its own (Fetch is there on both, but not the same), and what both answer."""
    return ServedApis({**{key: file for key, file in others.items() if key in BOTH_LISTENERS}, **own})


_BROKER: Final = _with_shared(_OF_BROKERS, _OF_CONTROLLERS)
_CONTROLLER: Final = _with_shared(_OF_CONTROLLERS, _OF_BROKERS)


def supported(*, on_controller_listener: bool) -> ServedApis:
    """What a listener serves."""
    return _CONTROLLER if on_controller_listener else _BROKER


def load_all() -> None:
    """Load every API's file, so that no request has to wait for it. From any thread."""
    for apis in (_BROKER, _CONTROLLER):
        for key in apis:
            apis[key]
