"""The admin client's part about configurations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ottla.client.admin_connections import Connections, to_dict
from ottla.client.admin_types import ConfigResource
from ottla.client.broker_errors import UnsupportedVersionError
from ottla.client.errors import for_code
from ottla.wire import messages as m
from ottla.wire.enums import AlterConfigOp, ConfigResourceType, ConfigSource, ConfigType

_OF_A_BROKER = (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)
_OF_FIXED_KEYS = (ConfigResourceType.BROKER, ConfigResourceType.TOPIC)
_NOT_MODIFIED = (
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
    ConfigSource.STATIC_BROKER_CONFIG,
    ConfigSource.DEFAULT_CONFIG,
)

_FILTERS: dict[str, Callable[[dict[str, Any], ConfigSource], bool]] = {
    "all": lambda entry, source: True,
    "dynamic": lambda entry, source: not entry["read_only"],
    "modified": lambda entry, source: source not in _NOT_MODIFIED,
    "default": lambda entry, source: source in _NOT_MODIFIED,
    "static": lambda entry, source: source is ConfigSource.STATIC_BROKER_CONFIG,
}

Described = dict[str, dict[str, dict[str, Any]]]


class ConfigAdmin:
    """Look configurations up and change them."""

    _connections: Connections

    def describe_configs(
        self,
        config_resources: Iterable[ConfigResource],
        include_synonyms: bool = False,
        config_filter: str = "modified",
    ) -> Described:
        """By type, name and key: what is in force and where it comes from. The filter is one of all, dynamic,
        modified, default and static."""
        keep = _FILTERS[str(getattr(config_filter, "name", config_filter)).lower()]
        told: Described = defaultdict(dict)
        for node_id, resources in _by_node(config_resources).items():
            request = m.DescribeConfigsRequest(
                resources=[
                    m.DescribeConfigsRequest.DescribeConfigsResource(
                        resource_type=one.resource_type,
                        resource_name=one.name,
                        configuration_keys=None if one.configs is None else list(one.configs),
                    )
                    for one in resources
                ],
                include_synonyms=include_synonyms,
            )
            answer, version = self._connections.ask(request, node_id)
            for result in answer.results:
                if result.error_code:
                    raise for_code(result.error_code)(result.error_message or result.resource_name)
                kind = ConfigResourceType(result.resource_type).name.lower()
                told[kind][result.resource_name] = dict(
                    named
                    for one in result.configs
                    if (named := _named_entry(to_dict(one, version), keep)) is not None
                )
        return dict(told)

    def list_config_resources(
        self, resource_types: Iterable[ConfigResourceType | str] | None = None
    ) -> dict[str, list[str]]:
        """The names of what has a configuration, by type."""
        wanted = [
            one if isinstance(one, ConfigResourceType) else ConfigResourceType[str(one).upper()]
            for one in resource_types or ()
        ]
        answer, _ = self._connections.ask(m.ListConfigResourcesRequest(resource_types=wanted))
        if answer.error_code:
            raise for_code(answer.error_code)("the resources cannot be listed")
        found: dict[str, list[str]] = defaultdict(list)
        for one in answer.config_resources:
            found[ConfigResourceType(one.resource_type).name.lower()].append(one.resource_name)
        return dict(found)

    def alter_configs(
        self,
        config_resources: Iterable[ConfigResource],
        validate_only: bool = False,
        raise_on_unknown: bool = True,
        incremental: bool | None = None,
    ) -> dict[str, dict[str, str]]:
        """Set keys to values; a tuple of an AlterConfigOp and a value deletes, appends or subtracts. Gives
        'OK' or the error, by type and name. Keys that a resource does not have are refused before anything is
        changed, unless `raise_on_unknown` says otherwise."""
        if incremental is False:
            raise UnsupportedVersionError("brokers of today only change configurations key by key")
        config_resources = list(config_resources)
        if raise_on_unknown:
            self._check_keys(config_resources)
        results: dict[str, dict[str, str]] = defaultdict(dict)
        kind_of = m.IncrementalAlterConfigsRequest
        for node_id, resources in _by_node(config_resources).items():
            request = m.IncrementalAlterConfigsRequest(
                resources=[
                    kind_of.AlterConfigsResource(
                        resource_type=one.resource_type,
                        resource_name=one.name,
                        configs=[kind_of.AlterableConfig(**change) for change in _changes(one)],
                    )
                    for one in resources
                ],
                validate_only=validate_only,
            )
            answer, _ = self._connections.ask(request, node_id)
            for one in answer.responses:
                kind = ConfigResourceType(one.resource_type).name.lower()
                error = for_code(one.error_code)(one.error_message or "")
                results[kind][one.resource_name] = str(error) if one.error_code else "OK"
        return dict(results)

    def _check_keys(self, resources: list[ConfigResource]) -> None:
        """Raise for keys that are not among those of their resource; client metrics and groups take new ones."""
        checked = [one for one in resources if one.resource_type in _OF_FIXED_KEYS]
        lookups = [ConfigResource(one.resource_type, one.name) for one in checked]
        known = self.describe_configs(lookups, config_filter="all") if lookups else {}
        for one in checked:
            there = known.get(one.resource_type.name.lower(), {}).get(one.name, {})
            unknown = sorted(set(one.configs or ()) - set(there))
            if there and unknown:
                raise ValueError(f"{one.name or 'the cluster'} has no setting {', '.join(unknown)}")

    def reset_configs(
        self,
        config_resources: Iterable[ConfigResource],
        validate_only: bool = False,
        raise_on_unknown: bool = True,
        incremental: bool | None = None,
    ) -> dict[str, dict[str, str]]:
        """Have keys go back to their defaults."""
        return self.alter_configs(
            [
                ConfigResource(
                    one.resource_type,
                    one.name,
                    dict.fromkeys(one.configs or (), (AlterConfigOp.DELETE, None)),
                )
                for one in config_resources
            ],
            validate_only,
            raise_on_unknown,
            incremental,
        )


def _by_node(resources: Iterable[ConfigResource]) -> dict[int | None, list[ConfigResource]]:
    """A broker answers for its own configuration, and any broker for everything else."""
    grouped = defaultdict(list)
    for one in resources:
        own = one.resource_type in _OF_A_BROKER and one.name
        grouped[int(one.name) if own else None].append(one)
    return grouped


def _named_entry(
    entry: dict[str, Any], keep: Callable[[dict[str, Any], ConfigSource], bool]
) -> tuple[str, dict[str, Any]] | None:
    source = ConfigSource(entry["config_source"])
    if not keep(entry, source):
        return None
    entry["config_source"] = source.name
    if "config_type" in entry:
        entry["config_type"] = ConfigType(entry["config_type"]).name
    for synonym in entry.get("synonyms", ()):
        synonym["source"] = ConfigSource(synonym["source"]).name
    return entry.pop("name"), entry


def _changes(resource: ConfigResource) -> list[dict[str, Any]]:
    if not isinstance(resource.configs, Mapping):
        raise TypeError(f"the configs of {resource.name} must be a dict of keys and values")
    changes = []
    for key, given in resource.configs.items():
        operation, value = given if isinstance(given, tuple) else (AlterConfigOp.SET, given)
        if isinstance(operation, str):
            operation = AlterConfigOp[operation.upper()]
        text = None if value is None else str(value)
        changes.append({"name": key, "config_operation": int(operation), "value": text})
    return changes
