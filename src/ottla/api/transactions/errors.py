"""The error codes that clients of a version know: older ones are told of fencing in the words of their time."""

from __future__ import annotations

from ottla.errors import ErrorCode


def known_to(code: ErrorCode, version: int, *, fenced_from: int) -> ErrorCode:
    """`PRODUCER_FENCED` only from the version on that brought it; before, what stood for it then."""
    if code is ErrorCode.PRODUCER_FENCED and version < fenced_from:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
