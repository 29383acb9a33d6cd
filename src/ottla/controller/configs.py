"""AlterConfigs and IncrementalAlterConfigs: the ConfigRecords of a change of dynamic configuration.

It covers topics, brokers, groups and client-metrics subscriptions; each resource succeeds or fails as a whole. Broker
loggers are not stored: the API changes them itself. The readers of the image apply the values.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from ottla.config.broker import BrokerConfig
from ottla.config.definitions import TOPIC_KEYS, ConfigDef
from ottla.config.describe import ConfigEntry, describe_topic
from ottla.config.dynamic import check_dynamic, definition_of
from ottla.config.errors import ConfigError
from ottla.config.providers import is_reference
from ottla.config.secrets import is_secret
from ottla.config.security_profile import is_strict
from ottla.config.topic import TopicConfig
from ottla.controller.resource_configs import (
    CLIENT_METRICS_KEYS,
    GROUP_KEYS,
    check_client_metrics,
    check_group,
)
from ottla.controller.result import NO_ERROR, ApiError, ControllerResult
from ottla.controller.settings import CORDONED_KEY, MIN_ISR_KEY, Settings
from ottla.errors import ApiException, ErrorCode
from ottla.ids import BrokerId, TopicName
from ottla.metadata.features import CORDONED_LOG_DIRS_FROM, metadata_version_name
from ottla.metadata.image import ENTITY_DEFAULT, MetadataImage
from ottla.metadata.topic_names import validate_topic_name
from ottla.wire.classes import WireMessage
from ottla.wire.enums import AlterConfigOp, ConfigResourceType, ConfigType
from ottla.wire.messages import (
    AlterConfigsResponse,
    ClearElrRecord,
    ConfigRecord,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from ottla.wire.messages import AlterConfigsRequest, IncrementalAlterConfigsRequest

_logger = logging.getLogger(__name__)

T = TypeVar("T", covariant=True)

MAX_VALUE_LENGTH: Final = 32_767
"""Kafka's bound on one value; lists grow by appending."""


Resource = tuple[int, str]
"""A resource's type and name."""
Changes = Mapping[str, str | None]
"""New values by key; None removes the key."""


class NamedConfig(Protocol):
    """A config of a resource in a request."""

    @property
    def name(self) -> str: ...


class ConfigResource(Protocol):
    """A resource in an AlterConfigs or IncrementalAlterConfigs request."""

    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...
    @property
    def configs(self) -> Sequence[NamedConfig]: ...


class ResultClass(Protocol[T]):
    """A response's class for the result of one resource."""

    def __call__(
        self, *, error_code: int, error_message: str | None, resource_type: int, resource_name: str
    ) -> T: ...


Res = TypeVar("Res", bound=ConfigResource)
ChangesOf = Callable[[MetadataImage, Res], Changes]
"""Returns what a request changes in one of its resources."""


def incremental_alter_configs(
    image: MetadataImage, request: IncrementalAlterConfigsRequest, settings: Settings, *, forwarded: bool
) -> ControllerResult[IncrementalAlterConfigsResponse]:
    """Decide IncrementalAlterConfigs.

    `forwarded`: a broker has forwarded the request, so it has already checked its own configs.
    """
    response = IncrementalAlterConfigsResponse
    records, errors = _alter(image, request.resources, settings, incremental_changes, forwarded=forwarded)
    results = [
        result_as(response.AlterConfigsResourceResponse, resource, error)
        for resource, error in zip(request.resources, errors, strict=True)
    ]
    return ControllerResult([] if request.validate_only else records, response(responses=results))


def alter_configs(
    image: MetadataImage, request: AlterConfigsRequest, settings: Settings, *, forwarded: bool
) -> ControllerResult[AlterConfigsResponse]:
    """Decide AlterConfigs. Configs that the request does not name are removed."""
    response = AlterConfigsResponse
    records, errors = _alter(image, request.resources, settings, replacing_changes, forwarded=forwarded)
    results = [
        result_as(response.AlterConfigsResourceResponse, resource, error)
        for resource, error in zip(request.resources, errors, strict=True)
    ]
    return ControllerResult([] if request.validate_only else records, response(responses=results))


