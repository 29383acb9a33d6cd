"""AlterConfigs and IncrementalAlterConfigs: which ConfigRecords a change of dynamic configuration needs.

Topic, broker, group and client-metrics resources; each resource succeeds or fails as a whole. Broker loggers are
not stored, and are the API's own business. What the values do when they are in force is up to who reads the image.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ottla.config.broker import BrokerConfig
from ottla.config.definitions import TOPIC_KEYS, ConfigDef
from ottla.config.describe import ConfigEntry, describe_topic
from ottla.config.dynamic import check_dynamic, definition_of
from ottla.config.errors import ConfigError
from ottla.config.topic import TopicConfig
from ottla.controller.resource_configs import (
    CLIENT_METRICS_KEYS,
    GROUP_KEYS,
    check_client_metrics,
    check_group,
)
from ottla.controller.result import NO_ERROR, ApiError, ControllerResult, Message
from ottla.controller.settings import CORDONED_KEY, MIN_ISR_KEY, Settings
from ottla.errors import ApiException, ErrorCode
from ottla.metadata.features import CORDONED_LOG_DIRS_FROM, metadata_version_name
from ottla.metadata.image import ENTITY_DEFAULT, MetadataImage
from ottla.metadata.topic_names import validate_topic_name
from ottla.wire.enums import AlterConfigOp, ConfigResourceType, ConfigType
from ottla.wire.messages import (
    AlterConfigsResponse,
    ClearElrRecord,
    ConfigRecord,
    IncrementalAlterConfigsResponse,
)

MAX_VALUE_LENGTH: Final = 32_767
"""Kafka's bound on one value; lists grow by appending."""


Resource = tuple[int, str]
"""A resource's type and name."""
Changes = Mapping[str, str | None]
"""New values by key; None removes the key."""
ChangesOf = Callable[[MetadataImage, Message], Changes]
"""What a request changes of one of its resources."""


def incremental_alter_configs(
    image: MetadataImage, request: Message, settings: Settings, *, forwarded: bool
) -> ControllerResult[Message]:
    """IncrementalAlterConfigsRequest -> IncrementalAlterConfigsResponse.

    `forwarded` tells that a broker has passed the request on, and so has seen to its own configs.
    """
    return _alter(
        image, request, settings, incremental_changes, IncrementalAlterConfigsResponse, forwarded=forwarded
    )


def alter_configs(
    image: MetadataImage, request: Message, settings: Settings, *, forwarded: bool
) -> ControllerResult[Message]:
    """AlterConfigsRequest -> AlterConfigsResponse: what the request does not name is removed."""
    return _alter(image, request, settings, replacing_changes, AlterConfigsResponse, forwarded=forwarded)


def incremental_changes(image: MetadataImage, resource: Message) -> Changes:
    """What IncrementalAlterConfigs changes of one resource."""
    current = image.configs.of(resource.resource_type, resource.resource_name)
    return {
        config.name: _apply(resource.resource_type, config, current.get(config.name))
        for config in resource.configs
    }


def replacing_changes(image: MetadataImage, resource: Message) -> Changes:
    """What AlterConfigs changes of one resource."""
    current = image.configs.of(resource.resource_type, resource.resource_name)
    missing = [config.name for config in resource.configs if config.value is None]
    if missing:
        raise _invalid_request(f"Null value not supported for: {', '.join(missing)}")
    return {**dict.fromkeys(current), **{config.name: config.value for config in resource.configs}}


def check_with_file(image: MetadataImage, config: BrokerConfig, changes: Changes) -> None:
    """Refuse changes of a broker's own configs that do not fit its file, which only that broker knows."""
    current = image.configs.of(ConfigResourceType.BROKER, str(config.node_id))
    wanted = {key: value for key, value in {**current, **changes}.items() if value is not None}
    try:
        BrokerConfig(config.static, config.dynamic_default, wanted)
    except ConfigError as error:
        raise _invalid_request(error.message) from error


