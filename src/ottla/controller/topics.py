"""CreateTopics, DeleteTopics and CreatePartitions, as pure functions of the image."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from ottla.clock import Clock
from ottla.controller import configs
from ottla.controller.cluster import is_active
from ottla.controller.partitions import default_directory
from ottla.controller.placement import UsableBroker, place_replicas
from ottla.controller.result import MAX_RECORDS_PER_OPERATION, NO_ERROR, ApiError, ControllerResult
from ottla.controller.settings import Settings
from ottla.errors import ApiException, ErrorCode
from ottla.ids import BrokerId, TopicName
from ottla.metadata.image import BrokerRegistration, MetadataImage, TopicImage
from ottla.metadata.topic_names import CLUSTER_METADATA_TOPIC, colliding_name, validate_topic_name
from ottla.wire.classes import WireMessage
from ottla.wire.messages import (
    CreatePartitionsResponse,
    CreateTopicsResponse,
    DeleteTopicsResponse,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.wire.uuid import ZERO_UUID, uuid_to_str

if TYPE_CHECKING:
    from ottla.wire.messages import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest

MAX_PARTITIONS_PER_REQUEST: Final = MAX_RECORDS_PER_OPERATION
_USE_DEFAULT: Final = -1


class _Assignment(msgspec.Struct, frozen=True):
    """A new partition's replicas, and those that are in sync from the start."""

    replicas: list[BrokerId]
    isr: list[BrokerId]


def _fail(code: ErrorCode, message: str) -> ApiException:
    return ApiException(code, message)


def _duplicates(names: Iterable[str]) -> set[str]:
    return {name for name, count in Counter(names).items() if count > 1}


Charge = Callable[[int], object]
"""Counts partitions against the client's quota. Raises THROTTLING_QUOTA_EXCEEDED where they do not fit."""


def without_quota(partitions: int) -> None:
    """Let a client without a quota create and delete partitions."""


