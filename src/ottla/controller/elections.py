"""Elections: ElectLeaders, and the periodic ones (preferred leaders, unclean elections)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.controller.partition_change import Election, PartitionId, change_partition
from ottla.controller.partitions import TopicRules
from ottla.controller.result import (
    MAX_RECORDS_PER_OPERATION,
    NO_ERROR,
    ApiError,
    ControllerResult,
)
from ottla.controller.settings import Settings
from ottla.errors import ApiException, ErrorCode
from ottla.ids import TopicName
from ottla.metadata.image import NO_LEADER, MetadataImage, PartitionRegistration, TopicImage
from ottla.wire.enums import ElectionType
from ottla.wire.messages import ElectLeadersResponse, PartitionChangeRecord

if TYPE_CHECKING:
    from ottla.wire.messages import ElectLeadersRequest

MAX_ELECTIONS_PER_TURN: Final = 1000
"""Periodic elections in one batch; the rest follow soon after."""


_ELECTIONS: Final = {ElectionType.PREFERRED: Election.PREFERRED, ElectionType.UNCLEAN: Election.UNCLEAN}
_NO_LEADER_ELECTED: Final = {
    ElectionType.PREFERRED: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    ElectionType.UNCLEAN: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
}


def elect_leaders(
    image: MetadataImage, request: ElectLeadersRequest, settings: Settings, version: int
) -> ControllerResult[ElectLeadersResponse]:
    """Decide ElectLeaders. A request without partitions means all that need an election."""
    election = ElectionType.PREFERRED
    if version >= 1:
        try:
            election = ElectionType(request.election_type)
        except ValueError:
            raise ApiException(
                ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}"
            ) from None
    wanted: list[tuple[TopicName, list[int]]]
    if request.topic_partitions is None:
        wanted = [(name, sorted(topic.partitions)) for name, topic in image.topics.by_name.items()]
    else:
        wanted = [(topic.topic, topic.partitions) for topic in request.topic_partitions]
    records: list[PartitionChangeRecord] = []
    results = []
    for name, indexes in wanted:
        result = ElectLeadersResponse.ReplicaElectionResult(topic=name)
        results.append(result)
        for index in indexes:
            record, error = _elect(image, settings, name, index, election)
            if record is not None:
                records.append(record)
            if request.topic_partitions is None and error.code is ErrorCode.ELECTION_NOT_NEEDED:
                continue
            result.partition_result.append(
                ElectLeadersResponse.PartitionResult(
                    partition_id=index, error_code=error.code, error_message=error.message
                )
            )
    if len(records) > MAX_RECORDS_PER_OPERATION:
        raise ApiException(
            ErrorCode.POLICY_VIOLATION,
            f"The request would elect {len(records)} leaders; {MAX_RECORDS_PER_OPERATION} is the most.",
        )
    return ControllerResult(records, ElectLeadersResponse(replica_election_results=results), atomic=False)


def _elect(
    image: MetadataImage, settings: Settings, name: TopicName, index: int, election: ElectionType
) -> tuple[PartitionChangeRecord | None, ApiError]:
    topic = image.topics.by_name.get(name)
    if topic is None:
        return None, ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    partition = topic.partitions.get(index)
    if partition is None:
        return None, ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    if not _needs(partition, _ELECTIONS[election]):
        return None, _no_election(ErrorCode.ELECTION_NOT_NEEDED)
    rules = TopicRules(image, settings, topic).of(partition, _ELECTIONS[election])
    record = change_partition(PartitionId(topic.id, index), partition, rules)
    return record, NO_ERROR if record is not None else _no_election(_NO_LEADER_ELECTED[election])


_SENTENCES: Final = {
    ErrorCode.ELECTION_NOT_NEEDED: "Leader election not needed for topic partition.",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader was not available.",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "Eligible topic partition leaders are not available.",
}


def _no_election(code: ErrorCode) -> ApiError:
    return ApiError(code, _SENTENCES[code])


def has_preferred_leader(partition: PartitionRegistration) -> bool:
    return partition.leader == partition.replicas[0]


def _periodic_elections(
    image: MetadataImage, settings: Settings, election: Election
) -> ControllerResult[bool]:
    """The response is whether there may be more to do."""
    records: list[PartitionChangeRecord] = []
    for topic in image.topics.by_name.values():
        waiting = [(i, p) for i, p in topic.partitions.items() if _needs(p, election)]
        if not waiting:
            continue
        rules = TopicRules(image, settings, topic)
        if election is Election.UNCLEAN and not rules.unclean:
            continue
        records += _try(topic, waiting, rules, election)
        if len(records) >= MAX_ELECTIONS_PER_TURN:
            return ControllerResult(records[:MAX_ELECTIONS_PER_TURN], True, atomic=False)
    return ControllerResult(records, False, atomic=False)


def _needs(partition: PartitionRegistration, election: Election) -> bool:
    if election is Election.UNCLEAN:
        return partition.leader == NO_LEADER
    return not has_preferred_leader(partition)


def _try(
    topic: TopicImage,
    waiting: list[tuple[int, PartitionRegistration]],
    rules: TopicRules,
    election: Election,
) -> list[PartitionChangeRecord]:
    records = (change_partition(PartitionId(topic.id, i), p, rules.of(p, election)) for i, p in waiting)
    return [record for record in records if record is not None]


def balance_leaders(image: MetadataImage, settings: Settings) -> ControllerResult[bool]:
    """Return the lead to preferred replicas that may lead."""
    return _periodic_elections(image, settings, Election.PREFERRED)


def elect_unclean_leaders(image: MetadataImage, settings: Settings) -> ControllerResult[bool]:
    """Elect leaders for partitions without one, in topics that allow elections with a loss of records."""
    return _periodic_elections(image, settings, Election.UNCLEAN)
