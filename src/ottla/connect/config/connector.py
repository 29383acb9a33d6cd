"""Validation of a connector's configuration, with Kafka's messages and in the form of its REST API."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from ottla.connect.config.definitions import (
    HIDDEN,
    ConfigDef,
    ConfigKey,
    ConfigValue,
    Validator,
    kafka_keys,
    parse_type,
    to_text,
)
from ottla.connect.config.overrides import Policy, override_policy
from ottla.connect.failures import BadRequest, NotFound
from ottla.connect.plugins import Plugins
from ottla.connect.spi import Connector
from ottla.json_types import Json, JsonObject

_logger = logging.getLogger(__name__)

LONGEST_NAME: Final = 1000
_SIMPLE_HEADER: Final = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
_CONVERTERS: Final = (
    ("header.converter", "header_converter"),
    ("key.converter", "converter"),
    ("value.converter", "converter"),
)
_FREE_PREFIXES: Final = (
    *("producer.override.", "consumer.override.", "admin.override.", "transforms.", "predicates."),
    *("key.converter.", "value.converter.", "header.converter.", "topic.creation.", "ottla."),
)


@dataclass(slots=True)
class ConfigInfos:
    """The result of a validation."""

    name: str
    configs: list[tuple[ConfigKey | None, ConfigValue]] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    """Keys that have no effect, each with the nearest known one."""

    @property
    def error_count(self) -> int:
        """The number of errors, as Kafka counts them."""
        return sum(len(value.errors) for _, value in self.configs)

    def errors(self) -> list[str]:
        """All messages."""
        return [error for _, value in self.configs for error in value.errors]

    def json(self) -> JsonObject:
        """As REST shows it."""
        return {
            "name": self.name,
            "error_count": self.error_count,
            "groups": self.groups,
            "configs": [
                {"definition": key.json() if key is not None else None, "value": _value_json(key, value)}
                for key, value in self.configs
            ],
        }

    def raise_errors(self) -> None:
        """BadRequest with Kafka's text if there are errors."""
        found = self.errors()
        if not found:
            return
        listed = "\n".join(found)
        raise BadRequest(
            f"Connector configuration is invalid and contains the following {self.error_count} error(s):\n{listed}\n"
            "You can also find the above list of errors at the endpoint "
            "`/connector-plugins/{connectorType}/config/validate`"
        )


def _value_json(key: ConfigKey | None, value: ConfigValue) -> JsonObject:
    kind = key.type if key is not None else "STRING"
    text = to_text(value.value, kind)
    return {
        "name": value.name,
        "value": HIDDEN if kind == "PASSWORD" and text is not None else text,
        "recommended_values": value.recommended,
        "errors": value.errors,
        "visible": value.visible,
    }


def framework_keys(kind: str) -> ConfigDef:
    """The keys that all sources or all sinks have."""
    return kafka_keys("connector") | kafka_keys(kind)


def validate_connector(
    plugins: Plugins, props: Mapping[str, str | None], worker: Mapping[str, str] | None = None
) -> ConfigInfos:
    """Everything that is wrong with a configuration; BadRequest if not even its class is known."""
    class_name = props.get("connector.class")
    if class_name is None:
        raise BadRequest(f"Connector config {sorted(props)} contains no connector type")
    connector = plugins.connector(class_name)
    definition = _enriched(plugins, framework_keys(connector.kind), props)
    definition = _with_plugins(plugins, definition, class_name, props, worker or {})
    own = connector.config_def()
    result = ConfigInfos(class_name)
    result.groups = list(dict.fromkeys([*definition.groups(), *own.groups()]))
    given = {key: value for key, value in props.items() if value is not None}
    values = definition.validate(given)
    if connector.kind == "sink":
        _check_sink_topics(values, given)
        _check_sink_group(values, given, worker or {})
    else:
        _check_boundary(values["transaction.boundary"])
    _check_name(values["name"])
    _check_negations(values, given)
    converters = _converter_infos(plugins, given, values)
    own_values = own.validate(given)
    for key, errors in connector.validate(given).items():
        own_values.setdefault(key, ConfigValue(key, given.get(key))).errors.extend(errors)
    merged = {**values, **own_values}
    keys = {**definition.keys, **own.keys}
    for key in props:
        if props[key] is None:
            message = "Null value can not be supplied as the configuration value."
            merged.setdefault(key, ConfigValue(key)).errors.append(message)
    result.configs = [(keys.get(name), value) for name, value in merged.items()]
    result.configs += _override_infos(given, connector.kind, override_policy(worker or {})) + converters
    result.groups += [
        group
        for group in dict.fromkeys(key.group for key, _ in converters if key is not None and key.group)
        if group not in result.groups
    ]
    result.unknown = _unknown(given, keys, connector.free_prefixes)
    return result


