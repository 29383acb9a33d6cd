"""ShareFetch (key 78), versions 1-2.

Acquires records of share partitions, waits for them if there are none, and acknowledges earlier ones.

1  the first stable version: records and batches are bounded by number
2  the number as a strict limit (share acquire mode), and renewal of locks
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.api.authorization import require
from ottla.api.base import BY_HANDLER, PARKED, Api, Outcome, RequestContext
from ottla.api.data.leaders import LeaderHint, endpoints, leader_hint
from ottla.api.data.topic_rights import NOT_AUTHORIZED, denied_topics
from ottla.api.share.requests import Refusals, acknowledgements, require_member, require_share_groups
from ottla.broker.services import Broker
from ottla.errors import ApiException, ErrorCode
from ottla.ids import GroupId
from ottla.replica.share.fetch import Fetched, Results, ShareFetch
from ottla.replica.share.sessions import FINAL_EPOCH, INITIAL_EPOCH, PartitionKey, ShareSession
from ottla.replica.share.states import AcquireMode
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation, ResourceType
from ottla.wire.messages import ShareFetchResponse

if TYPE_CHECKING:
    from ottla.wire.messages import ShareFetchRequest

_HINTED: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def handle(broker: Broker, ctx: RequestContext, request: ShareFetchRequest) -> ShareFetchResponse | Outcome:
    require_share_groups(broker)
    group_id, member_id = require_member(request.group_id, request.member_id)
    require(broker, ctx, AclOperation.READ, ResourceType.GROUP, group_id)
    _check_renewal(request)
    try:
        mode = AcquireMode(request.share_acquire_mode)
    except ValueError as error:
        raise ApiException(
            ErrorCode.INVALID_REQUEST, f"There is no share acquire mode {request.share_acquire_mode}"
        ) from error
    try:
        session = _session(broker, ctx, group_id, member_id, request)
    except ApiException as error:
        if error.code != ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            raise
        # A member that cannot be served must not retry at once.
        response = ShareFetchResponse(error_code=error.code, error_message=error.message)
        timer = broker.clock.call_later(max(0, request.max_wait_ms) / 1000, ctx.respond, response)
        ctx.on_close(timer.cancel)
        return PARKED
    pending = _PendingFetch(broker, ctx, group_id, member_id, request, session)
    pending.acknowledge()
    pending.fetch(mode)
    return PARKED


def _check_renewal(request: ShareFetchRequest) -> None:
    if not request.is_renew_ack:
        return
    for field in ("max_bytes", "min_bytes", "max_records", "max_wait_ms"):
        if getattr(request, field):
            raise ApiException(ErrorCode.INVALID_REQUEST, f"{field} must be 0 in a request that renews locks")


def _session(
    broker: Broker, ctx: RequestContext, group_id: GroupId, member_id: str, request: ShareFetchRequest
) -> ShareSession:
    """The session that the request starts, continues or ends; raises when its epoch does not fit."""
    shares = broker.share.partitions
    epoch = request.share_session_epoch
    requested = [
        (topic.topic_id, part.partition_index) for topic in request.topics for part in topic.partitions
    ]
    if epoch == FINAL_EPOCH:
        return shares.sessions.require(group_id, member_id)
    if epoch == INITIAL_EPOCH:
        if any(part.acknowledgement_batches for topic in request.topics for part in topic.partitions):
            raise ApiException(
                ErrorCode.INVALID_REQUEST, "The first request of a share session cannot acknowledge records"
            )
        session = shares.sessions.open(group_id, member_id, requested, ctx.connection_id)
        ctx.on_disconnect("share sessions", partial(shares.connection_lost, ctx.connection_id))
        return session
    session = shares.sessions.use(group_id, member_id, epoch)
    shares.sessions.check_size(len(session.partitions) + len(requested))
    for key in requested:
        session.partitions.setdefault(key, True)
    for topic in request.forgotten_topics_data:
        for index in topic.partitions:
            session.partitions.pop((topic.topic_id, index), None)
    return session


class _PendingFetch:
    """A request whose acknowledgements and records may become ready at different times."""

    __slots__ = (
        "_acknowledged",
        "_broker",
        "_ctx",
        "_fetched",
        "_group_id",
        "_member_id",
        "_request",
        "_session",
        "_unknown",
    )

    def __init__(
        self,
        broker: Broker,
        ctx: RequestContext,
        group_id: GroupId,
        member_id: str,
        request: ShareFetchRequest,
        session: ShareSession,
    ) -> None:
        self._group_id = group_id
        self._member_id = member_id
        self._broker = broker
        self._ctx = ctx
        self._request = request
        self._session = session
        self._acknowledged: Refusals | None = None
        self._fetched: Results | None = None
        self._unknown: Results = {}

    # -- acknowledgements

    def acknowledge(self) -> None:
        request = self._request
        found, refused = acknowledgements(self._broker, self._ctx, request.topics, request.is_renew_ack)

        def done(outcomes: Refusals) -> None:
            self._acknowledged = {**refused, **outcomes}
            self._respond()

        self._broker.share.partitions.acknowledge(self._group_id, self._member_id, found, done)

    # -- records

    def fetch(self, mode: AcquireMode) -> None:
        request = self._request
        partitions: list[PartitionKey] = []
        if request.share_session_epoch != FINAL_EPOCH and not request.is_renew_ack:
            partitions = self._known()
        fetch = ShareFetch(
            self._broker.share.partitions,
            self._group_id,
            self._member_id,
            partitions,
            self._done,
            max_bytes=min(request.max_bytes, self._broker.config.int("fetch.max.bytes")),
            min_bytes=request.min_bytes,
            max_wait_ms=request.max_wait_ms,
            max_records=request.max_records,
            batch_size=request.batch_size,
            mode=mode,
        )
        results = fetch.start()
        if results is not None:
            self._done(results)
        else:
            self._ctx.on_close(fetch.cancel)

    def _known(self) -> list[PartitionKey]:
        """The session's partitions that exist, rotated by one with each request."""
        topics = self._broker.image.topics.by_id
        known = []
        asked = (key[0] for key in self._session.partitions)
        denied = denied_topics(self._broker, self._ctx, AclOperation.READ, asked)
        for key in self._session.partitions:
            topic = topics.get(key[0])
            if topic is None:
                self._unknown[key] = Fetched(ApiException(ErrorCode.UNKNOWN_TOPIC_ID, "No topic has this id"))
            elif key[0] in denied:
                self._unknown[key] = Fetched(NOT_AUTHORIZED)
            elif key[1] not in topic.partitions:
                self._unknown[key] = Fetched(
                    ApiException(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name} has no such partition")
                )
            else:
                known.append(key)
        turn = self._request.share_session_epoch % len(known) if known else 0
        return known[turn:] + known[:turn]

    def _done(self, results: Results) -> None:
        self._fetched = {**results, **self._unknown}
        self._respond()

    # -- the response

    def _respond(self) -> None:
        if self._acknowledged is None or self._fetched is None:
            return
        request = self._request
        shares = self._broker.share.partitions
        response = self._response(self._acknowledged, self._fetched)
        if request.share_session_epoch == FINAL_EPOCH:
            shares.end_session(self._group_id, self._member_id)
        self._ctx.respond(response)

    def _response(self, acknowledged: Refusals, fetched: Results) -> ShareFetchResponse:
        broker, request = self._broker, self._request
        partitions: dict[PartitionKey, ShareFetchResponse.PartitionData] = {}
        hints: list[LeaderHint] = []
        for key, result in fetched.items():
            if result.records:
                with suppress(ApiException):  # the partition may have moved away meanwhile
                    broker.replicas.find(key).counters.bytes_out += len(result.records)
            if request.share_session_epoch <= INITIAL_EPOCH or self._session.must_send(
                key, has_records=len(result.records) > 0, has_error=result.error is not None
            ):
                partitions[key] = self._partition(key, result, hints)
        for key, error in acknowledged.items():
            if key not in partitions:
                partitions[key] = _empty(key)
            if error is not None:
                partitions[key].acknowledge_error_code = error.code
                partitions[key].acknowledge_error_message = error.message
        response = ShareFetchResponse(
            acquisition_lock_timeout_ms=broker.share.partitions.settings(self._group_id).record_lock_ms,
            responses=_by_topic(partitions),
        )
        if hints:
            response.node_endpoints = endpoints(ShareFetchResponse.NodeEndpoint, hints)
        return response

    def _partition(
        self, key: PartitionKey, result: Fetched, hints: list[LeaderHint]
    ) -> ShareFetchResponse.PartitionData:
        partition = _empty(key)
        error = result.error
        if error is None:
            partition.records = result.records
            partition.acquired_records = [
                ShareFetchResponse.AcquiredRecords(
                    first_offset=part.first, last_offset=part.last, delivery_count=part.delivery_count
                )
                for part in result.acquired
            ]
            return partition
        partition.error_code = error.code
        partition.error_message = error.message
        if error.code in _HINTED:
            hint = leader_hint(self._broker, self._ctx, *key)
            hints.append(hint)
            partition.current_leader = ShareFetchResponse.LeaderIdAndEpoch(
                leader_id=hint.leader_id, leader_epoch=hint.leader_epoch
            )
        return partition


def _empty(key: PartitionKey) -> ShareFetchResponse.PartitionData:
    return ShareFetchResponse.PartitionData(partition_index=key[1], records=b"")


def _by_topic(
    partitions: dict[PartitionKey, ShareFetchResponse.PartitionData],
) -> list[ShareFetchResponse.ShareFetchableTopicResponse]:
    topics: dict[bytes, list[ShareFetchResponse.PartitionData]] = {}
    for (topic_id, _), partition in partitions.items():
        topics.setdefault(topic_id, []).append(partition)
    return [
        ShareFetchResponse.ShareFetchableTopicResponse(topic_id=topic_id, partitions=of_topic)
        for topic_id, of_topic in topics.items()
    ]


API = Api(ApiKey.SHARE_FETCH, handle, needs=BY_HANDLER)