def result_as(cls: ResultClass[T], resource: ConfigResource, error: ApiError) -> T:
    """The result of one resource as an entry of a response."""
    return cls(
        error_code=error.code,
        error_message=error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def incremental_changes(
    image: MetadataImage, resource: IncrementalAlterConfigsRequest.AlterConfigsResource
) -> Changes:
    """The changes of IncrementalAlterConfigs in one resource."""
    current = image.configs.of(resource.resource_type, resource.resource_name)
    return {
        config.name: _apply(resource.resource_type, config, current.get(config.name))
        for config in resource.configs
    }


def replacing_changes(image: MetadataImage, resource: AlterConfigsRequest.AlterConfigsResource) -> Changes:
    """The changes of AlterConfigs in one resource."""
    current = image.configs.of(resource.resource_type, resource.resource_name)
    missing = [config.name for config in resource.configs if config.value is None]
    if missing:
        raise _invalid_request(f"Null value not supported for: {', '.join(missing)}")
    return {**dict.fromkeys(current), **{config.name: config.value for config in resource.configs}}


def check_with_file(image: MetadataImage, config: BrokerConfig, changes: Changes) -> BrokerConfig:
    """Refuse changes of a broker's own configs that conflict with its file, which only that broker knows.

    Returns the configuration after the changes.
    """
    current = image.configs.of(ConfigResourceType.BROKER, str(config.node_id))
    wanted = {key: value for key, value in {**current, **changes}.items() if value is not None}
    try:
        # First what no broker may change at run time, in Kafka's words, and then what conflicts with the file.
        for key, value in changes.items():
            if value is not None:
                check_dynamic(key, value, per_broker=True)
        return BrokerConfig(config.static, config.dynamic_default, wanted)
    except ConfigError as error:
        raise _invalid_request(error.message) from error


def _alter(
    image: MetadataImage,
    resources: Sequence[Res],
    settings: Settings,
    changes_of: ChangesOf[Res],
    *,
    forwarded: bool,
) -> tuple[list[WireMessage], list[ApiError]]:
    """The records of all resources, and the result of each."""
    times = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    records: list[WireMessage] = []
    errors: list[ApiError] = []
    for resource in resources:
        key = (resource.resource_type, resource.resource_name)
        try:
            if times[key] > 1:
                raise _invalid_request("Each resource must appear at most once.")
            if len({config.name for config in resource.configs}) < len(resource.configs):
                raise _invalid_request("A config key is given more than once.")
            records += _records_for(image, key, changes_of(image, resource), settings, forwarded=forwarded)
            errors.append(NO_ERROR)
        except ApiException as refused:
            errors.append(ApiError.of(refused))
    return records, errors


def _apply(
    resource_type: int, config: IncrementalAlterConfigsRequest.AlterableConfig, current: str | None
) -> str | None:
    """The value of one key after the operation."""
    try:
        operation = AlterConfigOp(config.config_operation)
    except ValueError:
        raise _invalid_request(f"Unknown operation type {config.config_operation}.") from None
    if operation is AlterConfigOp.DELETE:
        return None
    value = config.value
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
) -> list[WireMessage]:
    resource_type, name = resource
    _check_name(resource)
    current = image.configs.of(resource_type, name)
    _check_min_isr(image, resource, changes)
    _check_cordoned(image, resource, changes, forwarded=forwarded)
    _check_lengths(changes)
    _check_secrets(resource, changes, settings)
    wanted = {key: value for key, value in {**current, **changes}.items() if value is not None}
    _check_values(image, resource, changes, wanted, settings)
    _check_exists(image, resource)
    records = [
        ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value)
        for key, value in changes.items()
        # A broker's value is written even if it is the same: brokers then reload the files that it names.
        if value != current.get(key) or resource_type == ConfigResourceType.BROKER
    ]
    return [*records, *_clear_elr(image, records)]


def _clear_elr(image: MetadataImage, config_records: Iterable[ConfigRecord]) -> list[ClearElrRecord]:
    """The old min.insync.replicas decided which replicas are eligible: clear them when it changes."""
    if not image.elr_enabled:
        return []
    return [
        ClearElrRecord(
            topic_name=TopicName(
                record.resource_name if record.resource_type == ConfigResourceType.TOPIC else ""
            )
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
    if resource_type == ConfigResourceType.TOPIC and TopicName(name) not in image.topics.by_name:
        raise ApiException(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{name}'.")
    if resource_type != ConfigResourceType.BROKER or name == ENTITY_DEFAULT:
        return
    if BrokerId(int(name)) not in image.brokers and int(name) not in image.controllers:
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
    """A controller knows only the ids of directories. Without their broker it can uncordon them, but not cordon."""
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


def _check_secrets(resource: Resource, changes: Changes, settings: Settings) -> None:
    """A password in the clear would lie in the metadata log of every node: strict refuses it."""
    if resource[0] != ConfigResourceType.BROKER:
        return
    clear = [
        key
        for key, value in changes.items()
        if value is not None and is_secret(key) and not is_reference(value)
    ]
    if not clear:
        return
    if is_strict(settings.static):
        raise ApiException(
            ErrorCode.INVALID_CONFIG,
            f"ottla.security.profile=strict refuses {clear[0]} in the clear, because every node would keep it in its "
            "metadata log: give a reference to a provider of config.providers, as in ${file:PATH:KEY}",
        )
    _logger.warning("Every node keeps %s in its metadata log, in the clear", ", ".join(clear))


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
            # Kafka returns this code here, not INVALID_CONFIG.
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
    # Valid values may conflict with each other. The file of another broker is not known here.
    if not per_broker:
        BrokerConfig(static, wanted, own)
    elif int(name) == settings.node_id:
        BrokerConfig(static, default, wanted)


def records_for_new_topic(
    image: MetadataImage, name: str, overrides: Mapping[str, str], settings: Settings
) -> list[WireMessage]:
    """The ConfigRecords of a topic that is being created. Raises INVALID_CONFIG."""
    _check_lengths(overrides)
    TopicConfig.build(settings.current(image), overrides)
    records = [
        ConfigRecord(resource_type=ConfigResourceType.TOPIC, resource_name=name, name=key, value=value)
        for key, value in overrides.items()
    ]
    return [*records, *_clear_elr(image, records)]


def effective_topic_configs(
    image: MetadataImage, overrides: Mapping[str, str], settings: Settings
) -> list[ConfigEntry]:
    """A topic's configuration in force, with the source of each value, sorted by name."""
    return describe_topic(settings.current(image), overrides)


def _invalid_request(message: str) -> ApiException:
    return ApiException(ErrorCode.INVALID_REQUEST, message)