def _check_boundary(found: ConfigValue) -> None:
    """No connector here says itself where transactions end; Kafka's words for that."""
    if str(found.value).lower() == "connector":
        found.errors.append(
            "The connector does not support connector-defined transaction boundaries with the given configuration. "
            "Please reconfigure it to use a different transaction boundary definition."
        )


def _with_plugins(
    plugins: Plugins,
    definition: ConfigDef,
    class_name: str,
    props: Mapping[str, str | None],
    worker: Mapping[str, str],
) -> ConfigDef:
    """With the versions of plugins and the worker's converters as defaults, and with what could be chosen."""
    changed = []
    version = plugins.find(class_name, "source", "sink").version
    versions = (version,) if version else ()
    changed.append(
        replace(definition.keys["connector.plugin.version"], default=version, recommended=versions)
    )
    for name, kind in _CONVERTERS:
        fallback = _SIMPLE_HEADER if name.startswith("header") else None
        known = sorted(one.name for one in plugins.specs(kind))
        default = worker.get(name, fallback)
        changed.append(replace(definition.keys[name], default=default, recommended=tuple(known)))
        number = None
        chosen = props.get(name) or default
        if chosen:
            try:
                number = plugins.find(chosen, kind).version
            except NotFound:
                number = None
        key = definition.keys[f"{name}.plugin.version"]
        changed.append(replace(key, default=number, recommended=(number,) if number else ()))
    return definition | ConfigDef(changed)


def _check_name(value: ConfigValue) -> None:
    if value.value is not None and len(str(value.value).encode("utf-8", "replace")) > LONGEST_NAME:
        value.errors.append(
            f"Invalid value {str(value.value)[:40]}... for configuration name: "
            f"a name has at most {LONGEST_NAME} bytes"
        )


def _enriched(plugins: Plugins, definition: ConfigDef, props: Mapping[str, str | None]) -> ConfigDef:
    """With the keys of transforms and predicates."""
    for word, kind, label in (
        ("transforms", "transformation", "Transforms"),
        ("predicates", "predicate", "Predicates"),
    ):
        singular = word[:-1]
        names = tuple(sorted(one.name for one in plugins.specs(kind)))
        base = "Transformation" if kind == "transformation" else "Predicate"
        for alias in dict.fromkeys(parse_type(word, props.get(word) or "", "LIST")):
            prefix, group = f"{word}.{alias}.", f"{label}: {alias}"
            type_key = ConfigKey(
                f"{prefix}type",
                "CLASS",
                importance="HIGH",
                group=group,
                order=0,
                width="LONG",
                display_name=f"{base} type for {alias}",
                documentation=f"Class for the '{alias}' {singular}.",
                recommended=names,
                validator=_plugin_validator(plugins, kind),
            )
            version_key = ConfigKey(
                f"{prefix}plugin.version",
                default=None,
                importance="HIGH",
                group=group,
                order=1,
                width="LONG",
                display_name=f"{base} version for {alias}",
                documentation=f"Version of the '{alias}' {singular}.",
            )
            definition = definition | ConfigDef([type_key, version_key])
            chosen = props.get(f"{prefix}type")
            if not chosen or _missing_plugin(plugins, chosen, kind) is not None:
                continue
            inner = plugins.find(chosen, kind).load().config_def()
            if kind == "transformation":
                inner = inner | _CONDITION
            definition = definition.embed(prefix, group, 2, inner)
    return definition


_CONDITION: Final = ConfigDef(
    [
        ConfigKey("predicate", default=None, group="Predicates"),
        ConfigKey("negate", "BOOLEAN", False, group="Predicates"),
    ]
)


def _plugin_validator(plugins: Plugins, kind: str) -> Validator:
    return lambda _, value: _missing_plugin(plugins, value, kind)


def _missing_plugin(plugins: Plugins, value: Json, kind: str) -> str | None:
    if not value:
        return f"Not a {kind.capitalize()}"
    try:
        plugins.find(str(value), kind)
    except NotFound:
        return f"Class {value} could not be found."
    return None


