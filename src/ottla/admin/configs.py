"""Configurations of topics, brokers, groups and client metrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.admin.errors import raise_for
from ottla.credentials.secret_keys import holds_secret
from ottla.errors import ErrorCode
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AlterConfigOp, ConfigResourceType, ConfigSource
from ottla.wire.messages import (
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster
    from ottla.wire.messages import DescribeConfigsResponse, IncrementalAlterConfigsResponse

Resource = tuple[ConfigResourceType, str]
"""A resource's type and name; the empty name stands for the default of all brokers."""
ConfigChange = tuple[AlterConfigOp, str, str | None]
"""What to do, to which key, with which value."""

_BROKER_TYPES: Final = (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One key in force, with the values that could be in force instead."""

    name: str
    value: str | None
    source: ConfigSource
    is_sensitive: bool
    is_read_only: bool
    synonyms: tuple[tuple[str, str | None, ConfigSource], ...]

    @property
    def hidden(self) -> bool:
        """Whether a page must not show the value, whatever the broker says."""
        return self.is_sensitive or holds_secret(self.name)

    @property
    def is_default(self) -> bool:
        return self.source == ConfigSource.DEFAULT_CONFIG


def broker_of(resource: Resource) -> int | None:
    """The broker that must answer for a resource: a broker for its own configuration, any for everything else."""
    kind, name = resource
    return int(name) if kind in _BROKER_TYPES and name else None


def ask_configs(
    cluster: Cluster,
    resources: Mapping[Resource, Iterable[str] | None],
    *,
    synonyms: bool = False,
) -> list[tuple[int | None, DescribeConfigsResponse]]:
    """The keys of resources that are named, or all of them for None: each broker that answered, and its response."""
    kind = DescribeConfigsRequest
    by_broker = defaultdict(list)
    for resource, keys in resources.items():
        by_broker[broker_of(resource)].append(
            kind.DescribeConfigsResource(
                resource_type=resource[0],
                resource_name=resource[1],
                configuration_keys=None if keys is None else list(keys),
            )
        )
    responses = []
    for broker, wanted in by_broker.items():
        response = cluster.ask(kind(resources=wanted, include_synonyms=synonyms), broker)
        for result in response.results:
            raise_for(result.error_code, result.error_message, result.resource_name)
        responses.append((broker, response))
    return responses


def describe_configs(
    cluster: Cluster, resources: Sequence[Resource], *, synonyms: bool = False
) -> dict[Resource, list[ConfigEntry]]:
    """All keys of each resource; ApiException if one cannot be described."""
    return {
        (ConfigResourceType(result.resource_type), result.resource_name): [
            ConfigEntry(
                each.name,
                each.value,
                ConfigSource.of(each.config_source),
                each.is_sensitive,
                each.read_only,
                tuple((one.name, one.value, ConfigSource.of(one.source)) for one in each.synonyms),
            )
            for each in result.configs
        ]
        for _, response in ask_configs(cluster, dict.fromkeys(resources), synonyms=synonyms)
        for result in response.results
    }


def incremental_alter_configs(
    cluster: Cluster,
    changes: Mapping[Resource, Iterable[ConfigChange]],
    *,
    validate_only: bool = False,
) -> list[IncrementalAlterConfigsResponse]:
    """Change keys of resources; the responses have an error code for each resource."""
    kind = IncrementalAlterConfigsRequest
    by_broker = defaultdict(list)
    for resource, entries in changes.items():
        broker = broker_of(resource)
        if broker is not None and broker not in cluster.nodes():
            # The controller keeps what a broker that is down will read when it starts.
            broker = None
        by_broker[broker].append(
            kind.AlterConfigsResource(
                resource_type=resource[0],
                resource_name=resource[1],
                configs=[
                    kind.AlterableConfig(name=key, config_operation=operation, value=value)
                    for operation, key, value in entries
                ],
            )
        )
    return [
        cluster.ask(kind(resources=wanted, validate_only=validate_only), broker)
        for broker, wanted in by_broker.items()
    ]


def alter_configs(
    cluster: Cluster,
    kind: ConfigResourceType,
    name: str,
    *,
    added: Mapping[str, str] | None = None,
    deleted: Iterable[str] = (),
) -> None:
    """Set and delete keys of one resource; ApiException if it is refused."""
    changes: list[ConfigChange] = [(AlterConfigOp.DELETE, key, "") for key in deleted]
    changes += [(AlterConfigOp.SET, key, value) for key, value in (added or {}).items()]
    for response in incremental_alter_configs(cluster, {(kind, name): changes}):
        for result in response.responses:
            raise_for(result.error_code, result.error_message)


def list_config_resources(cluster: Cluster, kinds: Iterable[ConfigResourceType]) -> list[Resource]:
    """The resources of some types that have configurations of their own; of all types if none is given."""
    response = cluster.ask(ListConfigResourcesRequest(resource_types=[int(kind) for kind in kinds]))
    raise_for(response.error_code)
    return [
        (ConfigResourceType(each.resource_type), each.resource_name) for each in response.config_resources
    ]


def names_with_configs(cluster: Cluster, kind: ConfigResourceType) -> list[str]:
    """The resources of one type that have configurations of their own; none if the cluster does not list them."""
    version = cluster.version_for(ApiKey.LIST_CONFIG_RESOURCES)
    if version is None or (version == 0 and kind != ConfigResourceType.CLIENT_METRICS):
        return []
    request = ListConfigResourcesRequest(resource_types=[int(kind)] if version >= 1 else [])
    response = cluster.ask(request)
    if response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return []
    raise_for(response.error_code)
    return [each.resource_name for each in response.config_resources if each.resource_type == kind]
