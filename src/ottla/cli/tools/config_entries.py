"""Settings of topics, brokers, groups and clients as the cluster tells them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.cli.tools.failures import raise_for
from ottla.errors import ErrorCode
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AlterConfigOp, ConfigResourceType, ConfigSource
from ottla.wire.messages import (
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)

if TYPE_CHECKING:
    from ottla.cli.tools.cluster_client import Cluster


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting with the values that stand behind it."""

    name: str
    value: str | None
    source: ConfigSource
    is_sensitive: bool
    is_read_only: bool
    synonyms: tuple[tuple[str, str | None, ConfigSource], ...]

    @property
    def is_default(self) -> bool:
        return self.source == ConfigSource.DEFAULT_CONFIG


def describe_configs(
    cluster: Cluster, resources: Sequence[tuple[ConfigResourceType, str]], *, synonyms: bool = False
) -> dict[tuple[ConfigResourceType, str], list[ConfigEntry]]:
    """The settings of each resource; a broker is asked itself about its own."""
    found: dict[tuple[ConfigResourceType, str], list[ConfigEntry]] = {}
    by_node: dict[int | None, list[tuple[ConfigResourceType, str]]] = {}
    for kind, name in resources:
        own = kind in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER) and name != ""
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
            key = ConfigResourceType(result.resource_type), result.resource_name
            found[key] = [_entry(each) for each in result.configs]
    return found


def alter_configs(
    cluster: Cluster,
    resource: ConfigResourceType,
    name: str,
    *,
    added: Mapping[str, str] | None = None,
    deleted: Iterable[str] = (),
) -> None:
    """Set and delete settings of one resource; a broker that is there is asked itself. ApiException if refused."""
    kind = IncrementalAlterConfigsRequest
    entries = [
        kind.AlterableConfig(name=key, config_operation=AlterConfigOp.DELETE, value="") for key in deleted
    ]
    entries += [
        kind.AlterableConfig(name=key, config_operation=AlterConfigOp.SET, value=value)
        for key, value in (added or {}).items()
    ]
    node = None
    if resource in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER) and name:
        node = int(name) if int(name) in cluster.nodes() else None
    wanted = kind.AlterConfigsResource(resource_type=int(resource), resource_name=name, configs=entries)
    for result in cluster.ask(kind(resources=[wanted]), node).responses:
        raise_for(result.error_code, result.error_message)


def listed_resources(cluster: Cluster, kind: ConfigResourceType) -> list[str]:
    """The resources of a type that have settings of their own; none where the cluster does not tell."""
    version = cluster.first().version_for(ApiKey.LIST_CONFIG_RESOURCES)
    if version is None or (version == 0 and kind != ConfigResourceType.CLIENT_METRICS):
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
        ConfigSource.of(told.config_source),
        told.is_sensitive,
        told.read_only,
        tuple((each.name, each.value, ConfigSource.of(each.source)) for each in told.synonyms),
    )