def _check_sink_topics(values: dict[str, ConfigValue], given: Mapping[str, str]) -> None:
    """Kafka's rules about `topics`, `topics.regex` and the topic of dead letters."""
    topics = parse_type("topics", given.get("topics", ""), "LIST")
    regex = given.get("topics.regex", "")
    text = None
    if topics and regex:
        text = "topics and topics.regex are mutually exclusive options, but both are set."
    elif not topics and not regex:
        text = "Must configure one of topics or topics.regex"
    if text is not None:
        values["topics"].errors.append(text)
        values["topics.regex"].errors.append(text)
    dead = given.get("errors.deadletterqueue.topic.name", "").strip()
    if dead and dead in topics:
        values["topics"].errors.append(
            f"The DLQ topic '{dead}' may not be included in the list of topics ('topics=[{', '.join(topics)}]') "
            "consumed by the connector"
        )
    if dead and regex and _fully(regex, dead):
        values["topics.regex"].errors.append(
            f"The DLQ topic '{dead}' may not be included in the regex matching the topics ('topics.regex={regex}') "
            "consumed by the connector"
        )


def _check_sink_group(
    values: dict[str, ConfigValue], given: Mapping[str, str], worker: Mapping[str, str]
) -> None:
    """A sink must not commit into the group of the workers."""
    own = worker.get("group.id")
    override = "consumer.override.group.id"
    if own is None or (given.get(override) or f"connect-{given.get('name')}") != own:
        return
    if override in given:
        text = f"Consumer group {own} conflicts with Connect worker group {own}"
        values.setdefault(override, ConfigValue(override, own)).errors.append(text)
    else:
        text = f"Consumer group for sink connector named {given.get('name')} conflicts with Connect worker group {own}"
        values["name"].errors.append(text)


def _check_negations(values: dict[str, ConfigValue], given: Mapping[str, str]) -> None:
    """A transform that negates its predicate must have one."""
    for alias in dict.fromkeys(parse_type("transforms", given.get("transforms", ""), "LIST")):
        negate, predicate = f"transforms.{alias}.negate", f"transforms.{alias}.predicate"
        if negate in given and predicate not in given:
            values.setdefault(negate, ConfigValue(negate, given[negate])).errors.append(
                f"Config '{negate}' was provided but there is no config '{predicate}' "
                "defining a predicate to be negated."
            )


def _fully(regex: str, text: str) -> bool:
    try:
        return re.fullmatch(regex, text) is not None
    except re.error:
        return False


def _converter_infos(
    plugins: Plugins, given: Mapping[str, str], values: dict[str, ConfigValue]
) -> list[tuple[ConfigKey | None, ConfigValue]]:
    """The keys of the connector's own converters."""
    infos: list[tuple[ConfigKey | None, ConfigValue]] = []
    for name, kind in _CONVERTERS:
        chosen = given.get(name)
        if not chosen:
            continue
        try:
            spec = plugins.find(chosen, kind)
        except NotFound as error:
            values[name].errors.append(
                f"Invalid value {chosen} for configuration {name}: {str(error).partition('; available')[0]}"
            )
            continue
        values[name].value = spec.name
        inner = spec.load().config_def() or kafka_keys(spec.name.removeprefix("org.apache.kafka.connect."))
        prefix = f"{name}."
        own = {key[len(prefix) :]: value for key, value in given.items() if key.startswith(prefix)}
        own.setdefault("converter.type", name.partition(".")[0])
        for key, value in inner.validate(own).items():
            shown = replace(inner.keys[key], name=prefix + key)
            value.name = prefix + key
            infos.append((shown, value))
    return infos


def _override_infos(
    given: Mapping[str, str], kind: str, policy: Policy
) -> list[tuple[ConfigKey | None, ConfigValue]]:
    """The client overrides, with what the worker's policy says to each."""
    prefixes: tuple[str, ...] = ("producer.override.",) if kind == "source" else ("consumer.override.",)
    if given.get("errors.deadletterqueue.topic.name"):
        prefixes = ("producer.override.", "consumer.override.", "admin.override.")
    elif kind == "source" and any(key.startswith("topic.creation.") for key in given):
        prefixes = (*prefixes, "admin.override.")
    infos: list[tuple[ConfigKey | None, ConfigValue]] = []
    for key, value in given.items():
        if key.startswith(prefixes):
            refused = policy(key.partition(".override.")[2])
            infos.append((None, ConfigValue(key, value, [refused] if refused else [])))
    return infos


def _unknown(given: Mapping[str, str], keys: Mapping[str, ConfigKey], free: tuple[str, ...]) -> list[str]:
    found = []
    for key in given:
        if key in keys or key.startswith((*_FREE_PREFIXES, *free)):
            continue
        near = difflib.get_close_matches(key, keys, n=1)
        found.append(f"{key} has no effect" + (f"; did you mean {near[0]}?" if near else ""))
    return found


def connector_class(plugins: Plugins, config: Mapping[str, str]) -> type[Connector]:
    """The class that a configuration names."""
    return plugins.connector(config.get("connector.class", ""))
