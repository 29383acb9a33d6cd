"""The result of a pure controller function: the records to append, and the response for when they are committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from ottla.errors import ApiException, ErrorCode

if TYPE_CHECKING:
    from ottla.wire.classes import WireMessage

R = TypeVar("R")

MAX_RECORDS_PER_OPERATION = 10_000
"""Records that one admin request may write; Kafka's bound. It keeps one batch of the metadata log small."""


class ControllerResult(msgspec.Struct, Generic[R], frozen=True):
    """Records to append, and the response that becomes true when they are committed."""

    records: Sequence[WireMessage]
    response: R
    atomic: bool = True
    """All records go in one batch. Otherwise an operation with many records may use several."""


class ApiError(msgspec.Struct, frozen=True):
    """An error code with its message, for one element of a response that has many."""

    code: ErrorCode = ErrorCode.NONE
    message: str | None = None

    @property
    def failed(self) -> bool:
        return self.code is not ErrorCode.NONE

    @classmethod
    def of(cls, error: ApiException) -> ApiError:
        return cls(error.code, error.message)


NO_ERROR = ApiError()
