"""What a broker's error code means for a person, as one sentence that says what to try."""

from __future__ import annotations

from typing import Final

from ottla.errors import ApiException, ErrorCode

_ADVICE: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic or partition",
    ErrorCode.UNKNOWN_TOPIC_ID: "there is no topic with this id",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader at the moment",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "the partition has just moved to another broker; try again",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the coordinator is not available; try again in a moment",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator is still loading its state; try again in a moment",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.NON_EMPTY_GROUP: "the group still has members",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "members of the group are subscribed to the topic",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the partition does not hold this offset",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not authorized for this topic; see `ottla acls`",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "not authorized for this group; see `ottla acls`",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not authorized for this cluster; see `ottla acls`",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "not authorized for this transactional id; see `ottla acls`",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "not authorized for this token; see `ottla acls`",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "there is no such transactional id",
    ErrorCode.REQUEST_TIMED_OUT: "the cluster did not manage it in time; try again",
    ErrorCode.SECURITY_DISABLED: "No Authorizer is configured.",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "Delegation Token feature is not enabled.",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "Delegation Token requests are not allowed on PLAINTEXT/1-way"
    " SSL channels and on delegation token authenticated channels.",
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "there is no such delegation token",
    ErrorCode.POLICY_VIOLATION: "a policy of the cluster forbids it",
}


_OWN_SENTENCE: Final = frozenset(
    {
        ErrorCode.SECURITY_DISABLED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    }
)


def advice(code: int) -> str | None:
    """The sentence for an error whose name alone does not help."""
    return _ADVICE.get(ErrorCode.of(code))


def describe_error(code: int, message: str | None = None) -> str:
    """A sentence about a broker's error: the broker's own message if it helps."""
    error = ErrorCode.of(code)
    # For authorization failures Apache Kafka's message is its own request as text.
    if message and error not in _OWN_SENTENCE:
        return message
    return _ADVICE.get(error, f"the broker answered {error.name}")


def raise_for(code: int, message: str | None = None, about: str = "") -> None:
    """Raise the ApiException of an error code; do nothing for NONE."""
    if code != ErrorCode.NONE:
        text = describe_error(code, message)
        raise ApiException(ErrorCode.of(code), f"{about}: {text}" if about else text)
