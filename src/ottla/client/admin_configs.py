"""The admin client's methods for configurations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from ottla.admin import configs as requests
from ottla.admin.configs import ConfigChange, Resource
from ottla.client.admin_base import AdminBase
from ottla.client.admin_types import ConfigResource
from ottla.client.broker_errors import UnsupportedVersionError
from ottla.client.errors import for_code
from ottla.client.plain_data import Document, to_dict
from ottla.wire.enums import AlterConfigOp, ConfigResourceType, ConfigSource, ConfigType

_FIXED_KEYS = (ConfigResourceType.BROKER, ConfigResourceType.TOPIC)
_NOT_MODIFIED = (
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
    ConfigSource.STATIC_BROKER_CONFIG,
    ConfigSource.DEFAULT_CONFIG,
)

_FILTERS: dict[str, Callable[[Document, ConfigSource], bool]] = {
    "all": lambda entry, source: True,
    "dynamic": lambda entry, source: not entry["read_only"],
    "modified": lambda entry, source: source not in _NOT_MODIFIED,
    "default": lambda entry, source: source in _NOT_MODIFIED,
    "static": lambda entry, source: source is ConfigSource.STATIC_BROKER_CONFIG,
}

Described = dict[str, dict[str, dict[str, Document]]]
"""Entries by key, name and type of the resource."""


class ConfigAdmin(AdminBase):
    """Describe and change configurations."""

    def describe_configs(
        self,
        config_resources: Iterable[ConfigResource],
        include_synonyms: bool = False,
        config_filter: str = "modified",
    ) -> Described:
        """The values in force by type, name and key, with their sources. The filter is one of all, dynamic,
        modified, default and static.

        >>> from ottla import ConfigResource
        >>> found = admin.describe_configs([ConfigResource("topic", "orders")], config_filter="all")
        >>> found["topic"]["orders"]["cleanup.policy"]["value"]
        'delete'
        """
        keep = _FILTERS[str(getattr(config_filter, "name", config_filter)).lower()]
        wanted = {(one.kind, one.name): one.configs for one in config_resources}
        found: Described = defaultdict(dict)
        for broker_id, response in self._run(requests.ask_configs, wanted, synonyms=include_synonyms):
            version = self._version(response, broker_id)
            for result in response.results:
                kind = ConfigResourceType(result.resource_type).name.lower()
                found[kind][result.resource_name] = dict(
                    named
                    for one in result.configs
                    if (named := _named_entry(to_dict(one, version), keep)) is not None
                )
        return dict(found)

    def list_config_resources(
        self, resource_types: Iterable[ConfigResourceType | str] | None = None
    ) -> dict[str, list[str]]:
        """The names of resources that have configurations, by type.

        >>> "orders" in admin.list_config_resources(["topic"])["topic"]
        True
        """
        wanted = [
            one if isinstance(one, ConfigResourceType) else ConfigResourceType[str(one).upper()]
            for one in resource_types or ()
        ]
        found: dict[str, list[str]] = defaultdict(list)
        for kind, name in self._run(requests.list_config_resources, wanted):
            found[kind.name.lower()].append(name)
        return dict(found)

    def alter_configs(
        self,
        config_resources: Iterable[ConfigResource],
        validate_only: bool = False,
        raise_on_unknown: bool = True,
        incremental: bool | None = None,
    ) -> dict[str, dict[str, str]]:
        """Set keys to values; a tuple of an AlterConfigOp and a value deletes, appends or subtracts. Returns
        'OK' or the error, by type and name. A key that a resource does not have is refused before anything
        changes, unless `raise_on_unknown` is false.

        >>> from ottla import ConfigResource
        >>> admin.alter_configs([ConfigResource("topic", "orders", {"retention.ms": 86_400_000})])
        {'topic': {'orders': 'OK'}}
        """
        if incremental is False:
            raise UnsupportedVersionError("brokers change configurations only key by key (incrementally)")
        resources = list(config_resources)
        if raise_on_unknown:
            self._check_keys(resources)
        changes: dict[Resource, list[ConfigChange]] = {
            (one.kind, one.name): _changes(one) for one in resources
        }
        results: dict[str, dict[str, str]] = defaultdict(dict)
        for response in self._run(requests.incremental_alter_configs, changes, validate_only=validate_only):
            for one in response.responses:
                kind = ConfigResourceType(one.resource_type).name.lower()
                error = for_code(one.error_code)(one.error_message or "")
                results[kind][one.resource_name] = str(error) if one.error_code else "OK"
        return dict(results)

    def _check_keys(self, resources: list[ConfigResource]) -> None:
        """Raise for keys that a topic or broker does not have; client metrics and groups accept new ones."""
        checked = [one for one in resources if one.kind in _FIXED_KEYS]
        lookups = [ConfigResource(one.kind, one.name) for one in checked]
        known = self.describe_configs(lookups, config_filter="all") if lookups else {}
        for one in checked:
            existing = known.get(one.kind.name.lower(), {}).get(one.name, {})
            unknown = sorted(set(one.configs or ()) - set(existing))
            if existing and unknown:
                raise ValueError(f"{one.name or 'the cluster'} has no setting {', '.join(unknown)}")

    def reset_configs(
        self,
        config_resources: Iterable[ConfigResource],
        validate_only: bool = False,
        raise_on_unknown: bool = True,
        incremental: bool | None = None,
    ) -> dict[str, dict[str, str]]:
        """Set keys back to their defaults.

        >>> from ottla import ConfigResource
        >>> admin.reset_configs([ConfigResource("topic", "orders", ["retention.ms"])])
        {'topic': {'orders': 'OK'}}
        """
        return self.alter_configs(
            [
                ConfigResource(
                    one.kind,
                    one.name,
                    dict.fromkeys(one.configs or (), (AlterConfigOp.DELETE, None)),
                )
                for one in config_resources
            ],
            validate_only,
            raise_on_unknown,
            incremental,
        )


def _named_entry(
    entry: Document, keep: Callable[[Document, ConfigSource], bool]
) -> tuple[str, Document] | None:
    source = ConfigSource.of(entry["config_source"])
    if not keep(entry, source):
        return None
    entry["config_source"] = source.name
    if "config_type" in entry:
        entry["config_type"] = ConfigType(entry["config_type"]).name
    for synonym in entry.get("synonyms", ()):
        synonym["source"] = ConfigSource.of(synonym["source"]).name
    return entry.pop("name"), entry


def _changes(resource: ConfigResource) -> list[ConfigChange]:
    if not isinstance(resource.configs, Mapping):
        raise TypeError(f"the configs of {resource.name} must be a dict of keys and values")
    changes: list[ConfigChange] = []
    for key, given in resource.configs.items():
        operation, value = given if isinstance(given, tuple) else (AlterConfigOp.SET, given)
        if isinstance(operation, str):
            operation = AlterConfigOp[operation.upper()]
        changes.append((AlterConfigOp(operation), key, None if value is None else str(value)))
    return changes
