"""DescribeConfigs (key 32), versions 1-4.

Returns the configs in force of topics, brokers, loggers, groups and client-metrics subscriptions.

1 adds the source of each value and its synonyms; 3 adds its type and documentation; 4 is flexible.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from ottla.api.admin import loggers
from ottla.api.admin.config_admin import check_is_this_node, require_config_right
from ottla.api.base import BY_HANDLER, Api, RequestContext
from ottla.broker.services import Node
from ottla.config.definitions import BROKER_KEYS, ConfigDef
from ottla.config.describe import ConfigEntry, describe_broker, describe_broker_defaults, describe_topic
from ottla.config.documentation import Scope, documentation
from ottla.controller.resource_configs import CLIENT_METRICS_KEYS, GROUP_KEYS, broker_synonym
from ottla.errors import ApiException, ErrorCode
from ottla.metadata.topic_names import validate_topic_name
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation, ConfigResourceType, ConfigSource
from ottla.wire.messages import DescribeConfigsResponse

if TYPE_CHECKING:
    from ottla.wire.messages import DescribeConfigsRequest

    Entry = DescribeConfigsResponse.DescribeConfigsResourceResult
    Synonym = DescribeConfigsResponse.DescribeConfigsSynonym

_LOGGER: Final = 6
_CLIENT_METRICS: Final = 7
_GROUP: Final = 8
"""Kafka's numbers for the sources that are not a broker's or a topic's."""
_SCOPES: Final[Mapping[int, Scope]] = {
    ConfigResourceType.BROKER: "broker",
    ConfigResourceType.TOPIC: "topic",
    ConfigResourceType.GROUP: "group",
    ConfigResourceType.CLIENT_METRICS: "client-metrics",
}
"""Where the keys of a resource are documented; loggers have no documentation."""


def handle(node: Node, ctx: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    results = []
    for resource in request.resources:
        result = DescribeConfigsResponse.DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
        )
        try:
            kind, name = resource.resource_type, resource.resource_name
            require_config_right(node, ctx, AclOperation.DESCRIBE_CONFIGS, kind, name)
            result.configs = _describe(node, resource, with_synonyms=request.include_synonyms)
            if request.include_documentation:
                _document(result)
        except ApiException as error:
            result.error_code = error.code
            result.error_message = error.message
        results.append(result)
    return DescribeConfigsResponse(results=results)


def _document(result: DescribeConfigsResponse.DescribeConfigsResult) -> None:
    scope = _SCOPES.get(result.resource_type)
    if scope is not None:
        for entry in result.configs:
            entry.documentation = documentation(scope, entry.name)


def _describe(
    node: Node, resource: DescribeConfigsRequest.DescribeConfigsResource, *, with_synonyms: bool
) -> list[Entry]:
    kind, name = resource.resource_type, resource.resource_name
    # Old clients send an empty list of keys for all keys.
    keys = resource.configuration_keys or None
    if kind == ConfigResourceType.TOPIC:
        return _entries(_topic(node, name, keys), with_synonyms)
    if kind == ConfigResourceType.BROKER:
        if not name:
            return _entries(describe_broker_defaults(node.config, keys), with_synonyms)
        check_is_this_node(node, name)
        return _entries(describe_broker(node.config, keys), with_synonyms)
    if kind == ConfigResourceType.BROKER_LOGGER:
        check_is_this_node(node, name)
        return [
            DescribeConfigsResponse.DescribeConfigsResourceResult(
                name=logger, value=level, config_source=_LOGGER, documentation=None
            )
            for logger, level in loggers.current_levels().items()
            if keys is None or logger in keys
        ]
    if kind == ConfigResourceType.GROUP and name:
        return _stored(node, kind, name, GROUP_KEYS, keys, _GROUP, with_synonyms=with_synonyms)
    if kind == ConfigResourceType.CLIENT_METRICS and name:
        return _stored(
            node, kind, name, CLIENT_METRICS_KEYS, keys, _CLIENT_METRICS, with_synonyms=with_synonyms
        )
    if kind in (ConfigResourceType.GROUP, ConfigResourceType.CLIENT_METRICS):
        raise ApiException(ErrorCode.INVALID_REQUEST, "The resource must have a name.")
    raise ApiException(ErrorCode.INVALID_REQUEST, f"Unexpected resource type {kind} for resource '{name}'.")


def _topic(node: Node, name: str, keys: Iterable[str] | None) -> list[ConfigEntry]:
    validate_topic_name(name)
    if name not in node.image.topics.by_name:
        raise ApiException(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{name}'.")
    overrides = node.image.configs.of(ConfigResourceType.TOPIC, name)
    return describe_topic(node.config, overrides, keys)


def _stored(
    node: Node,
    kind: int,
    name: str,
    definitions: Mapping[str, ConfigDef],
    keys: Iterable[str] | None,
    source: int,
    *,
    with_synonyms: bool,
) -> list[Entry]:
    """The configs of a resource that has only its own values and their defaults."""
    own = node.image.configs.of(kind, name)
    wanted = definitions.keys() if keys is None else definitions.keys() & set(keys)
    results = []
    for key in sorted(wanted):
        synonyms = _defaults(node, definitions[key]) if kind == ConfigResourceType.GROUP else []
        if key in own:
            synonyms.insert(0, _synonym(key, own[key], source))
        value = synonyms[0].value if synonyms else definitions[key].default
        results.append(
            DescribeConfigsResponse.DescribeConfigsResourceResult(
                name=key,
                value=value,
                config_source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
                documentation=None,
                config_type=definitions[key].type.value,
                synonyms=synonyms if with_synonyms else [],
            )
        )
    return results


def _defaults(node: Node, definition: ConfigDef) -> list[Synonym]:
    """The defaults of a group's config: the broker's key for groups, or a fixed value."""
    synonym = broker_synonym(definition.name)
    if synonym not in BROKER_KEYS:
        return [_synonym(definition.name, definition.default, ConfigSource.DEFAULT_CONFIG)]
    (entry,) = describe_broker(node.config, [synonym])
    return [_synonym(s.name, s.value, s.source) for s in entry.synonyms]


def _synonym(name: str, value: str | None, source: int) -> Synonym:
    return DescribeConfigsResponse.DescribeConfigsSynonym(name=name, value=value, source=source)


def _entries(entries: Iterable[ConfigEntry], with_synonyms: bool) -> list[Entry]:
    return [
        DescribeConfigsResponse.DescribeConfigsResourceResult(
            name=entry.name,
            value=entry.value,
            config_source=entry.source,
            documentation=None,
            read_only=entry.read_only,
            is_sensitive=entry.sensitive,
            config_type=entry.type,
            synonyms=[_synonym(s.name, s.value, s.source) for s in entry.synonyms] if with_synonyms else [],
        )
        for entry in entries
    ]


def on_error(
    ctx: RequestContext, request: DescribeConfigsRequest, error: ApiException
) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResponse.DescribeConfigsResult(
                error_code=error.code,
                error_message=error.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


API = Api(ApiKey.DESCRIBE_CONFIGS, handle, on_error, needs=BY_HANDLER)
