"""What can go wrong in a mirror, as sentences that say what to do."""

from __future__ import annotations

from typing import Final

from ottla.errors import ApiException, ErrorCode

_ANSWERED_BY_A_NEW_START: Final = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)


def passes(code: ErrorCode) -> bool:
    """Whether a failure passes by itself or by a new start of the flow; any other needs a person."""
    return code.retriable or code in _ANSWERED_BY_A_NEW_START


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
