"""Elections on request and by the clock: ElectLeaders, the return to preferred leaders, unclean elections."""

from __future__ import annotations

from typing import Final

from ottla.controller.partition_change import Election, PartitionId, change_partition
from ottla.controller.partitions import TopicRules
from ottla.controller.result import (
    MAX_RECORDS_PER_OPERATION,
    NO_ERROR,
    ApiError,
    ControllerResult,
    Message,
)
from ottla.controller.settings import Settings
from ottla.errors import ApiException, ErrorCode
from ottla.metadata.image import NO_LEADER, MetadataImage, PartitionRegistration, TopicImage
from ottla.wire.enums import ElectionType
from ottla.wire.messages import ElectLeadersResponse

MAX_ELECTIONS_PER_TURN: Final = 1000
"""Elections that the clock brings about in one batch; what is left has its turn soon after."""


_ELECTIONS: Final = {ElectionType.PREFERRED: Election.PREFERRED, ElectionType.UNCLEAN: Election.UNCLEAN}
_IN_VAIN: Final = {
    ElectionType.PREFERRED: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    ElectionType.UNCLEAN: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
}


def elect_leaders(
    image: MetadataImage, request: Message, settings: Settings, version: int
) -> ControllerResult[Message]:
    """ElectLeadersRequest -> ElectLeadersResponse. Without partitions named, all that need an election."""
    election = ElectionType.PREFERRED
    if version >= 1:
        try:
            election = ElectionType(request.election_type)
        except ValueError:
            raise ApiException(
                ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}"
            ) from None
    wanted: list[tuple[str, list[int]]]
    if request.topic_partitions is None:
        wanted = [(name, sorted(topic.partitions)) for name, topic in image.topics.by_name.items()]
    else:
        wanted = [(topic.topic, topic.partitions) for topic in request.topic_partitions]
    records: list[Message] = []
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
    image: MetadataImage, settings: Settings, name: str, index: int, election: ElectionType
) -> tuple[Message | None, ApiError]:
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
    return record, NO_ERROR if record is not None else _no_election(_IN_VAIN[election])


_SENTENCES: Final = {
    ErrorCode.ELECTION_NOT_NEEDED: "Leader election not needed for topic partition.",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader was not available.",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "Eligible topic partition leaders are not available.",
}


def _no_election(code: ErrorCode) -> ApiError:
    return ApiError(code, _SENTENCES[code])


def has_preferred_leader(partition: PartitionRegistration) -> bool:
    return partition.leader == partition.replicas[0]


def _elections_by_the_clock(
    image: MetadataImage, settings: Settings, election: Election
) -> ControllerResult[bool]:
    """The response says that there may be more to do."""
    records: list[Message] = []
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
) -> list[Message]:
    records = (change_partition(PartitionId(topic.id, i), p, rules.of(p, election)) for i, p in waiting)
    return [record for record in records if record is not None]


def balance_leaders(image: MetadataImage, settings: Settings) -> ControllerResult[bool]:
    """Give the lead back to preferred replicas that may lead."""
    return _elections_by_the_clock(image, settings, Election.PREFERRED)


def elect_unclean_leaders(image: MetadataImage, settings: Settings) -> ControllerResult[bool]:
    """Elect leaders for partitions that have none, of topics that allow it to lose records."""
    return _elections_by_the_clock(image, settings, Election.UNCLEAN)
