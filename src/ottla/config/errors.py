"""The error of all configuration code: it names the key, the value and what was expected."""

from __future__ import annotations

from ottla.errors import ApiException, ErrorCode


class ConfigError(ApiException):
    """An unknown key, or an invalid value."""

    def __init__(self, message: str, *, key: str | None = None) -> None:
        super().__init__(ErrorCode.INVALID_CONFIG, message)
        self.key = key

    @classmethod
    def bad_value(cls, key: str, value: object, expected: str) -> ConfigError:
        shown = "(null)" if value is None else f"'{value}'"
        return cls(f"Invalid value {shown} for configuration {key}: expected {expected}", key=key)