def create_topics(
    image: MetadataImage,
    request: CreateTopicsRequest,
    settings: Settings,
    clock: Clock,
    charge: Charge = without_quota,
) -> ControllerResult[CreateTopicsResponse]:
    """Decide CreateTopics. Each topic succeeds or fails by itself."""
    _check_total_partitions(request, settings)
    duplicates = _duplicates(topic.name for topic in request.topics)
    records: list[WireMessage] = []
    results: dict[TopicName, CreateTopicsResponse.CreatableTopicResult] = {}
    created: set[TopicName] = set()
    for topic in request.topics:
        if topic.name in results:
            continue
        try:
            if topic.name in duplicates:
                raise _fail(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            _check_new_name(image, topic.name, created)
            topic_records, result = _create_topic(image, topic, settings, clock)
            charge(result.num_partitions)
        except ApiException as error:
            results[topic.name] = CreateTopicsResponse.CreatableTopicResult(
                name=topic.name, error_code=error.code, error_message=error.message
            )
            continue
        created.add(topic.name)
        records += topic_records
        results[topic.name] = result
    _check_record_count(records)
    response = CreateTopicsResponse(topics=list(results.values()))
    return ControllerResult([] if request.validate_only else records, response)


def _check_total_partitions(request: CreateTopicsRequest, settings: Settings) -> None:
    total = 0
    for topic in request.topics:
        if topic.assignments:
            total += len(topic.assignments)
        else:
            count = topic.num_partitions
            total += settings.num_partitions if count == _USE_DEFAULT else max(count, 0)
    if total > MAX_PARTITIONS_PER_REQUEST:
        raise _fail(
            ErrorCode.POLICY_VIOLATION,
            f"The request would create {total} partitions; one request may create {MAX_PARTITIONS_PER_REQUEST}.",
        )


def _check_record_count(records: Sequence[WireMessage]) -> None:
    if len(records) > MAX_RECORDS_PER_OPERATION:
        raise _fail(
            ErrorCode.POLICY_VIOLATION,
            f"The request would write {len(records)} metadata records; {MAX_RECORDS_PER_OPERATION} is the most.",
        )


def _check_new_name(image: MetadataImage, name: TopicName, created: set[TopicName]) -> None:
    if name == CLUSTER_METADATA_TOPIC:
        raise _fail(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
    validate_topic_name(name)
    if name in image.topics.by_name:
        raise _fail(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    other = colliding_name(name, image.topics.by_name) or colliding_name(name, created)
    if other is not None:
        raise _fail(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topic '{other}': '.' and '_' are the same in metric names.",
        )


def _create_topic(
    image: MetadataImage, topic: CreateTopicsRequest.CreatableTopic, settings: Settings, clock: Clock
) -> tuple[list[WireMessage], CreateTopicsResponse.CreatableTopicResult]:
    overrides = _creation_configs(topic)
    config_records = configs.records_for_new_topic(image, topic.name, overrides, settings)
    assignments = _assign_new_topic(image, topic, settings, clock)
    topic_id = clock.random_uuid()
    records: list[WireMessage] = [TopicRecord(name=topic.name, topic_id=topic_id), *config_records]
    records += _partition_records(image, topic_id, 0, assignments)
    result = CreateTopicsResponse.CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=len(assignments),
        replication_factor=len(assignments[0].replicas),
        configs=[
            CreateTopicsResponse.CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.sensitive,
            )
            for entry in configs.effective_topic_configs(image, overrides, settings)
        ],
    )
    return records, result


def _creation_configs(topic: CreateTopicsRequest.CreatableTopic) -> dict[str, str]:
    without_value = [config.name for config in topic.configs if config.value is None]
    if without_value:
        raise _fail(
            ErrorCode.INVALID_CONFIG,
            f"Null value not supported for topic configs: {', '.join(without_value)}",
        )
    return {config.name: config.value for config in topic.configs if config.value is not None}


def _assign_new_topic(
    image: MetadataImage, topic: CreateTopicsRequest.CreatableTopic, settings: Settings, clock: Clock
) -> list[_Assignment]:
    if topic.assignments:
        return _manual_topic_assignment(image, topic)
    replication_factor = topic.replication_factor
    if replication_factor < _USE_DEFAULT or replication_factor == 0:
        raise _fail(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    count = topic.num_partitions
    if count < _USE_DEFAULT or count == 0:
        raise _fail(
            ErrorCode.INVALID_PARTITIONS,
            f"The number of partitions must be larger than 0, or -1 to use the default value; it is {count}.",
        )
    if replication_factor == _USE_DEFAULT:
        replication_factor = settings.default_replication_factor
    if count == _USE_DEFAULT:
        count = settings.num_partitions
    return _place(image, count, replication_factor, clock)


def _manual_topic_assignment(
    image: MetadataImage, topic: CreateTopicsRequest.CreatableTopic
) -> list[_Assignment]:
    for name, value in (
        ("replication factor", topic.replication_factor),
        ("number of partitions", topic.num_partitions),
    ):
        if value != _USE_DEFAULT:
            raise _fail(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but the {name} was not set to -1.",
            )
    by_index: dict[int, list[BrokerId]] = {}
    for assignment in topic.assignments:
        if assignment.partition_index in by_index:
            raise _fail(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {assignment.partition_index}.",
            )
        by_index[assignment.partition_index] = list(assignment.broker_ids)
    if set(by_index) != set(range(len(by_index))):
        raise _fail(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Partitions must be numbered from 0 on without a gap."
        )
    factor = len(topic.assignments[0].broker_ids)
    return [_manual_assignment(image, index, by_index[index], factor) for index in range(len(by_index))]


def _manual_assignment(
    image: MetadataImage, index: int, replicas: list[BrokerId], factor: int
) -> _Assignment:
    def refuse(why: str) -> ApiException:
        return _fail(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The assignment of partition {index} {why}.")

    if not replicas:
        raise refuse("has an empty replica list")
    for replica in replicas:
        if replica not in image.brokers:
            raise refuse(f"includes broker {replica}, but no such broker is registered")
        if replicas.count(replica) > 1:
            raise refuse(f"includes broker {replica} more than once")
    if len(replicas) != factor:
        raise refuse(f"has {len(replicas)} replica(s), but the other partitions have {factor}")
    isr = [replica for replica in replicas if is_active(image, replica)]
    if not isr:
        raise refuse("names only brokers that are fenced or in controlled shutdown")
    return _Assignment(replicas, isr)


def _takes_replicas(broker: BrokerRegistration) -> bool:
    """Not in controlled shutdown, and with a directory that is not cordoned. A fenced broker may come back."""
    if broker.in_controlled_shutdown and not broker.fenced:
        return False
    return not broker.directories or bool(set(broker.directories) - set(broker.cordoned_directories))


def _machine(broker: BrokerRegistration) -> str | None:
    return next((listener.host for listener in broker.listeners.values()), None)


def _place(image: MetadataImage, count: int, replication_factor: int, clock: Clock) -> list[_Assignment]:
    usable = [
        UsableBroker(broker.id, broker.rack, broker.fenced, _machine(broker))
        for broker in image.brokers.values()
        if _takes_replicas(broker)
    ]
    prefix = f"Unable to replicate the partition {replication_factor} time(s):"
    try:
        placed = place_replicas(usable, count, replication_factor, clock.random)
    except ApiException as error:
        raise _fail(error.code, f"{prefix} {error.message}") from error
    assignments = []
    for replicas in placed:
        isr = [replica for replica in replicas if is_active(image, replica)]
        if not isr:
            raise _fail(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"{prefix} All brokers are currently fenced or in controlled shutdown.",
            )
        assignments.append(_Assignment(replicas, isr))
    return assignments


def _partition_records(
    image: MetadataImage, topic_id: bytes, first: int, assignments: Sequence[_Assignment]
) -> list[PartitionRecord]:
    return [
        PartitionRecord(
            topic_id=topic_id,
            partition_id=first + index,
            replicas=assignment.replicas,
            directories=[default_directory(image.brokers.get(replica)) for replica in assignment.replicas],
            isr=list(assignment.isr),
            leader=assignment.isr[0],
            leader_epoch=0,
            partition_epoch=0,
        )
        for index, assignment in enumerate(assignments)
    ]


def create_partitions(
    image: MetadataImage, request: CreatePartitionsRequest, clock: Clock, charge: Charge = without_quota
) -> ControllerResult[CreatePartitionsResponse]:
    """Decide CreatePartitions. Each topic succeeds or fails by itself."""
    duplicates = _duplicates(topic.name for topic in request.topics)
    records: list[WireMessage] = []
    results: dict[TopicName, ApiError] = {}
    for topic in request.topics:
        try:
            if topic.name in duplicates:
                raise _fail(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            more = _more_partitions(image, topic, clock)
            charge(len(more))
            records += more
            results[topic.name] = NO_ERROR
        except ApiException as error:
            results[topic.name] = ApiError.of(error)
    _check_record_count(records)
    response = CreatePartitionsResponse(
        results=[
            CreatePartitionsResponse.CreatePartitionsTopicResult(
                name=name, error_code=error.code, error_message=error.message
            )
            for name, error in results.items()
        ]
    )
    return ControllerResult([] if request.validate_only else records, response)


def _more_partitions(
    image: MetadataImage, wanted: CreatePartitionsRequest.CreatePartitionsTopic, clock: Clock
) -> list[PartitionRecord]:
    topic = image.topics.by_name.get(wanted.name)
    if topic is None:
        raise _fail(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{wanted.name}'.")
    current = len(topic.partitions)
    additional = wanted.count - current
    if additional == 0:
        raise _fail(ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partition(s).")
    if additional < 0:
        raise _fail(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {wanted.name} currently has {current} partition(s); {wanted.count} would not be an increase.",
        )
    if additional > MAX_PARTITIONS_PER_REQUEST:
        raise _fail(
            ErrorCode.POLICY_VIOLATION,
            f"{additional} new partitions are more than the {MAX_PARTITIONS_PER_REQUEST} of one request.",
        )
    factor = len(topic.partitions[min(topic.partitions)].replicas)
    if wanted.assignments is None:
        assignments = _place(image, additional, factor, clock)
    else:
        if len(wanted.assignments) != additional:
            raise _fail(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {additional} partition(s), but {len(wanted.assignments)} assignment(s) were given.",
            )
        assignments = [
            _manual_assignment(image, current + index, list(assignment.broker_ids), factor)
            for index, assignment in enumerate(wanted.assignments)
        ]
    return _partition_records(image, topic.id, current, assignments)


def delete_topics(
    image: MetadataImage,
    request: DeleteTopicsRequest,
    settings: Settings,
    version: int,
    charge: Charge = without_quota,
) -> ControllerResult[DeleteTopicsResponse]:
    """Decide DeleteTopics: topics by name, and from version 6 by id."""
    if not settings.delete_topic_enable:
        # Version 3 introduced this error code.
        code = ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST
        raise _fail(code, "Topic deletion is disabled (delete.topic.enable is false).")
    wanted: list[tuple[TopicName | None, bytes]] = [(name, ZERO_UUID) for name in request.topic_names]
    wanted += [(topic.name, topic.topic_id) for topic in request.topics]
    found: dict[tuple[TopicName | None, bytes], TopicImage | ApiError] = {}
    for name, topic_id in wanted:
        try:
            found[name, topic_id] = _find_topic(image, name, topic_id)
        except ApiException as error:
            found[name, topic_id] = ApiError.of(error)
    # A topic may be named twice: by the same name, or by its name and by its id.
    times = Counter(topic.id for key in wanted if isinstance(topic := found[key], TopicImage))
    records: list[WireMessage] = []
    responses: list[DeleteTopicsResponse.DeletableTopicResult] = []
    for (name, topic_id), topic in found.items():
        outcome = topic if isinstance(topic, ApiError) else NO_ERROR
        if isinstance(topic, TopicImage):
            if times[topic.id] > 1:
                outcome = ApiError(ErrorCode.INVALID_REQUEST, "The same topic was named more than once.")
            else:
                name, topic_id = topic.name, topic.id
                try:
                    charge(len(topic.partitions))
                    records.append(RemoveTopicRecord(topic_id=topic.id))
                except ApiException as error:
                    outcome = ApiError.of(error)
        responses.append(
            DeleteTopicsResponse.DeletableTopicResult(
                name=name, topic_id=topic_id, error_code=outcome.code, error_message=outcome.message
            )
        )
    return ControllerResult(records, DeleteTopicsResponse(responses=responses))


def _find_topic(image: MetadataImage, name: TopicName | None, topic_id: bytes) -> TopicImage:
    if name is not None and topic_id != ZERO_UUID:
        raise _fail(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if name is None and topic_id == ZERO_UUID:
        raise _fail(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    topic = image.topics.by_id.get(topic_id) if name is None else image.topics.by_name.get(name)
    if topic is None and name is None:
        raise _fail(ErrorCode.UNKNOWN_TOPIC_ID, f"There is no topic with the id {uuid_to_str(topic_id)}.")
    if topic is None:
        raise _fail(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{name}'.")
    return topic
