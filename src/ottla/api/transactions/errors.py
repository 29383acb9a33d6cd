"""The error codes that clients of a version know."""

from __future__ import annotations

from ottla.errors import ErrorCode


def known_to(code: ErrorCode, version: int, *, fenced_from: int) -> ErrorCode:
    """Replace PRODUCER_FENCED for versions that do not have it by INVALID_PRODUCER_EPOCH."""
    if code is ErrorCode.PRODUCER_FENCED and version < fenced_from:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
