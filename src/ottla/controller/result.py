"""What a pure controller function gives back: the records that make it so, and the answer once they are committed."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from ottla.errors import ApiException, ErrorCode

R = TypeVar("R")

Message = Any
"""An instance of a message class compiled from the schema table (see `ottla.wire.messages`)."""

MAX_RECORDS_PER_OPERATION = 10_000
"""Records one admin request may write; Kafka's bound, and what keeps one batch of the metadata log small."""


class ControllerResult(msgspec.Struct, Generic[R], frozen=True):
    """Records to append, and the response that becomes true when they are committed."""

    records: list[Message]
    response: R
    atomic: bool = True
    """All records go in one batch. Only activation, which has its own metadata transaction, does without."""


class ApiError(msgspec.Struct, frozen=True):
    """An error code with its sentence, for one element of a response that has many."""

    code: ErrorCode = ErrorCode.NONE
    message: str | None = None

    @property
    def failed(self) -> bool:
        return self.code is not ErrorCode.NONE

    @classmethod
    def of(cls, error: ApiException) -> ApiError:
        return cls(error.code, error.message)


NO_ERROR = ApiError()
