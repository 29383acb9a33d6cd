"""Settings of topics, brokers, groups and clients as the cluster tells them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

from ottla.cli.tools.failures import raise_for
from ottla.errors import ErrorCode
from ottla.wire.apis import ApiKey
from ottla.wire.messages import (
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)

if TYPE_CHECKING:
    from ottla.cli.tools.cluster_client import Cluster

_SET: Final = 0
_DELETE: Final = 1


class ResourceType(IntEnum):
    """What settings belong to: Kafka's config resource types."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Source(IntEnum):
    """Where a value comes from, as DescribeConfigs tells it."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting with the values that stand behind it."""

    name: str
    value: str | None
    source: Source
    is_sensitive: bool
    is_read_only: bool
    synonyms: tuple[tuple[str, str | None, Source], ...]

    @property
    def is_default(self) -> bool:
        return self.source == Source.DEFAULT_CONFIG


def describe_configs(
    cluster: Cluster, resources: Sequence[tuple[ResourceType, str]], *, synonyms: bool = False
) -> dict[tuple[ResourceType, str], list[ConfigEntry]]:
    """The settings of each resource; a broker is asked itself about its own."""
    found: dict[tuple[ResourceType, str], list[ConfigEntry]] = {}
    by_node: dict[int | None, list[tuple[ResourceType, str]]] = {}
    for kind, name in resources:
        own = kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and name != ""
        by_node.setdefault(int(name) if own else None, []).append((kind, name))
    for node, wanted in by_node.items():
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsRequest.DescribeConfigsResource(
                    resource_type=int(kind), resource_name=name, configuration_keys=None
                )
                for kind, name in wanted
            ],
            include_synonyms=synonyms,
        )
        for result in cluster.ask(request, node).results:
            raise_for(result.error_code, result.error_message, result.resource_name)
            key = ResourceType(result.resource_type), result.resource_name
            found[key] = [_entry(each) for each in result.configs]
    return found


def alter_configs(
    cluster: Cluster,
    resource: ResourceType,
    name: str,
    *,
    added: Mapping[str, str] | None = None,
    deleted: Iterable[str] = (),
) -> None:
    """Set and delete settings of one resource; a broker that is there is asked itself. ApiException if refused."""
    kind = IncrementalAlterConfigsRequest
    entries = [kind.AlterableConfig(name=key, config_operation=_DELETE, value="") for key in deleted]
    entries += [
        kind.AlterableConfig(name=key, config_operation=_SET, value=value)
        for key, value in (added or {}).items()
    ]
    node = None
    if resource in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and name:
        node = int(name) if int(name) in cluster.nodes() else None
    wanted = kind.AlterConfigsResource(resource_type=int(resource), resource_name=name, configs=entries)
    for result in cluster.ask(kind(resources=[wanted]), node).responses:
        raise_for(result.error_code, result.error_message)


def listed_resources(cluster: Cluster, kind: ResourceType) -> list[str]:
    """The resources of a type that have settings of their own; none where the cluster does not tell."""
    version = cluster.first().version_for(ApiKey.LIST_CONFIG_RESOURCES)
    if version is None or (version == 0 and kind != ResourceType.CLIENT_METRICS):
        return []
    request = ListConfigResourcesRequest(resource_types=[int(kind)] if version >= 1 else [])
    answer = cluster.ask(request)
    if answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return []
    raise_for(answer.error_code)
    return [each.resource_name for each in answer.config_resources if each.resource_type == kind]


def _entry(told: Any) -> ConfigEntry:
    return ConfigEntry(
        told.name,
        told.value,
        _source(told.config_source),
        told.is_sensitive,
        told.read_only,
        tuple((each.name, each.value, _source(each.source)) for each in told.synonyms),
    )


def _source(number: int) -> Source:
    return Source(number) if number in Source._value2member_map_ else Source.UNKNOWN