def _alter(
    image: MetadataImage,
    request: Message,
    settings: Settings,
    changes_of: ChangesOf,
    response_class: Any,
    *,
    forwarded: bool,
) -> ControllerResult[Message]:
    times = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    records: list[Message] = []
    answers = []
    for resource in request.resources:
        key = (resource.resource_type, resource.resource_name)
        error = NO_ERROR
        try:
            if times[key] > 1:
                raise _invalid_request("Each resource must appear at most once.")
            if len({config.name for config in resource.configs}) < len(resource.configs):
                raise _invalid_request("A config key is given more than once.")
            records += _records_for(image, key, changes_of(image, resource), settings, forwarded=forwarded)
        except ApiException as refused:
            error = ApiError.of(refused)
        answers.append(
            response_class.AlterConfigsResourceResponse(
                error_code=error.code,
                error_message=error.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return ControllerResult([] if request.validate_only else records, response_class(responses=answers))


def _apply(resource_type: int, config: Message, current: str | None) -> str | None:
    """The value of one key after the operation."""
    try:
        operation = AlterConfigOp(config.config_operation)
    except ValueError:
        raise _invalid_request(f"Unknown operation type {config.config_operation}.") from None
    if operation is AlterConfigOp.DELETE:
        return None
    value: str | None = config.value
    if value is None:
        raise _invalid_request(f"Null value not supported for: {config.name}")
    if operation is AlterConfigOp.SET:
        return value
    definition = _definition(resource_type, config.name)
    if definition is None or definition.type is not ConfigType.LIST:
        raise ApiException(
            ErrorCode.INVALID_CONFIG,
            f"Can't {operation.name} to key {config.name} because its type is not LIST.",
        )
    items = [
        item for item in (current if current is not None else definition.default or "").split(",") if item
    ]
    given = value.split(",")
    if operation is AlterConfigOp.APPEND:
        items += [item for item in dict.fromkeys(given) if item not in items]
    else:
        items = [item for item in items if item not in given]
    return ",".join(items)


def _definition(resource_type: int, name: str) -> ConfigDef | None:
    if resource_type == ConfigResourceType.TOPIC:
        return TOPIC_KEYS.get(name)
    if resource_type == ConfigResourceType.BROKER:
        return definition_of(name)
    if resource_type == ConfigResourceType.GROUP:
        return GROUP_KEYS.get(name)
    if resource_type == ConfigResourceType.CLIENT_METRICS:
        return CLIENT_METRICS_KEYS.get(name)
    return None


def _records_for(
    image: MetadataImage, resource: Resource, changes: Changes, settings: Settings, *, forwarded: bool
) -> list[Message]:
    resource_type, name = resource
    _check_name(resource)
    current = image.configs.of(resource_type, name)
    _check_min_isr(image, resource, changes)
    _check_cordoned(image, resource, changes, forwarded=forwarded)
    _check_lengths(changes)
    wanted = {key: value for key, value in {**current, **changes}.items() if value is not None}
    _check_values(image, resource, changes, wanted, settings)
    _check_exists(image, resource)
    records: list[Message] = [
        ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value)
        for key, value in changes.items()
        # A broker's value is written again even if it is the same: brokers take it as a reason to reload files.
        if value != current.get(key) or resource_type == ConfigResourceType.BROKER
    ]
    return records + _clear_elr(image, records)


def _clear_elr(image: MetadataImage, config_records: Iterable[Message]) -> list[Message]:
    """Who is eligible was decided by the old min.insync.replicas: begin anew with the new one."""
    if not image.elr_enabled:
        return []
    return [
        ClearElrRecord(
            topic_name=record.resource_name if record.resource_type == ConfigResourceType.TOPIC else ""
        )
        for record in config_records
        if record.name == MIN_ISR_KEY
        and record.resource_type in (ConfigResourceType.TOPIC, ConfigResourceType.BROKER)
    ]


def _check_name(resource: Resource) -> None:
    resource_type, name = resource
    if resource_type == ConfigResourceType.TOPIC:
        if not name:
            raise _invalid_request("Default topic resources are not allowed.")
        validate_topic_name(name)
    elif resource_type == ConfigResourceType.BROKER:
        if name != ENTITY_DEFAULT and not name.isdecimal():
            raise _invalid_request(f"A broker's name is its id, a number of at least 0; not '{name}'.")
    elif resource_type == ConfigResourceType.GROUP:
        if not name:
            raise _invalid_request("Default group resources are not allowed.")
    elif resource_type == ConfigResourceType.CLIENT_METRICS:
        if not name:
            raise _invalid_request("A client metrics subscription must have a name.")
    else:
        raise _invalid_request(f"Unknown resource type {resource_type}.")


def _check_exists(image: MetadataImage, resource: Resource) -> None:
    resource_type, name = resource
    if resource_type == ConfigResourceType.TOPIC and name not in image.topics.by_name:
        raise ApiException(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{name}'.")
    if resource_type != ConfigResourceType.BROKER or name == ENTITY_DEFAULT:
        return
    if int(name) not in image.brokers and int(name) not in image.controllers:
        raise ApiException(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {name} is registered.")


def _check_min_isr(image: MetadataImage, resource: Resource, changes: Changes) -> None:
    """With ELR on, all brokers must agree on the default of min.insync.replicas."""
    if resource[0] != ConfigResourceType.BROKER or MIN_ISR_KEY not in changes or not image.elr_enabled:
        return
    if resource[1] != ENTITY_DEFAULT:
        raise ApiException(
            ErrorCode.INVALID_CONFIG, f"Broker-level {MIN_ISR_KEY} cannot be altered while ELR is enabled."
        )
    if changes[MIN_ISR_KEY] is None:
        raise ApiException(
            ErrorCode.INVALID_CONFIG, f"Cluster-level {MIN_ISR_KEY} cannot be removed while ELR is enabled."
        )


def _check_cordoned(image: MetadataImage, resource: Resource, changes: Changes, *, forwarded: bool) -> None:
    """A controller knows directories by their ids only: without their broker they can be given free, not cordoned."""
    if resource[0] != ConfigResourceType.BROKER or CORDONED_KEY not in changes:
        return
    if image.metadata_version < CORDONED_LOG_DIRS_FROM:
        raise ApiException(
            ErrorCode.INVALID_CONFIG,
            f"{CORDONED_KEY} needs metadata.version {metadata_version_name(CORDONED_LOG_DIRS_FROM)} or newer.",
        )
    wanted = _items(changes[CORDONED_KEY])
    if not forwarded and not wanted <= _items(image.configs.of(*resource).get(CORDONED_KEY)):
        raise ApiException(
            ErrorCode.INVALID_CONFIG,
            f"Ask broker {resource[1]} itself to add to {CORDONED_KEY}; a controller can only take from it.",
        )


def _items(value: str | None) -> set[str]:
    return {item.strip() for item in (value or "").split(",") if item.strip()}


def _check_lengths(changes: Changes) -> None:
    for key, value in changes.items():
        if value is not None and len(value) > MAX_VALUE_LENGTH:
            raise ApiException(
                ErrorCode.INVALID_CONFIG,
                f"The value of {key} has {len(value)} characters; {MAX_VALUE_LENGTH} is the most.",
            )


def _check_values(
    image: MetadataImage, resource: Resource, changes: Changes, wanted: Mapping[str, str], settings: Settings
) -> None:
    resource_type = resource[0]
    if resource_type == ConfigResourceType.TOPIC:
        TopicConfig.build(settings.current(image), wanted)
    elif resource_type == ConfigResourceType.GROUP:
        check_group(settings.current(image), wanted)
    elif resource_type == ConfigResourceType.CLIENT_METRICS:
        check_client_metrics(wanted)
    else:
        try:
            _check_broker_values(image, resource[1], changes, wanted, settings)
        except ConfigError as error:
            # Kafka answers so; a client that waits for INVALID_CONFIG here would wait for it there too.
            raise _invalid_request(error.message) from error


def _check_broker_values(
    image: MetadataImage, name: str, changes: Changes, wanted: Mapping[str, str], settings: Settings
) -> None:
    per_broker = name != ENTITY_DEFAULT
    for key, value in changes.items():
        if value is not None:
            check_dynamic(key, value, per_broker=per_broker)
    default, own = settings.dynamic_broker_configs(image)
    static = settings.static.static
    # Values that fit one by one may not fit together; another broker's file is not known here.
    if not per_broker:
        BrokerConfig(static, wanted, own)
    elif int(name) == settings.node_id:
        BrokerConfig(static, default, wanted)


def records_for_new_topic(
    image: MetadataImage, name: str, overrides: Mapping[str, str], settings: Settings
) -> list[Message]:
    """The ConfigRecords of a topic that is being created. Raises INVALID_CONFIG."""
    _check_lengths(overrides)
    TopicConfig.build(settings.current(image), overrides)
    records: list[Message] = [
        ConfigRecord(resource_type=ConfigResourceType.TOPIC, resource_name=name, name=key, value=value)
        for key, value in overrides.items()
    ]
    return records + _clear_elr(image, records)


def effective_topic_configs(
    image: MetadataImage, overrides: Mapping[str, str], settings: Settings
) -> list[ConfigEntry]:
    """All of a topic's configuration in force, with where each value comes from; sorted by name."""
    return describe_topic(settings.current(image), overrides)


def _invalid_request(message: str) -> ApiException:
    return ApiException(ErrorCode.INVALID_REQUEST, message)
