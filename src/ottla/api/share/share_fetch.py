"""ShareFetch (key 78), versions 1-2.

Acquire records of share partitions, waiting for them if there are none; acknowledge on the way.

1  the first that stays: records and batches are bounded by number
2  the number as a strict limit (share acquire mode), renewing of locks
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.api.base import PARKED, Api, Message, Outcome, RequestContext
from ottla.api.data.leaders import LeaderHint, endpoints, leader_hint
from ottla.api.share.requests import Refusals, acknowledgements, require_member, require_share_groups
from ottla.broker.services import Broker
from ottla.errors import ApiException, ErrorCode
from ottla.replica.share.fetch import Fetched, Results, ShareFetch
from ottla.replica.share.sessions import FINAL_EPOCH, INITIAL_EPOCH, PartitionKey, ShareSession
from ottla.replica.share.states import AcquireMode
from ottla.wire.apis import ApiKey
from ottla.wire.messages import ShareFetchResponse

if TYPE_CHECKING:
    from ottla.wire.messages import ShareFetchRequest

_HINTED: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def handle(broker: Broker, ctx: RequestContext, request: ShareFetchRequest) -> ShareFetchResponse | Outcome:
    require_share_groups(broker)
    require_member(request.group_id, request.member_id)
    _check_renewal(request)
    try:
        mode = AcquireMode(request.share_acquire_mode)
    except ValueError as error:
        raise ApiException(ErrorCode.INVALID_REQUEST, "There is no such share acquire mode") from error
    try:
        session = _session(broker, ctx, request)
    except ApiException as error:
        if error.code != ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            raise
        # Who cannot be served is not to come back at once.
        answer = ShareFetchResponse(error_code=error.code, error_message=error.message)
        timer = broker.clock.call_later(max(0, request.max_wait_ms) / 1000, ctx.respond, answer)
        ctx.on_close(timer.cancel)
        return PARKED
    pending = _Pending(broker, ctx, request, session)
    pending.acknowledge()
    pending.fetch(mode)
    return PARKED


def _check_renewal(request: Message) -> None:
    if not request.is_renew_ack:
        return
    for field in ("max_bytes", "min_bytes", "max_records", "max_wait_ms"):
        if getattr(request, field):
            raise ApiException(ErrorCode.INVALID_REQUEST, f"{field} must be 0 where locks are renewed")


def _session(broker: Broker, ctx: RequestContext, request: Message) -> ShareSession:
    """The session that the request begins, goes on with or ends; raises what is wrong with that."""
    shares = broker.share.partitions
    group_id, member_id, epoch = request.group_id, request.member_id, request.share_session_epoch
    asked = [(topic.topic_id, part.partition_index) for topic in request.topics for part in topic.partitions]
    if epoch == FINAL_EPOCH:
        return shares.sessions.require(group_id, member_id)
    if epoch == INITIAL_EPOCH:
        if any(part.acknowledgement_batches for topic in request.topics for part in topic.partitions):
            raise ApiException(
                ErrorCode.INVALID_REQUEST, "A new share session has nothing to acknowledge yet"
            )
        session = shares.sessions.open(group_id, member_id, asked, ctx.connection_id)
        ctx.on_disconnect("share sessions", partial(shares.connection_lost, ctx.connection_id))
        return session
    session = shares.sessions.use(group_id, member_id, epoch)
    shares.sessions.check_size(len(session.partitions) + len(asked))
    for key in asked:
        session.partitions.setdefault(key, True)
    for topic in request.forgotten_topics_data:
        for index in topic.partitions:
            session.partitions.pop((topic.topic_id, index), None)
    return session


class _Pending:
    """A request whose acknowledgements and records come from different places, perhaps at different times."""

    __slots__ = ("_acknowledged", "_broker", "_ctx", "_fetched", "_request", "_session", "_unknown")

    def __init__(self, broker: Broker, ctx: RequestContext, request: Message, session: ShareSession) -> None:
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
        found, refused = acknowledgements(
            self._broker, request.topics, self._ctx.version, request.is_renew_ack
        )

        def done(outcomes: Refusals) -> None:
            self._acknowledged = {**refused, **outcomes}
            self._answer()

        self._broker.share.partitions.acknowledge(request.group_id, request.member_id, found, done)

    # -- records

    def fetch(self, mode: AcquireMode) -> None:
        request = self._request
        partitions: list[PartitionKey] = []
        if request.share_session_epoch != FINAL_EPOCH and not request.is_renew_ack:
            partitions = self._known()
        fetch = ShareFetch(
            self._broker.share.partitions,
            request.group_id,
            request.member_id,
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
        """The session's partitions that exist, another one first each time."""
        topics = self._broker.image.topics.by_id
        known = []
        for key in self._session.partitions:
            topic = topics.get(key[0])
            if topic is None:
                self._unknown[key] = Fetched(ApiException(ErrorCode.UNKNOWN_TOPIC_ID, "No topic has this id"))
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
        self._answer()

    # -- the answer

    def _answer(self) -> None:
        if self._acknowledged is None or self._fetched is None:
            return
        request = self._request
        shares = self._broker.share.partitions
        response = self._response(self._acknowledged, self._fetched)
        if request.share_session_epoch == FINAL_EPOCH:
            shares.end_session(request.group_id, request.member_id)
        self._ctx.respond(response)

    def _response(self, acknowledged: Refusals, fetched: Results) -> Message:
        broker, request = self._broker, self._request
        answers: dict[PartitionKey, Message] = {}
        hints: list[LeaderHint] = []
        for key, result in fetched.items():
            if request.share_session_epoch <= INITIAL_EPOCH or self._session.must_tell(
                key, has_records=len(result.records) > 0, has_error=result.error is not None
            ):
                answers[key] = self._partition(key, result, hints)
        for key, error in acknowledged.items():
            if key not in answers:
                answers[key] = _empty(key)
            answer = answers[key]
            if error is not None:
                answer.acknowledge_error_code = error.code
                answer.acknowledge_error_message = error.message
        response = ShareFetchResponse(
            acquisition_lock_timeout_ms=broker.share.partitions.settings(request.group_id).record_lock_ms,
            responses=_by_topic(answers),
        )
        if hints:
            response.node_endpoints = endpoints(ShareFetchResponse.NodeEndpoint, hints)
        return response

    def _partition(self, key: PartitionKey, result: Fetched, hints: list[LeaderHint]) -> Message:
        answer = _empty(key)
        error = result.error
        if error is None:
            answer.records = result.records
            answer.acquired_records = [
                ShareFetchResponse.AcquiredRecords(
                    first_offset=part.first, last_offset=part.last, delivery_count=part.delivery_count
                )
                for part in result.acquired
            ]
            return answer
        answer.error_code = error.code
        answer.error_message = error.message
        if error.code in _HINTED:
            hint = leader_hint(self._broker, self._ctx, *key)
            hints.append(hint)
            answer.current_leader = ShareFetchResponse.LeaderIdAndEpoch(
                leader_id=hint.leader_id, leader_epoch=hint.leader_epoch
            )
        return answer


def _empty(key: PartitionKey) -> Message:
    return ShareFetchResponse.PartitionData(partition_index=key[1], records=b"")


def _by_topic(answers: dict[PartitionKey, Message]) -> list[Any]:
    topics: dict[bytes, list[Message]] = {}
    for (topic_id, _), answer in answers.items():
        topics.setdefault(topic_id, []).append(answer)
    return [
        ShareFetchResponse.ShareFetchableTopicResponse(topic_id=topic_id, partitions=partitions)
        for topic_id, partitions in topics.items()
    ]


API = Api(ApiKey.SHARE_FETCH, handle)
