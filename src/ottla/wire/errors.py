"""Errors of decoding and encoding."""

from __future__ import annotations

from ottla.errors import ApiException, ErrorCode


class DecodeError(ApiException):
    """The bytes do not match the schema, or would take more memory than allowed."""

    def __init__(self, message: str, code: ErrorCode = ErrorCode.INVALID_REQUEST) -> None:
        super().__init__(code, message)


class EncodeError(ApiException):
    """The message holds a value that its schema cannot express: a bug of the caller."""

    def __init__(self, message: str, code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR) -> None:
        super().__init__(code, message)


class UnsupportedVersionError(EncodeError, DecodeError):
    """The message, or a field that was set, does not exist in this version."""

    def __init__(self, message: str, code: ErrorCode = ErrorCode.UNSUPPORTED_VERSION) -> None:
        ApiException.__init__(self, code, message)


class FrameTooLargeError(DecodeError):
    """A frame announces more bytes than allowed, or a negative number of bytes."""
