"""`ottla configs`: what kafka-configs does, for topics, brokers, groups and client metrics.

Quotas and SCRAM credentials, which belong to users, clients and addresses, are in `quotas.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from ottla.admin.configs import ConfigEntry, alter_configs, describe_configs, names_with_configs
from ottla.cli.tools.base import Flags, Session, exactly_one, not_with, tool
from ottla.cli.tools.failures import UsageProblem
from ottla.errors import ApiException, ErrorCode
from ottla.wire.enums import ConfigResourceType, ConfigSource

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster

_RESOURCES: Final = {
    "topics": (ConfigResourceType.TOPIC, ConfigSource.DYNAMIC_TOPIC_CONFIG),
    "brokers": (ConfigResourceType.BROKER, ConfigSource.DYNAMIC_BROKER_CONFIG),
    "broker-loggers": (ConfigResourceType.BROKER_LOGGER, None),
    "client-metrics": (ConfigResourceType.CLIENT_METRICS, ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG),
    "groups": (ConfigResourceType.GROUP, ConfigSource.DYNAMIC_GROUP_CONFIG),
}
"""Entity types with settings of their own, and the source of what was set for one of them."""

_QUOTA_TYPES: Final = ("users", "clients", "ips")
_TYPES: Final = (*_RESOURCES, *_QUOTA_TYPES)
_FLAGS_OF_TYPES: Final = (
    *(("topic", "topics"), ("client", "clients"), ("user", "users"), ("broker", "brokers")),
    *(("broker_logger", "broker-loggers"), ("ip", "ips"), ("client_metrics", "client-metrics")),
    ("group", "groups"),
)
_DEFAULT_FLAGS: Final = (
    *(("client_defaults", "clients"), ("user_defaults", "users")),
    *(("broker_defaults", "brokers"), ("ip_defaults", "ips")),
)
_OUTSIDE_BRACKETS: Final = r"(?=[^\]]*(?:\[|$))"


class ConfigsFlags(Flags):
    """The flags of `ottla configs`."""

    describe: bool
    alter: bool
    all: bool
    entity_type: tuple[str, ...]
    entity_name: tuple[str, ...]
    entity_default: tuple[bool, ...]
    add_config: str | None
    add_config_file: str | None
    delete_config: str | None
    topic: str | None
    client: str | None
    user: str | None
    broker: str | None
    broker_logger: str | None
    ip: str | None
    client_metrics: str | None
    group: str | None
    client_defaults: bool
    user_defaults: bool
    broker_defaults: bool
    ip_defaults: bool


@tool(
    "configs",
    click.option("--describe", is_flag=True, help="Show settings."),
    click.option("--alter", is_flag=True, help="Change settings."),
    click.option("--all", "all", is_flag=True, help="Describe: also defaults."),
    click.option("--entity-type", multiple=True, metavar="TYPE", help=f"{', '.join(_TYPES)}."),
    click.option("--entity-name", multiple=True, metavar="NAME", help="The name, or the broker's id."),
    click.option("--entity-default", multiple=True, is_flag=True, help="The default of the type."),
    click.option("--add-config", metavar="KEY=VALUE,KEY=[A,B],...", help="Alter: settings to add."),
    click.option("--add-config-file", metavar="FILE", help="Alter: settings to add, from a properties file."),
    click.option("--delete-config", metavar="KEY,...", help="Alter: settings to delete."),
    *(
        click.option(f"--{flag.replace('_', '-')}", metavar="NAME", help=f"The same as --entity-type {kind}.")
        for flag, kind in _FLAGS_OF_TYPES
    ),
    *(
        click.option(f"--{flag.replace('_', '-')}", is_flag=True, help=f"The default of all {kind}.")
        for flag, kind in _DEFAULT_FLAGS
    ),
    controllers=True,
)
def configs(session: Session, flags: ConfigsFlags) -> None:
    """Show and change the settings of topics, brokers, groups, clients and users."""
    action = exactly_one(flags, "describe", "alter")
    not_with(flags, "describe", "add_config", "add_config_file", "delete_config")
    entity = _entity(flags)
    change = _change(flags) if action == "alter" else None
    if entity.types[0] in _QUOTA_TYPES:
        from ottla.cli.tools import quotas

        if change is None:
            quotas.describe(session, entity.types, entity.names)
        else:
            quotas.alter(session, entity.types, entity.names, change.added, change.deleted)
    elif change is None:
        _describe(session, entity, flags.all)
    else:
        _alter(session, entity, change)
    if change is not None:
        _confirm(session, entity)


@dataclass(frozen=True, slots=True)
class Entity:
    """The owner of settings; an empty name stands for the default of all."""

    types: list[str]
    names: list[str]

    @property
    def name(self) -> str | None:
        return self.names[0] if self.names else None


@dataclass(frozen=True, slots=True)
class Change:
    """Settings to add and to delete."""

    added: dict[str, str]
    deleted: list[str]


def _entity(flags: ConfigsFlags) -> Entity:
    pairs = [
        (kind, getattr(flags, flag)) for flag, kind in _FLAGS_OF_TYPES if getattr(flags, flag) is not None
    ]
    pairs += [(kind, "") for flag, kind in _DEFAULT_FLAGS if getattr(flags, flag)]
    by_words = flags.entity_type or flags.entity_name or flags.entity_default
    if pairs and by_words:
        raise UsageProblem(
            "--entity-type, --entity-name and --entity-default can't be used with flags like --topic"
        )
    if pairs:
        entity = Entity([kind for kind, _ in pairs], [name for _, name in pairs])
    else:
        entity = Entity(list(flags.entity_type), [*flags.entity_name, *("" for _ in flags.entity_default)])
    _check_entity(entity, flags.alter)
    return entity


def _check_entity(entity: Entity, alter: bool) -> None:
    unknown = [kind for kind in entity.types if kind not in _TYPES]
    if unknown:
        raise UsageProblem(
            f"Invalid entity type {unknown[0]}, the entity type must be one of {', '.join(_TYPES)}"
        )
    if not entity.types:
        raise UsageProblem("At least one entity type must be specified")
    if len(set(entity.types)) != len(entity.types):
        raise UsageProblem("an entity type is named twice")
    if len(entity.types) > 1 and set(entity.types) != {"users", "clients"}:
        raise UsageProblem("Only 'users' and 'clients' entity types may be specified together")
    if alter and len(entity.types) != len(entity.names):
        raise UsageProblem("An entity name must be specified for every entity type")
    if len(entity.names) > len(entity.types):
        raise UsageProblem("there are more entity names than entity types")
    kind, name = entity.types[0], entity.name
    if kind in ("brokers", "broker-loggers") and name and not name.isdecimal():
        raise UsageProblem(f"The entity name for {kind} must be a valid integer broker id, but it is: {name}")
    if kind == "broker-loggers" and not name:
        raise UsageProblem("An entity name must be specified for broker-loggers")
    if name == "" and kind not in ("brokers", *_QUOTA_TYPES):
        raise UsageProblem(f"--entity-default can't be used with {kind}")


def _change(flags: ConfigsFlags) -> Change:
    if flags.add_config is not None and flags.add_config_file is not None:
        raise UsageProblem("Only one of --add-config or --add-config-file must be specified")
    if flags.add_config is None and flags.add_config_file is None and flags.delete_config is None:
        raise UsageProblem("--alter needs --add-config, --add-config-file or --delete-config")
    added: dict[str, str] = {}
    if flags.add_config_file is not None:
        from ottla.cli.properties_file import read_properties

        added = read_properties(flags.add_config_file)
    if flags.add_config is not None:
        added = parse_settings(flags.add_config)
    for key in added:
        if not re.fullmatch(r"[$a-zA-Z0-9._-]*", key):
            raise UsageProblem(f"Invalid character found for config key: {key}")
    deleted = [word.strip() for word in (flags.delete_config or "").split(",") if word.strip()]
    return Change(added, deleted)


def parse_settings(text: str) -> dict[str, str]:
    """Settings from `k1=v1,k2=[v2,v3]`: commas within brackets belong to a value."""
    pairs: dict[str, str] = {}
    for word in re.split("," + _OUTSIDE_BRACKETS, text):
        parts = re.split(r"\s*=\s*" + _OUTSIDE_BRACKETS, word)
        if len(parts) != 2:
            raise UsageProblem(
                f"--add-config {word}: expected KEY=VALUE, or KEY=[A,B] for values with commas"
            )
        pairs[parts[0].strip()] = parts[1].replace("[", "").replace("]", "").strip()
    return pairs


def _describe(session: Session, entity: Entity, everything: bool) -> None:
    kind = entity.types[0]
    if entity.name and not everything and not _exists(session.cluster, kind, entity.name):
        singular = kind[:-1]
        line = f"The {singular} '{entity.name}' doesn't exist and doesn't have dynamic config."
        session.result([], [line])
        return
    names = [entity.name] if entity.name is not None else _all_names(session.cluster, kind)
    documents: list[object] = []
    for name in names:
        if name == "":
            session.print(f"Default configs for {kind} in the cluster are:")
        else:
            session.print(f"{'All' if everything else 'Dynamic'} configs for {kind[:-1]} {name} are:")
        entries = _entries(session.cluster, kind, name, everything)
        for entry in entries:
            session.print(_entry_line(entry))
        documents.append({"type": kind, "name": name, "configs": [_entry_document(each) for each in entries]})
    if session.as_json:
        session.dump(documents)


def _entries(cluster: Cluster, kind: str, name: str, everything: bool) -> list[ConfigEntry]:
    resource, own_source = _RESOURCES[kind]
    if kind == "brokers" and name == "":
        own_source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    found = describe_configs(cluster, [(resource, name)], synonyms=True)[resource, name]
    kept = [entry for entry in found if everything or own_source is None or entry.source == own_source]
    return sorted(kept, key=lambda entry: entry.name)


def _entry_line(entry: ConfigEntry) -> str:
    synonyms = ", ".join(f"{source.name}:{name}={_null(value)}" for name, value, source in entry.synonyms)
    sensitive = str(entry.is_sensitive).lower()
    return f"  {entry.name}={_null(entry.value)} sensitive={sensitive} synonyms={{{synonyms}}}"


def _null(value: str | None) -> str:
    return "null" if value is None else value


def _entry_document(entry: ConfigEntry) -> dict[str, object]:
    return {
        "name": entry.name,
        "value": entry.value,
        "source": entry.source.name,
        "sensitive": entry.is_sensitive,
        "readOnly": entry.is_read_only,
        "synonyms": [
            {"name": name, "value": value, "source": source.name} for name, value, source in entry.synonyms
        ],
    }


def _exists(cluster: Cluster, kind: str, name: str) -> bool:
    return name in _all_names(cluster, kind)


def _all_names(cluster: Cluster, kind: str) -> list[str]:
    if kind == "topics":
        return sorted(topic.name or "" for topic in cluster.metadata().topics)
    if kind in ("brokers", "broker-loggers"):
        return [*map(str, sorted(cluster.nodes())), ""]
    names = set(names_with_configs(cluster, _RESOURCES[kind][0]))
    if kind == "groups":
        from ottla.admin.groups import list_groups

        names |= {group.group_id for group in list_groups(cluster)}
    return sorted(names)


def _alter(session: Session, entity: Entity, change: Change) -> None:
    kind = entity.types[0]
    resource, _ = _RESOURCES[kind]
    name = entity.name or ""
    if kind == "broker-loggers":
        known = {entry.name for entry in _entries(session.cluster, kind, name, True)}
        strangers = [key for key in (*change.deleted, *change.added) if key not in known]
        if strangers:
            raise ApiException(ErrorCode.INVALID_CONFIG, f"Invalid broker logger(s): {','.join(strangers)}")
    alter_configs(session.cluster, resource, name, added=change.added, deleted=change.deleted)


def _confirm(session: Session, entity: Entity) -> None:
    kind, name = entity.types[0], entity.name
    if name:
        line = f"Completed updating config for {kind[:-1]} {name}."
    else:
        line = f"Completed updating default config for {kind} in the cluster."
    session.result({"updated": {"type": kind, "name": name}}, [line])
