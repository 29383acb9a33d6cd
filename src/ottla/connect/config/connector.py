"""Validation of a connector's configuration, with Kafka's messages and in the form of its REST API."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

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
from ottla.connect.failures import BadRequest, NotFound
from ottla.connect.plugins import Plugins
from ottla.connect.spi import Connector

_logger = logging.getLogger(__name__)

LONGEST_NAME: Final = 1000
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

    def json(self) -> dict[str, Any]:
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


def _value_json(key: ConfigKey | None, value: ConfigValue) -> dict[str, Any]:
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
    plugins: Plugins, props: Mapping[str, str | None], topic_creation: bool = True
) -> ConfigInfos:
    """Everything that is wrong with a configuration; BadRequest if not even its class is known."""
    class_name = props.get("connector.class")
    if class_name is None:
        raise BadRequest(f"Connector config {sorted(props)} contains no connector type")
    connector = plugins.connector(class_name)
    definition = _enriched(plugins, framework_keys(connector.kind), props)
    if connector.kind == "source" and topic_creation:
        definition = _with_topic_creation(definition, props)
    own = connector.config_def()
    result = ConfigInfos(class_name)
    result.groups = list(dict.fromkeys([*definition.groups(), *own.groups()]))
    given = {key: value for key, value in props.items() if value is not None}
    values = definition.validate(given)
    if connector.kind == "sink":
        _check_sink_topics(values, given)
    _check_name(values["name"])
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
    result.configs += _override_infos(given, connector.kind) + converters
    result.unknown = _unknown(given, keys)
    return result


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
        names = tuple(one.name for one in plugins.specs(kind))
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
            inner = ConfigDef()
            if kind == "transformation":
                inner = ConfigDef(
                    [
                        ConfigKey("predicate", default="", group="Predicates", width="NONE"),
                        ConfigKey("negate", "BOOLEAN", False, group="Predicates"),
                    ]
                )
            chosen = props.get(f"{prefix}type")
            if chosen and _missing_plugin(plugins, chosen, kind) is None:
                inner = inner | plugins.find(chosen, kind).load().config_def()
            definition = definition.embed(prefix, group, 2, inner)
    return definition


def _plugin_validator(plugins: Plugins, kind: str) -> Validator:
    return lambda _, value: _missing_plugin(plugins, value, kind)


def _missing_plugin(plugins: Plugins, value: Any, kind: str) -> str | None:
    if not value:
        return f"Not a {kind.capitalize()}"
    try:
        plugins.find(str(value), kind)
    except NotFound as error:
        return str(error).partition("; available")[0]
    return None


def _with_topic_creation(definition: ConfigDef, props: Mapping[str, str | None]) -> ConfigDef:
    """With the keys of `topic.creation.*`, where there are any."""
    if not any(key.startswith("topic.creation.") for key in props):
        return definition
    default = kafka_keys("topic.creation.default")
    definition = definition.embed("topic.creation.default.", "Topic Creation: default", 0, default)
    for name in dict.fromkeys(parse_type("groups", props.get("topic.creation.groups") or "", "LIST")):
        group = kafka_keys("topic.creation.group")
        definition = definition.embed(f"topic.creation.{name}.", f"Topic Creation: {name}", 0, group)
    return definition


def _check_sink_topics(values: dict[str, ConfigValue], given: Mapping[str, str]) -> None:
    """Kafka's rules about `topics`, `topics.regex` and the topic of dead letters."""
    topics = parse_type("topics", given.get("topics", ""), "LIST")
    regex = given.get("topics.regex", "")
    both = "topics and topics.regex are mutually exclusive options, but both are set."
    none = "Must configure one of topics or topics.regex"
    if topics and regex:
        for name, value in (("topics", topics), ("topics.regex", regex)):
            shown = f"[{', '.join(topics)}]" if name == "topics" else value
            values[name].errors.append(
                f"Invalid value {shown} for configuration {name}: {both[0].upper()}{both[1:]}"
            )
    elif not topics and not regex:
        for name, shown in (("topics", "[]"), ("topics.regex", "")):
            values[name].errors.append(f"Invalid value {shown} for configuration {name}: {none}")
    dead = given.get("errors.deadletterqueue.topic.name", "").strip()
    if dead and (dead in topics or (regex and _fully(regex, dead))):
        name = "topics" if dead in topics else "topics.regex"
        shown = f"[{', '.join(topics)}]" if name == "topics" else regex
        what = (
            f"The DLQ topic '{dead}' may not be included in the list of topics (\"topics\"={shown}) consumed by the "
            "connector"
            if name == "topics"
            else f"The DLQ topic '{dead}' may not be included in the regex matching the topics "
            f'("topics.regex"={regex}) consumed by the connector'
        )
        values[name].errors.append(f"Invalid value {shown} for configuration {name}: {what}")


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
        inner = kafka_keys(spec.name.removeprefix("org.apache.kafka.connect."))
        prefix = f"{name}."
        own = {key[len(prefix) :]: value for key, value in given.items() if key.startswith(prefix)}
        own.setdefault("converter.type", name.partition(".")[0])
        for key, value in inner.validate(own).items():
            shown = replace(inner.keys[key], name=prefix + key)
            value.name = prefix + key
            infos.append((shown, value))
    return infos


def _override_infos(given: Mapping[str, str], kind: str) -> list[tuple[ConfigKey | None, ConfigValue]]:
    """The client overrides, which the policy `All` accepts."""
    prefixes: tuple[str, ...] = ("producer.override.",) if kind == "source" else ("consumer.override.",)
    if given.get("errors.deadletterqueue.topic.name"):
        prefixes = ("producer.override.", "consumer.override.", "admin.override.")
    elif kind == "source" and any(key.startswith("topic.creation.") for key in given):
        prefixes = (*prefixes, "admin.override.")
    return [(None, ConfigValue(key, value)) for key, value in given.items() if key.startswith(prefixes)]


def _unknown(given: Mapping[str, str], keys: Mapping[str, ConfigKey]) -> list[str]:
    found = []
    for key in given:
        if key in keys or key.startswith(_FREE_PREFIXES):
            continue
        near = difflib.get_close_matches(key, keys, n=1)
        found.append(f"{key} has no effect" + (f"; did you mean {near[0]}?" if near else ""))
    return found


def connector_class(plugins: Plugins, config: Mapping[str, str]) -> type[Connector]:
    """The class that a configuration names."""
    return plugins.connector(config.get("connector.class", ""))
