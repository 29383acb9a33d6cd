"""Mistakes in the use of a tool, and the advice for a broker that does not answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ApiException, ErrorCode

if TYPE_CHECKING:
    from ottla.admin.connection import ConnectionFailed


class UsageProblem(ApiException):
    """Flags or values that do not fit together."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, message)


def no_broker_text(failure: ConnectionFailed) -> str:
    """One line about a broker that does not answer, with what to try."""
    return (
        f"{failure.message}; start one with `ottla start`, or name another with --bootstrap-server or"
        " OTTLA_BOOTSTRAP"
    )
