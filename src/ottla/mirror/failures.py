"""What can go wrong in a mirror, as sentences that say what to do."""

from __future__ import annotations

from typing import Final

from ottla.errors import ApiException, ErrorCode
from ottla.pipeline.writer import Place

_FINAL: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        ErrorCode.ILLEGAL_SASL_STATE,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.POLICY_VIOLATION,
    }
)


def passes(code: ErrorCode) -> bool:
    """Whether a failure may pass by itself or by a new start of the flow; the others need a person."""
    return code not in _FINAL


class MirrorError(Exception):
    """A sentence for the user: a wrong file, or a cluster that cannot be mirrored."""


class LaneFenced(ApiException):
    """Another process took a lane over: this one must not write any more."""

    def __init__(self, transactional_id: str, code: ErrorCode) -> None:
        super().__init__(
            code,
            f"another process took {transactional_id} over ({code.name}): this mirror stops. Run one mirror for a flow",
        )


class PartitionStopped(Exception):
    """One partition cannot go on; the others of its flow do."""


def made_again(place: Place) -> str:
    """The sentence about a topic of the source that is not the one that was copied."""
    return (
        f"{place.topic}-{place.partition}: the topic was deleted and created again at the source. Delete its copy at "
        "the target and restart the mirror, or rename one of them"
    )


def ends_early(remote: Place, end: int, written: int) -> str:
    """The sentence about a copy that ends before what was written to it."""
    return (
        f"{remote.topic}-{remote.partition} ends at offset {end} at the target, but {written} offsets were written: "
        "the topic lost records there. Delete it at the target and restart the mirror: it is copied afresh"
    )


def is_empty(remote: Place) -> str:
    """The sentence about a copy that was deleted."""
    return (
        f"{remote.topic}-{remote.partition} is missing or empty at the target, but it was copied: the topic was "
        "deleted there. Restart the mirror: it is copied afresh"
    )


def unreadable(reason: str) -> str:
    """The sentence about damaged records of the source."""
    return (
        f"{reason}. Delete the damaged records at the source (`ottla delete-records`), then restart the mirror: it "
        "skips them"
    )
